#!/usr/bin/env bash
# Space that volumes give back with --discard: of a file, of a device, and in lines of fstab.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

# KiB of space that a file takes.
taken() {
    sync "$1"
    du --block-size 1K "$1" | cut --fields 1
}

# Whether the image takes less than a part of its whole space: less_than PARTS OF_HOW_MANY.
less_than() {
    [ $(($(taken image) * $2)) -lt $((whole * $1)) ]
}

section "a new volume gives most of its levels back, and holds what is written"
expect 0 volume create image --scheme sq --size 24M --key-file key
whole=$(taken image)
serve image --discard
check "it is smaller: $(taken image) of $whole" less_than 2 3
nbd fill 3000 5
nbd flush
stop_server
check "later, too: $(taken image)" less_than 99 100
serve image --read-only
expect 0 nbd refused 3000 5
stop_server
expect 0 volume check image --key-file key
serve image --discard
kill_server
expect 0 volume check image --key-file key

section "what has nothing to give back is refused"
expect 0 volume create other --unfilled --size 4M --key-file key
before=$(sha256_of other)
expect 2 volume serve other --key-file key --socket socket-2 --discard
check "why" grep -q "needs all of its space" err
check "it is as it was" [ "$(sha256_of other)" = "$before" ]
expect 2 volume serve image --key-file key --socket socket-2 --discard --read-only
expect 0 volume create hidden --deniable --size 8M --key-file key
expect 2 volume serve hidden --deniable --key-file key --socket socket-2 --discard

if ! can_mount; then
    leave_out "mounts and devices: they need root, FUSE and loop devices"
    exit 0
fi

section "mounted"
expect 0 volume create image --force --scheme sq --size 24M --key-file key
mkdir photos
mounts=("$scratch/photos")
expect 0 volume mount-helper image photos -o "key-file=$scratch/key,image-discard"
echo text >photos/file
check "it is smaller: $(taken image) of $whole" less_than 4 5
expect 0 volume unmount photos
expect 0 volume check image --key-file key
expect 2 volume mount other photos --key-file key --discard

section "a device"
truncate --size 64M disk
head --bytes 64M /dev/zero | tr '\0' x >disk
device=$(losetup --find --show disk)
loops+=("$device")
expect 0 volume create "$device" --scheme sq --size 24M --key-file key --force
full=$(taken disk)
serve "$device" --discard
check "what is below it is smaller: $(taken disk) of $full" [ $((full - $(taken disk))) -gt 8000 ]
nbd fill 100 5
nbd flush
expect 0 nbd refused 100 5
stop_server
expect 0 volume check "$device" --key-file key
losetup --detach "$device"
