# A volume as a block device of the kernel: ext4, stops while it is in use, the death of the server.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source /lib.sh

# Makes the device: image, then options. Sets `device` and `server`.
attach_ublk() {
    : >device.out
    traceless volume ublk "$1" --key-file key "${@:2}" >device.out 2>server.err &
    server=$!
    until_true grep -q /dev/ublkb device.out
    device=$(cat device.out)
    until_true test -b "$device"
}

gone() {
    [ ! -b "$device" ]
}

for scheme in $SCHEMES; do
    : >sums
    create "$IMAGES" 48 "$scheme"
    attach_ublk "$IMAGES"
    make_ext4
    quietly mount -t ext4 "$device" /mnt
    write_synced 1 20
    kill -TERM "$server"
    until_true grep -q 'in use' server.err
    write_synced 21 25
    : >server.err
    quietly umount /mnt
    check_ext4
    offered=$(cat "/sys/block/$(basename "$device")/queue/discard_max_bytes")
    if [ "$scheme" = detwo ]; then
        [ "$offered" -gt 0 ] || fail "discards are not offered"
        quietly mount -t ext4 "$device" /mnt
        quietly fstrim /mnt
        quietly umount /mnt
        check_ext4
    else
        [ "$offered" -eq 0 ] || fail "discards are offered"
    fi
    stop_server
    until_true gone

    attach_ublk "$IMAGES" --read-only
    quietly mount -t ext4 -o ro "$device" /mnt
    check_sums sums
    quietly umount /mnt
    if dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct status=none 2>/dev/null; then
        fail "a read-only device was written"
    fi
    stop_server
    until_true gone

    attach_ublk "$IMAGES"
    quietly mount -t ext4 "$device" /mnt
    write_synced 26 35
    write_unsynced 20
    kill_server
    umount /mnt 2>/dev/null || umount -l /mnt
    until_true gone
    attach_ublk "$IMAGES"
    check_recovered sums
    stop_server
    device=
    say "$scheme: $(wc -l <sums) files whole after kill -9 of the server"
done
