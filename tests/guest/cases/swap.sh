# Swapping to a volume: files in memory, twice as large as it, stay whole through rounds of reading
# and rewriting. Slots of the image that are put back are refused.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source /lib.sh

# Seconds of rewriting with each scheme.
SECONDS_OF_LOAD=${SECONDS_OF_LOAD:-30}
# MiB of a file.
FILE_MIB=16
# A control group, files, the memory that they may take, a swap and its image for replays, in MiB.
GROUP=/sys/fs/cgroup/replay
REPLAY_FILES=8
REPLAY_MEMORY=48
REPLAY_SWAP=192
REPLAY_IMAGE=400

in_use() {
    grep -q "^$device " /proc/swaps
}

gone() {
    [ ! -b "$device" ]
}

# Swaps to the image: scheme, then options. Sets `device` and `server`.
swap_to_image() {
    : >device.out
    traceless volume swap "$IMAGES" --force --scheme "$1" --priority 7 --progress=none "${@:2}" \
        >device.out 2>server.err &
    server=$!
    until_true grep -q /dev/ublkb device.out
    device=$(cat device.out)
    until_true in_use
}

end_swap() {
    quietly umount /mnt
    stop_server
    until_true gone
    device=
}

mount_files() {
    quietly mount -t tmpfs -o size="$1m" tmpfs /mnt
}

# Writes the file $1 anew, and its sum beside the program.
write_file() {
    dd if=/dev/urandom bs=1M count="$FILE_MIB" status=none | tee "/mnt/$1" | sha256sum |
        cut -d ' ' -f 1 >"sum.$1"
}

is_whole() {
    [ "$(sha256sum <"/mnt/$1" | cut -d ' ' -f 1)" = "$(cat "sum.$1")" ]
}

# Writes the files of a replay, and sets `sums`. The group has only the writer: a program that loses
# a page of its own ends, and so do files beside.
write_replayed() {
    local nth
    for ((nth = 0; nth < REPLAY_FILES; nth++)); do
        sums[nth]=$(
            echo "$BASHPID" >"$GROUP/cgroup.procs"
            dd if=/dev/urandom bs=1M count="$FILE_MIB" status=none | tee "/mnt/$nth" | sha256sum
        )
    done
}

# An older copy of all slots is put back: a file is whole, or reading it fails.
replay() {
    local nth sums=() refused=0
    swap_to_image "$1" --size "${REPLAY_SWAP}M"
    mount_files $((2 * REPLAY_FILES * FILE_MIB))
    mkdir "$GROUP"
    echo "${REPLAY_MEMORY}M" >"$GROUP/memory.max"
    write_replayed
    dd if="$IMAGES" of="$LOG" bs=1M count="$REPLAY_IMAGE" skip=1 iflag=direct oflag=direct \
        status=none
    write_replayed
    write_replayed
    dd if="$LOG" of="$IMAGES" bs=1M count="$REPLAY_IMAGE" seek=1 iflag=direct oflag=direct \
        conv=notrunc status=none
    for ((nth = 0; nth < REPLAY_FILES; nth++)); do
        if cat "/mnt/$nth" >copy 2>/dev/null; then
            [ "$(sha256sum <copy)" = "${sums[nth]}" ] || fail "file $nth has older pages"
        else
            refused=$((refused + 1))
        fi
        rm -f copy
    done
    [ "$refused" -gt 0 ] || fail "nothing was put back"
    rm -f /mnt/*
    end_swap
    rmdir "$GROUP"
    say "$1: $refused of $REPLAY_FILES files refused after a replay"
}

# Files of twice the memory, which two programs read, and rewrite in part.
load() {
    local memory files rounds=0 end worker nth used workers=()
    memory=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
    files=$((2 * memory / FILE_MIB))
    swap_to_image "$1"
    mount_files $((3 * memory))
    for ((nth = 0; nth < files; nth++)); do
        write_file "$nth"
    done
    end=$(($(cut -d . -f 1 /proc/uptime) + SECONDS_OF_LOAD))
    while [ "$(cut -d . -f 1 /proc/uptime)" -lt "$end" ]; do
        for worker in 0 1; do
            for ((nth = worker; nth < files; nth += 2)); do
                is_whole "$nth" || exit 1
                [ $(((nth + rounds) % 6)) -gt 1 ] || write_file "$nth"
            done &
            workers[worker]=$!
        done
        wait "${workers[0]}" && wait "${workers[1]}" || fail "a file changed in round $rounds"
        rounds=$((rounds + 1))
    done
    used=$(awk -v device="$device" '$1 == device { print int($4 / 1024) }' /proc/swaps)
    [ "$used" -ge "$((memory / 2))" ] || fail "only $used MiB were swapped out"
    rm -f /mnt/*
    end_swap
    say "$1: $rounds rounds of $files files of $FILE_MIB MiB, $used MiB swapped out"
}

mkdir -p /sys/fs/cgroup
quietly mount -t cgroup2 none /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
for scheme in $SWAP_SCHEMES; do
    replay "$scheme"
    load "$scheme"
done
