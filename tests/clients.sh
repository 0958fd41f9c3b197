#!/usr/bin/env bash
# Other people's programs on a volume: fio, libnbd's and QEMU's tools, ext4 on NBD, FUSE and mount.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

# MiB of the volume, and how much fio writes of it, in percent.
SIZE=${SIZE:-64}
FIO_PERCENT=${FIO_PERCENT:-150}
uri='nbd+unix:///?socket=socket'

run_fio() {
    fio --name=verify --ioengine=nbd --uri="$uri" --size="${SIZE}M" --verify=crc32c \
        --verify_fatal=1 --randrepeat=1 "$@"
}

mounted() {
    mountpoint -q "$1"
}

section "nbdinfo"
expect 0 volume create image --size "${SIZE}M" --key-file key
serve image
expect 0 nbdinfo --json "$uri"
check "what it tells" python3 -c '
import json
export = json.load(open("out"))["exports"][0]
assert export["export-name"] == "" and export["export-size"] == int("'"$SIZE"'") << 20, export
assert export["can_flush"] and export["can_fua"] and export["can_multi_conn"], export
assert export["can_trim"] and not export["is_read_only"], export
assert export["block_size_minimum"] <= 512 and export["block_size_preferred"] == 4096, export'
expect 0 nbdinfo --list "$uri"
expect 1 nbdinfo "nbd+unix:///nothing?socket=socket"

section "fio, random blocks of 4 KiB to 64 KiB with flushes, verified"
expect 0 run_fio --rw=randwrite --bsrange=4k-64k --iodepth=16 --fsync=64 \
    --io_size="$((SIZE * FIO_PERCENT / 100))M"
expect 0 run_fio --rw=randwrite --bs=512 --iodepth=4 --io_size=1M
expect 0 run_fio --rw=write --bs=1M --iodepth=4
stop_server
serve image
expect 0 run_fio --rw=read --bs=1M --verify_only

section "nbdcopy there and back"
head --bytes "${SIZE}M" /dev/urandom >data
expect 0 nbdcopy --flush data "$uri"
expect 0 nbdcopy "$uri" back
expect 0 cmp data back
expect 0 nbdcopy --synchronous "$uri" back
expect 0 cmp data back

section "qemu-img and qemu-io"
disk="nbd:unix:socket"
expect 0 qemu-img convert -f raw -O raw -n back "$disk"
expect 0 qemu-img compare -f raw -F raw back "$disk"
dd if=/dev/zero of=back bs=1M seek=3 count=1 conv=notrunc status=none
expect 1 qemu-img compare -f raw -F raw back "$disk"
expect 0 qemu-io -f raw -c "write -z 3M 1M" -c flush "$disk"
expect 0 qemu-img compare -f raw -F raw back "$disk"
expect 0 qemu-io -f raw -c "write -f -P 7 5000 9000" -c "read -P 7 5000 9000" "$disk"
stop_server
serve image
expect 0 qemu-io -f raw -c "read -P 7 5000 9000" -c "read -P 0 3M 1M" "$disk"

section "trims: zeros, also later, for a few writes"
expect 0 qemu-io -f raw -c "write -P 9 8M 8M" -c flush "$disk"
stop_server
before=$(status_of image writes)
serve image
expect 0 qemu-io -f raw -d unmap -c "discard 9M 5M" -c "discard 15M 1M" -c flush "$disk"
expect 0 qemu-io -f raw -d unmap -c "write -P 8 10M 64k" -c "write -zu 8M 8k" -c flush "$disk"
read_trimmed() {
    qemu-io -f raw -c "read -P 0 8M 8k" -c "read -P 9 8200k 1016k" -c "read -P 0 9M 1M" \
        -c "read -P 8 10M 64k" -c "read -P 0 10304k 3M" -c "read -P 9 14M 1M" \
        -c "read -P 0 15M 1M" "$disk"
}
expect 0 read_trimmed
check "every pattern is there" bash -c '! grep --quiet "Pattern verification failed" out'
kill_server
serve image
expect 0 read_trimmed
check "and after kill -9" bash -c '! grep --quiet "Pattern verification failed" out'
stop_server
check "a block of the map for each, and the blocks that were written" \
    [ $(($(status_of image writes) - before)) -le 24 ]
serve image
expect 0 fio --name=trims --ioengine=nbd --uri="$uri" --size="${SIZE}M" --rw=randtrim --bs=64k \
    --io_size=8M
stop_server
expect 0 volume check image --key-file key
serve image

section "a file system made elsewhere, copied in and out, checked"
truncate --size "${SIZE}M" ext4
expect 0 mkfs.ext4 -q -F -d "$root/crates" ext4
expect 0 nbdcopy --flush ext4 "$uri"
stop_server
serve image
expect 0 nbdcopy "$uri" back
expect 0 fsck.ext4 -fn back
expect 0 cmp ext4 back
stop_server

section "TCP, and TLS where openssl is installed"
port=$((20000 + RANDOM % 10000))
# Serves on the port, until it is ready: options, then -- and a URI.
serve_tcp() {
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    "$traceless" volume serve image --key-file key --tcp "127.0.0.1:$port" "${options[@]}" \
        2>server.err &
    server=$!
    until nbdinfo --size "$2" >/dev/null 2>&1; do
        kill -0 "$server" 2>/dev/null || fail "the server has ended: $(cat server.err)"
        sleep 0.05
    done
}
serve_tcp -- "nbd://127.0.0.1:$port"
expect 0 nbdcopy "nbd://127.0.0.1:$port" back
expect 0 cmp ext4 back
stop_server
if command -v openssl >/dev/null; then
    mkdir certificates
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test \
        -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout server.key \
        -out certificates/ca-cert.pem 2>openssl.err || fail "openssl: $(cat openssl.err)"
    secure="nbds://localhost:$port/?tls-certificates=$scratch/certificates"
    serve_tcp --tls-certificate certificates/ca-cert.pem --tls-key server.key -- "$secure"
    expect 0 nbdcopy "$secure" back
    expect 0 cmp ext4 back
    expect 1 nbdinfo "nbd://127.0.0.1:$port"
    stop_server
else
    leave_out "TLS: openssl is not installed"
fi

if ! can_mount; then
    leave_out "FUSE and mount: they take root, /dev/fuse and loop devices"
    exit 0
fi

section "the FUSE export: a file, a loop device, ext4, fsck"
mkdir fuse mnt
mounts+=("$scratch/mnt" "$scratch/fuse")
export_volume() {
    "$traceless" volume export "$1" fuse --key-file key "${@:2}" >exported 2>server.err &
    server=$!
    until [ -e fuse/volume ]; do
        kill -0 "$server" 2>/dev/null || fail "the export has ended: $(cat server.err)"
        sleep 0.02
    done
}
export_volume image
check "its size" [ "$(stat --format %s fuse/volume)" -eq $((SIZE << 20)) ]
expect 0 cmp ext4 fuse/volume
expect 5 volume export image mnt --key-file key
loop=$(losetup --find --show fuse/volume)
loops+=("$loop")
expect 0 mount "$loop" mnt
expect 0 diff --recursive --no-dereference --exclude=lost+found "$root/crates" mnt
cp -r "$root/tests" mnt/tests
expect 0 umount mnt
losetup --detach "$loop"
loops=()
expect 0 fsck.ext4 -fn fuse/volume
kill -TERM "$server"
wait "$server" || fail "the export ended badly: $(cat server.err)"
check "unmounted" [ ! -e fuse/volume ]
export_volume image --read-only
expect 0 fsck.ext4 -fn fuse/volume
expect 1 dd if=/dev/zero of=fuse/volume bs=4096 count=1 conv=notrunc
expect 0 umount fuse
wait "$server" || fail "the export ended badly after its unmount: $(cat server.err)"
check "closed" [ "$(status_of image clean)" = true ]

section "holes in the exported file, and of a scheme that keeps no discards"
expect 0 volume create holes --size 8M --key-file key
export_volume holes
head --bytes 8M /dev/urandom >data
expect 0 dd if=data of=fuse/volume bs=1M conv=notrunc,fsync
expect 0 fallocate --punch-hole --offset 1000000 --length 3000000 fuse/volume
expect 0 fallocate --zero-range --offset 5M --length 8192 fuse/volume
fallocate --punch-hole --offset 1000000 --length 3000000 data
fallocate --zero-range --offset 5M --length 8192 data
expect 0 cmp data fuse/volume
expect 0 umount fuse
wait "$server" || fail "the export ended badly: $(cat server.err)"
export_volume holes
expect 0 cmp data fuse/volume
expect 0 umount fuse
wait "$server" || fail "the export ended badly: $(cat server.err)"
expect 0 volume create holes --force --size 8M --key-file key --scheme sq
export_volume holes
expect 1 fallocate --punch-hole --offset 1M --length 1M fuse/volume
check "it says so" grep --quiet 'supported' err
expect 0 umount fuse
wait "$server" || fail "the export ended badly: $(cat server.err)"

section "mount and unmount"
expect 0 volume create image --force --size "${SIZE}M" --key-file key
expect 2 volume unmount mnt
expect 4 volume mount missing mnt --key-file key
expect 3 volume mount image mnt --key-file /dev/null
check "nothing is mounted after a failure" [ ! -e mnt/lost+found ]
expect 0 volume mount image mnt --key-file key
check "a file system" mounted mnt
expect 0 fstrim --verbose mnt
check "free space was trimmed" grep --quiet '[1-9][0-9.]* MiB' out
expect 5 volume mount image mnt --key-file key
expect 5 volume serve image --key-file key --socket socket
mkdir second
expect 5 volume mount image second --key-file key
cp -r "$root/crates" mnt
expect 0 fio --name=files --directory=mnt --size=4M --bs=4k --rw=randwrite --fsync=32 \
    --verify=crc32c --unlink=1
tail --follow mnt/crates/traceless/Cargo.toml >/dev/null &
user=$!
until readlink /proc/"$user"/fd/* 2>/dev/null | grep -q "^$scratch/mnt/"; do sleep 0.02; done
expect 5 volume unmount mnt
check "still mounted when in use" mounted mnt
kill "$user"
wait "$user" 2>/dev/null || true
expect 0 volume unmount mnt
check "nothing is left" [ -z "$(ls -A mnt)" ]
check "closed" [ "$(status_of image clean)" = true ]
before=$(sha256_of image)
expect 0 volume mount image mnt --key-file key --read-only
expect 0 diff --recursive --no-dereference "$root/crates" mnt/crates
expect 1 touch mnt/new
expect 0 volume unmount mnt
check "reading only wrote nothing" [ "$(sha256_of image)" = "$before" ]

section "a GiB is trimmed within two seconds"
expect 0 volume create large --size 1G --unfilled --key-file key
expect 0 volume mount large mnt --key-file key
expect 0 timeout 2 fstrim --verbose mnt
check "all that is free" grep --quiet ' 9[0-9.]* MiB' out
expect 0 volume unmount mnt
serve large
expect 0 timeout 2 qemu-io -f raw -d unmap -c "discard 0 1G" -c flush "$disk"
stop_server
rm large

for scheme in sq "sq --map disk" ring hive datalair; do
    section "mount of $scheme: ext4, and again"
    # shellcheck disable=SC2086 # its options are words of their own
    expect 0 volume create image --force --size "${SIZE}M" --key-file key --scheme $scheme
    for round in first second; do
        expect 0 volume mount image mnt --key-file key
        check "a file system" mounted mnt
        cp -r "$root/tests" "mnt/$round"
        expect 0 fio --name=files --directory=mnt --size=4M --bs=4k --rw=randwrite --fsync=32 \
            --verify=crc32c --unlink=1
        expect 0 volume unmount mnt
        expect 0 volume check image --key-file key
    done
    expect 0 volume mount image mnt --key-file key --read-only
    expect 0 diff --recursive "$root/tests" mnt/first
    expect 0 diff --recursive "$root/tests" mnt/second
    expect 0 volume unmount mnt
done
expect 0 volume create image --force --size "${SIZE}M" --key-file key

section "the daemon is killed: unmount cleans up, and the next mount is sound"
expect 0 volume mount image mnt --key-file key
cp -r "$root/tests" mnt
sync --file-system mnt
daemon=$(grep --files-with-matches --null-data "^$scratch/image\$" /proc/[0-9]*/cmdline \
    2>/dev/null | cut -d / -f 3 || true)
loop=$(findmnt --noheadings --output SOURCE --mountpoint "$scratch/mnt")
backing_of() {
    losetup --noheadings --output BACK-FILE "$1" 2>/dev/null || true
}
backing=$(backing_of "$loop")
check "a loop device" [ -n "$backing" ]
check "one daemon" [ "$(wc -w <<<"$daemon")" -eq 1 ]
kill -KILL "$daemon"
expect 0 volume unmount mnt
check "taken down" [ -z "$(ls -A mnt)" ]
check "the loop device is free" [ "$(backing_of "$loop")" != "$backing" ]
expect 0 volume check image --key-file key
expect 0 volume mount image mnt --key-file key
expect 0 diff --recursive "$root/tests" mnt/tests
expect 0 volume unmount mnt
export_volume image
expect 0 fsck.ext4 -fn fuse/volume
kill -TERM "$server"
wait "$server"
