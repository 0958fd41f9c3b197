# dm-crypt beside volumes, on the same disk and in turn: 1 MiB requests, one after the other, past
# the page cache. Only the ratios mean anything, and only inside this machine without a real CPU,
# where the authentication that dm-crypt does not do costs most. So plain, the control, is there.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source /lib.sh

ROUNDS=3
MIB=16

# MB/s of 1 MiB reads or writes: what, device.
speed() {
    local from=/dev/zero to=$2 flag=oflag
    if [ "$1" = read ]; then
        from=$2 to=/dev/null flag=iflag
    fi
    sync
    dd if="$from" of="$to" bs=1M count="$MIB" "$flag=direct" 2>out
    # 67108864 bytes (67 MB, 64 MiB) copied, 0.5 s, 134 MB/s
    sed -n 's/.* copied, \([0-9.e-]*\) s,.*/\1/p' out |
        awk -v mib="$MIB" '{ printf "%.1f\n", mib * 1.048576 / $1 }'
}

median() {
    sort -n | sed -n "$(((ROUNDS + 1) / 2))p"
}

# dm-crypt on the second half of the disk, volumes on the first.
half=$(($(blockdev --getsz "$IMAGES") / 2))
secret=$(head -c 64 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
table="0 $half crypt aes-xts-plain64 $secret 0 $IMAGES $half"
quietly dmsetup create crypt --table "$table"
until_true test -b /dev/mapper/crypt

for scheme in plain $SCHEMES; do
    create "$IMAGES" "$MIB" "$scheme"
    serve "$IMAGES" --direct
    attach
    rm -f crypt.* volume.*
    for ((round = 0; round < ROUNDS; round++)); do
        for what in write read; do
            speed "$what" /dev/mapper/crypt >>"crypt.$what"
            speed "$what" "$device" >>"volume.$what"
        done
    done
    detach
    stop_server
    for what in write read; do
        crypt=$(median <"crypt.$what")
        volume=$(median <"volume.$what")
        ratio=$(awk -v volume="$volume" -v crypt="$crypt" 'BEGIN { printf "%.2f", volume / crypt }')
        say "$scheme over NBD, $what: $ratio of dm-crypt ($volume of $crypt MB/s)"
    done
done
remove_mapping crypt
