# The kernel's NBD client on a volume: ext4, a second attachment, and the death of the server.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source /lib.sh

for scheme in $SCHEMES; do
    create image 48 "$scheme"
    serve image
    attach
    make_ext4
    quietly mount -t ext4 "$device" /mnt
    cp -r /modules /cases /mnt/
    sync
    : >sums
    (cd /mnt && find . -type f -exec sha256sum {} +) >sums
    quietly umount /mnt
    check_ext4
    detach
    stop_server

    serve image
    attach
    check_recovered sums
    quietly mount -t ext4 "$device" /mnt
    write_synced 1 20
    write_unsynced 20
    kill_server
    abandon

    serve image
    attach
    check_recovered sums
    detach
    stop_server
    say "$scheme: $(wc -l <sums) files whole after kill -9 of the server"
done
