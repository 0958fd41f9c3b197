#!/usr/bin/env bash
# Volumes in lines of fstab: mount(8), umount(8) and systemd with what packages install for them.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh

# Helpers of mount(8) are in folders of the system: here in a view of them that ends with this test.
if [ "$(id -u)" -eq 0 ] && [ -z "${FSTAB_VIEW:-}" ] && unshare --mount true 2>/dev/null; then
    FSTAB_VIEW=1 exec unshare --mount --propagation private "$0" "$@"
fi
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

section "the unit of a mount"
if command -v systemd-analyze >/dev/null; then
    sed "s|/usr/bin/traceless|$traceless|" "$root/dist/traceless-mount@.service" \
        >traceless-mount@.service
    expect 0 systemd-analyze verify --man=no ./traceless-mount@.service
    check "no warnings: $(cat err)" [ ! -s err ]
else
    leave_out "the unit: systemd-analyze is not installed"
fi

if [ -z "${FSTAB_VIEW:-}" ] || ! can_mount; then
    leave_out "mounts: they need root, FUSE, loop devices and namespaces"
    exit 0
fi
mkdir upper work photos "with blank"
if ! mount -t overlay overlay -o lowerdir=/usr/sbin,upperdir=upper,workdir=work /usr/sbin; then
    leave_out "mounts: they need the file system overlay"
    exit 0
fi
for helper in mount.traceless umount.traceless; do
    sed "s|/usr/bin/traceless|$traceless|" "$root/dist/$helper" >"/usr/sbin/$helper"
    chmod +x "/usr/sbin/$helper"
done
cp /usr/sbin/mount.traceless /usr/sbin/mount.fuse.traceless
mounts=("$scratch/photos" "$scratch/with blank")

# What is mounted at a folder, and the loop devices of this test: each a line, or nothing.
mount_at() {
    findmnt --noheadings --output OPTIONS "$1" || true
}

devices() {
    losetup --noheadings 2>/dev/null | grep "$scratch" || true
}

is_closed() {
    [ "$(status_of image clean)" = true ] && [ "$(status_of image in_use)" = false ]
}

section "a folder is mounted, unmounted, and mounted again"
expect 0 volume create image --unfilled --size 64M --key-file key --anchor anchor
options=key-file=$scratch/key,anchor=$scratch/anchor
expect 0 mount -t traceless image photos -o "$options,nosuid,noatime,x-systemd.automount"
check "with the options" grep -q nosuid <(mount_at "$scratch/photos")
echo text >photos/file
expect 0 umount photos
check "the volume is closed" is_closed
check "nothing is mounted" [ -z "$(mount_at "$scratch/photos")" ]
check "no device is left" [ -z "$(devices)" ]
expect 0 mount -t fuse.traceless image "with blank" -o "ro,$options"
check "the file is there" [ "$(cat "with blank/file")" = text ]
expect 32 mount -t traceless image photos -o "$options"
expect 1 touch "with blank/other"
expect 0 umount "with blank"

section "lines of fstab"
cat >fstab <<END
$scratch/image $scratch/photos traceless $options,nofail,_netdev,user,nodev 0 0
$scratch/image $scratch/with\\040blank fuse.traceless noauto,ro,$options 0 0
END
expect 0 mount --all --fstab fstab
expect 0 mount --all --fstab fstab
check "the file is there" [ "$(cat photos/file)" = text ]
echo more >photos/file
expect 0 umount photos
check "the volume is closed" is_closed
expect 0 mount --fstab fstab "$scratch/with blank"
check "the newest is there" [ "$(cat "with blank/file")" = more ]
expect 0 umount "with blank"

section "what fails is said, and leaves nothing"
head --bytes 32 /dev/urandom >wrong
expect 32 mount -t traceless image photos -o key-file=wrong
check "why" grep -q "no key slot" err
expect 32 mount -t traceless none photos -o key-file=key
expect 32 mount -t traceless image none -o key-file=key
expect 32 mount -t traceless image photos -o "key-file=key,nonsense"
expect 1 mount.traceless image
check "nothing is mounted" [ -z "$(mount_at "$scratch/photos")" ]
check "the volume is closed" is_closed

section "a passphrase from a credential"
printf 'correct horse\n' >passphrase
expect 0 volume keys add image --key-file key --new-passphrase-file passphrase --kdf-memory 8M
mkdir credentials
cp passphrase credentials/photos
options=passphrase-file=credential:photos,anchor=$scratch/anchor
expect 32 mount -t traceless image photos -o "$options"
check "it says what is missing" grep -q LoadCredential err
expect 0 env CREDENTIALS_DIRECTORY="$scratch/credentials" mount -t traceless image photos \
    -o "$options"
check "the newest is there" [ "$(cat photos/file)" = more ]
expect 0 umount photos
check "the volume is closed" is_closed
