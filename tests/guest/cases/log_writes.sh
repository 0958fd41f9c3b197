# Every request that the server sends to its disk is recorded by dm-log-writes, under ext4 with
# syncs. The record is then played back up to many points. At each the disk is one that a crash at
# that moment can leave: the volume must open, ext4 must recover, and what was synced must be there.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source /lib.sh

FILES=8
POINTS=6
disk=/dev/mapper/recorded

mark() {
    dmsetup message recorded 0 mark "$1"
}

# Opens a copy of the disk as it is at the point $1, when the first $2 files had been synced.
check_point() {
    cp base crashed
    serve crashed
    attach
    head -n "$2" sums >known
    if [ "$2" -gt 0 ]; then
        # The next one may have been on its way.
        check_recovered known "$(($2 + 2))"
    else
        quietly mount -t ext4 "$device" /mnt
        quietly umount /mnt
        check_ext4
    fi
    detach
    stop_server
    rm crashed
}

for scheme in $SCHEMES; do
    : >sums
    create "$IMAGES" 24 "$scheme"
    serve "$IMAGES"
    attach
    make_ext4
    detach
    stop_server
    size=$(traceless volume status "$IMAGES" --key-file key --json |
        sed -n 's/.*"image_bytes": *\([0-9]*\).*/\1/p')
    dd if="$IMAGES" of=base bs=1M count="$size" iflag=count_bytes status=none

    make_mapping recorded "log-writes $IMAGES $LOG"
    serve "$disk"
    attach
    quietly mount -t ext4 "$device" /mnt
    for ((number = 1; number <= FILES; number++)); do
        write_synced "$number" "$number"
        mark "$number"
        write_unsynced 2
    done
    quietly umount /mnt
    detach
    stop_server
    mark closed
    remove_mapping recorded

    xtask log-writes points "$LOG" "$POINTS" >points
    from=0
    while read -r to synced; do
        xtask log-writes replay "$LOG" base "$from" "$to"
        from=$to
        check_point "$to" "$synced"
    done <points
    rm base
    say "$scheme: $(wc -l <points) crash points out of $from writes, all recovered"
done
