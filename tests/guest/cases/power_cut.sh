# Power cuts: below the image is dm-flakey, which from some moment on drops every write and says
# that it was done. What ext4 had synced before must be there afterwards.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source /lib.sh

ROUNDS=3
up="flakey $IMAGES 0 1000000 0"
# No second up, one down: down for ever.
down="flakey $IMAGES 0 0 1 1 drop_writes"
disk=/dev/mapper/power

for scheme in $SCHEMES; do
    : >sums
    make_mapping power "$up"
    create "$disk" 48 "$scheme"
    serve "$disk"
    attach
    make_ext4
    for ((round = 1; round <= ROUNDS; round++)); do
        quietly mount -t ext4 "$device" /mnt
        write_synced $((10 * round)) $((10 * round + 9))
        write_unsynced 10
        change_mapping power "$down"
        # Nobody notices: these seem to be synced too.
        for ((number = 0; number < 5; number++)); do
            dd if=/dev/urandom of="/mnt/late.$number" bs=4k count=16 conv=fsync status=none || true
        done
        kill_server
        abandon
        # With the last user of the disk goes what the page cache holds of it.
        remove_mapping power
        echo 3 >/proc/sys/vm/drop_caches
        make_mapping power "$up"
        serve "$disk"
        attach
        check_recovered sums late.0
    done
    detach
    stop_server
    quietly traceless volume check "$disk" --key-file key --progress=none
    remove_mapping power
    say "$scheme: $(wc -l <sums) files whole after $ROUNDS power cuts"
done
