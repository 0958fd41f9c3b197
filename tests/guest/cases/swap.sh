# Swapping to a volume: files in memory, twice as large as it, stay whole through rounds of reading
# and rewriting. Slots of the image that are put back are refused.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source /lib.sh

# Seconds of rewriting with each scheme.
SECONDS_OF_LOAD=${SECONDS_OF_LOAD:-30}
# MiB of a file.
FILE_MIB=16

in_use() {
    grep -q "^$device " /proc/swaps
}

gone() {
    [ ! -b "$device" ]
}

# Writes the file $1 anew, and its sum beside the program.
write_file() {
    dd if=/dev/urandom bs=1M count="$FILE_MIB" status=none | tee "/mnt/$1" | sha256sum |
        cut -d ' ' -f 1 >"sum.$1"
}

is_whole() {
    [ "$(sha256sum <"/mnt/$1" | cut -d ' ' -f 1)" = "$(cat "sum.$1")" ]
}

memory=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
files=$((2 * memory / FILE_MIB))
for scheme in $SWAP_SCHEMES; do
    : >device.out
    traceless volume swap "$IMAGES" --force --scheme "$scheme" --priority 7 --progress=none \
        >device.out 2>server.err &
    server=$!
    until_true grep -q /dev/ublkb device.out
    device=$(cat device.out)
    until_true in_use
    quietly mount -t tmpfs -o size="$((3 * memory))m" tmpfs /mnt
    for ((nth = 0; nth < files; nth++)); do
        write_file "$nth"
    done
    rounds=0
    end=$(($(cut -d . -f 1 /proc/uptime) + SECONDS_OF_LOAD))
    while [ "$(cut -d . -f 1 /proc/uptime)" -lt "$end" ]; do
        for worker in 0 1; do
            for ((nth = worker; nth < files; nth += 2)); do
                is_whole "$nth" || exit 1
                [ $(((nth + rounds) % 6)) -gt 1 ] || write_file "$nth"
            done &
            workers[worker]=$!
        done
        wait "${workers[@]}" || fail "a file changed in round $rounds"
        rounds=$((rounds + 1))
    done
    used=$(awk -v device="$device" '$1 == device { print int($4 / 1024) }' /proc/swaps)
    [ "$used" -ge "$((memory / 2))" ] || fail "only $used MiB were swapped out"

    # An older copy of the slots is put back: files are whole, or reading them fails.
    dd if="$IMAGES" of="$LOG" bs=1M count=256 skip=1 iflag=direct oflag=direct status=none
    for ((nth = 0; nth < files; nth++)); do
        write_file "$nth"
    done
    dd if="$LOG" of="$IMAGES" bs=1M count=256 seek=1 iflag=direct oflag=direct conv=notrunc \
        status=none
    refused=0
    for ((nth = 0; nth < files; nth++)); do
        if sum=$(cat "/mnt/$nth" 2>/dev/null | sha256sum | cut -d ' ' -f 1) &&
            cat "/mnt/$nth" >/dev/null 2>&1; then
            [ "$sum" = "$(cat "sum.$nth")" ] || fail "file $nth has older pages"
        else
            refused=$((refused + 1))
        fi
    done
    [ "$refused" -gt 0 ] || fail "nothing was put back"
    quietly umount /mnt
    stop_server
    until_true gone
    device=
    say "$scheme: $rounds rounds of $files files of $FILE_MIB MiB, $used MiB swapped out," \
        "$refused files refused after a replay"
done
