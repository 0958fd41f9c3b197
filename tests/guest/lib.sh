# What the cases share. Each of them sources it first, and then works in a folder of its own in
# memory. Cases take down what they put up; when one fails, `clean` does what can be done.
# shellcheck shell=bash
set -Eeuo pipefail

# Nobody else makes nodes for mapped devices here.
export DM_DISABLE_UDEV=1

name=$(basename "$0" .sh)
scratch=/tmp/$name
mkdir -p "$scratch"
cd "$scratch"

# The disk for images and the one for a log of writes.
IMAGES=/dev/vda
LOG=/dev/vdb

server=
# The device that the volume is attached as, and the number of the next one: after the death of a
# server the kernel may keep a device for good.
device=
next_nbd=0

trap clean EXIT
trap 'say "FAILED in line $LINENO: $BASH_COMMAND"' ERR

say() {
    echo "$name: $*" >&3
}

fail() {
    say "FAILED: $*"
    exit 1
}

clean() {
    local status=$?
    trap '' ERR
    set +e
    if [ "$status" -ne 0 ] && [ -s server.err ]; then
        say "the server said: $(tail -n 5 server.err)"
    fi
    umount /mnt 2>/dev/null || umount -l /mnt 2>/dev/null
    if [ -n "$device" ]; then
        nbd-client -d "$device" >/dev/null 2>&1
    fi
    if [ -n "$server" ]; then
        kill -KILL "$server" 2>/dev/null
        wait "$server" 2>/dev/null
    fi
    dmsetup remove_all --force >/dev/null 2>&1
    cd /
    rm -rf "$scratch"
    exit "$status"
}

# Runs a command quietly, and tells what it said only if it fails.
quietly() {
    if ! "$@" >out 2>&1; then
        tail -n 20 out
        fail "$*"
    fi
}

# Waits, for 20 seconds, until a command succeeds.
until_true() {
    local tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 400 ] || fail "waited in vain for: $*"
        sleep 0.05
    done
}

# Makes a volume: image, MiB, scheme.
create() {
    head -c 32 /dev/urandom >key
    quietly traceless volume create "$1" --force --size "$2M" --scheme "$3" --key-file key \
        --progress=none
}

# Serves an image over NBD: image, then options.
serve() {
    rm -f socket
    traceless volume serve "$1" --key-file key --socket socket "${@:2}" 2>server.err &
    server=$!
    until_true test -S socket
}

# Attaches the volume that is served to the kernel's client. Sets `device`.
attach() {
    device=/dev/nbd$next_nbd
    next_nbd=$((next_nbd + 1))
    # The socket is there before anybody listens at it.
    until_true nbd-client -unix socket "$device" >out
    until_true has_size
}

has_size() {
    [ "$(blockdev --getsize64 "$device")" -gt 0 ]
}

detach() {
    quietly nbd-client -d "$device"
    device=
}

# SIGTERM closes the volume: the server must say nothing and exit with 0.
stop_server() {
    local code=0
    kill -TERM "$server"
    wait "$server" || code=$?
    server=
    if [ "$code" -ne 0 ] || [ -s server.err ]; then
        fail "the server ended with $code on SIGTERM: $(cat server.err)"
    fi
}

# As a crash does.
kill_server() {
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    server=
}

# Detaches what is mounted at /mnt after its server has died. Nothing reaches the image any more.
abandon() {
    umount /mnt 2>/dev/null || umount -l /mnt
    nbd-client -d "$device" >/dev/null 2>&1 || true
    device=
}

make_ext4() {
    quietly mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$device"
}

# A file system that was unmounted, or whose journal was replayed, has nothing to repair.
check_ext4() {
    quietly e2fsck -f -n "$device"
}

# Writes files of 4 KiB to 256 KiB and syncs each: first number, last number. Their sums go to
# `sums`, in order.
write_synced() {
    local number
    for ((number = $1; number <= $2; number++)); do
        dd if=/dev/urandom of="/mnt/$number" bs=4k count=$((1 + RANDOM % 64)) conv=fsync \
            status=none
        (cd /mnt && sha256sum "$number") >>sums
    done
}

# Writes files and leaves them in the page cache, as long as that works.
write_unsynced() {
    local number
    for ((number = 0; number < $1; number++)); do
        dd if=/dev/urandom of="/mnt/unsynced.$number" bs=4k count=32 status=none 2>/dev/null ||
            return 0
    done
}

# Checks every file whose sum is in the file $1.
check_sums() {
    [ -s "$1" ] || fail "no file was synced"
    (cd /mnt && sha256sum --check --quiet "$scratch/$1") || fail "a synced file was lost"
}

# A crashed file system that the kernel recovers by its journal: all that was synced must be there,
# and nothing may be left to repair. A file $2 must be missing, as it came after the crash.
check_recovered() {
    quietly mount -t ext4 "$device" /mnt
    check_sums "$1"
    if [ -n "${2:-}" ] && [ -e "/mnt/$2" ]; then
        fail "$2 is there, so nothing was cut off"
    fi
    quietly umount /mnt
    check_ext4
}

# A table of one line for the device mapper: name, then the target without its first two fields.
make_mapping() {
    local sectors
    sectors=$(blockdev --getsz "$IMAGES")
    quietly dmsetup create "$1" --table "0 $sectors ${*:2}"
    until_true test -b "/dev/mapper/$1"
}

# Puts another table in the place of one, without a chance for anybody to write in between.
change_mapping() {
    local sectors
    sectors=$(blockdev --getsz "$IMAGES")
    dmsetup suspend --noflush --nolockfs "$1"
    dmsetup load "$1" --table "0 $sectors ${*:2}"
    dmsetup resume "$1"
}

remove_mapping() {
    until_true dmsetup remove "$1"
}
