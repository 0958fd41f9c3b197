#!/usr/bin/env bash
# The life of a volume: it grows, gets a new master key, is damaged and repaired.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

head --bytes 32 /dev/urandom >other-key

# Fills the first blocks of the image through a server.
fill_image() {
    serve image "${@:3}"
    nbd fill "$1" "$2"
    nbd flush
    stop_server
}

contents_of() {
    serve "$1" --read-only "${@:2}"
    nbd dump >raw
    stop_server
    sha256_of raw
}

# Runs `volume` with these arguments, and kills it after some hundredths of a second, again and
# again, each time a little later, until it comes to its end.
until_it_ends() {
    local pid code=137 wait_for=1
    killed=0
    while [ "$code" -eq 137 ]; do
        "$traceless" volume "$@" >out 2>err &
        pid=$!
        sleep "$(printf '0.%02d' "$wait_for")"
        kill -KILL "$pid" 2>/dev/null || true
        code=0
        wait "$pid" 2>/dev/null || code=$?
        [ "$code" -ne 137 ] || killed=$((killed + 1))
        wait_for=$((wait_for < 95 ? wait_for + 4 : 95))
    done
    if [ "$code" -ne 0 ]; then
        cat err >&2
        fail "ended with $code after it was killed $killed times"
    fi
}

section "grow: killed again and again, it goes on"
expect 0 volume create image --size 96M --key-file key --anchor anchor
expect 0 volume keys add image --key-file key --new-key-file other-key
fill_image 2000 7 --anchor anchor
before=$(contents_of image)
cp image old
until_it_ends grow image --size 160M --key-file key --anchor anchor --json
check "it was killed at least 3 times ($killed)" [ "$killed" -ge 3 ]
expect_json traceless.volume.grow.v1 scheme uuid blocks blocks_before image_bytes \
    generation writes copied resumed key_slots
check "blocks" [ "$(status_of image blocks)" = 40960 ]
check "permissions" [ "$(stat --format %a image)" = 600 ]
check "no file is left" [ ! -e image.rebuild ]
check "nor an anchor" [ ! -e anchor.new ]
expect 0 volume check image --key-file other-key --anchor anchor
contents_of image --anchor anchor >/dev/null
check "the same contents" [ "$(head --bytes 96M raw | sha256sum | cut -d ' ' -f 1)" = "$before" ]
check "zeros behind them" cmp --silent --ignore-initial=$((96 << 20)):0 \
    --bytes=$((64 << 20)) raw /dev/zero
cp image grown
cp old image
expect 4 volume check image --key-file key --anchor anchor
cp grown image
expect 0 volume check image --key-file key --anchor anchor
rm old grown

section "reencrypt: the same, and the old keys are gone"
before=$(contents_of image --anchor anchor)
cp image old
expect 3 volume reencrypt image --key-file key --anchor anchor
until_it_ends reencrypt image --key-file key --anchor anchor --drop-other-keys --json
check "it was killed at least 3 times ($killed)" [ "$killed" -ge 3 ]
expect_json traceless.volume.reencrypt.v1 scheme uuid blocks copied resumed key_slots
check "the same contents" [ "$(contents_of image --anchor anchor)" = "$before" ]
expect 3 volume status image --key-file other-key
expect 0 volume check image --key-file key --anchor anchor
cp image new
cp old image
expect 4 volume check image --key-file key --anchor anchor
# Neither header opens the other's areas.
dd if=new of=image bs=4096 count=16 conv=notrunc status=none
expect 1 volume check image --key-file key
mv new image
rm old

section "refused: wrong keys, sizes, volumes in use, what does not fit"
expect 3 volume grow image --size 200M --key-file other-key
expect 2 volume grow image --size 100M --key-file key
expect 0 volume grow image --size 160M --key-file key
expect 4 volume grow missing --size 1G --key-file key
serve image
expect 5 volume grow image --size 200M --key-file key
expect 5 volume reencrypt image --key-file key
stop_server
check "nothing was begun" [ ! -e image.rebuild ]
echo mine >image.rebuild
expect 4 volume reencrypt image --key-file key
check "what lies there stays" [ "$(cat image.rebuild)" = mine ]
expect 0 volume reencrypt image --key-file key --restart
check "it was overwritten" [ ! -e image.rebuild ]
"$traceless" volume reencrypt image --key-file key &
pid=$!
until [ -s image.rebuild ]; do sleep 0.01; done
kill -TERM "$pid"
expect 2 wait "$pid"
fill_image 1 9
expect 0 volume reencrypt image --key-file key --restart
expect 0 volume check image --key-file key

section "a full disk"
if [ "$(id -u)" -eq 0 ]; then
    mkdir full
    mount -t tmpfs -o size=8M none full
    mounts+=("$scratch/full")
    expect 0 volume create full/image --size 2M --key-file key
    expect 4 volume grow full/image --size 4M --key-file key
    check "it tells the space that is needed" grep -q 'needs [0-9]* bytes' err
    check "no file is left" [ "$(ls -A full)" = image ]
    expect 0 volume check full/image --key-file key
    umount full
fi
# Elsewhere the file may only become so large.
make_small() {
    rm -f small
    expect 0 volume create small --size 2M --key-file key
}
make_small
expect 4 bash -c "trap '' XFSZ; ulimit -f 5000; '$traceless' volume grow small --size 8M \
    --key-file key"
check "no file is left" [ ! -e small.rebuild ]
expect 0 volume check small --key-file key

section "into another place; a device"
make_small
sum=$(sha256_of small)
expect 0 volume grow small --size 4M --key-file key --into elsewhere
check "the old one is as it was" [ "$(sha256_of small)" = "$sum" ]
check "the new one is larger" [ "$(status_of elsewhere blocks)" = 1024 ]
expect 4 volume grow small --size 4M --key-file key --into elsewhere
expect 5 volume grow small --size 4M --key-file key --into small

section "what grow and reencrypt write tells nothing of what is there"
for which in a b; do
    make_small
    mv small image
    # One is full, the other has been written to a little, in another order.
    if [ $which = a ]; then fill_image 512 1; else fill_image 3 400; fi
    expect 0 volume grow image --size 3M --key-file key --trace grow-$which
    expect 0 volume reencrypt image --key-file key --trace reencrypt-$which
done
for what in grow reencrypt; do
    expect 0 "$traceless" audit compare $what-a $what-b --exact-order
done

section "check --repair: a superblock, blocks, an entry, an anchor"
# Flips bits of the image.
flip() {
    python3 - "$@" <<'END'
import sys
at, length = int(sys.argv[1]), int(sys.argv[2])
with open("image", "r+b") as file:
    file.seek(at)
    found = file.read(length)
    file.seek(at)
    file.write(bytes(byte ^ 1 for byte in found))
END
}
field() {
    python3 "$lib/fields.py" --get "$1" <out
}
expect 0 volume create image --force --size 1M --key-file key --anchor anchor --json
for first in 0 256; do
    fill_image 256 $first --anchor anchor
done
flip 70000 1
expect 1 volume check image --key-file key --json
check "one superblock" [ "$(field damaged)" = 1 ]
check "nothing is repaired unasked" [ "$(field repaired)" = None ]
expect 1 volume check image --key-file key --repair --json
check "it is repaired" [ "$(field repaired)" = true ]
expect 0 volume check image --key-file key --anchor anchor
# The body of a main slot that is live: slot 128, in the middle of the second round, behind two
# headers of 128 entries each.
main_area=$(python3 "$lib/trace.py" main-area image)
flip $((main_area + 2 * 4096 + 128 * 4096)) 64
expect 1 volume check image --key-file key --repair --json
expect_json traceless.volume.check.v1 sound writes damaged places repaired lost forgotten new_anchor
check "one block, with its bytes" python3 -c '
import json
lost = json.load(open("out"))["lost"]
assert len(lost) == 1 and lost[0]["at"] == lost[0]["block"] * 4096 and lost[0]["bytes"] == 4096'
expect 0 volume check image --key-file key --anchor anchor
# An entry of a live write: nobody knows what it held.
flip $((196608 + 64 * 20)) 64
expect 1 volume check image --key-file key
check "it says what can be done" grep -q 'accept-old-blocks' err
sum=$(sha256_of image)
expect 1 volume check image --key-file key --repair
check "nothing is done without that" [ "$(sha256_of image)" = "$sum" ]
expect 1 volume check image --key-file key --anchor anchor --repair --accept-old-blocks
check "it tells what is forgotten" grep -q '^forgotten: the write in slot 20 of the holding' out
expect 0 volume check image --key-file key --anchor anchor
expect 2 volume check image --key-file key --new-anchor
expect 2 volume check image --key-file key --accept-old-blocks
# The same of sq: in the log, whose slot 20 is of its last writes.
expect 0 volume create sq-image --scheme sq --size 1M --key-file key
mv image detwo-image
mv sq-image image
fill_image 64 5
flip $((196608 + 64 * 20 + 20)) 1
expect 1 volume check image --key-file key --repair
expect 1 volume check image --key-file key --repair --accept-old-blocks
check "it tells what is forgotten" grep -q '^forgotten: the write in slot 20 of the level 0' out
expect 0 volume check image --key-file key
mv detwo-image image
rm anchor
expect 4 volume check image --key-file key --anchor anchor
expect 0 volume check image --key-file key --anchor anchor --new-anchor
fill_image 3 1 --anchor anchor
expect 0 volume check image --key-file key --anchor anchor
echo mine >file
expect 4 volume check image --key-file key --anchor file --new-anchor
check "it is left alone" [ "$(cat file)" = mine ]

section "a block device that is in use is refused"
if can_mount; then
    truncate --size 64M disk
    device=$(losetup --find --show disk)
    loops+=("$device")
    mkfs.ext4 -q "$device"
    mkdir -p in-use
    mounts+=("$scratch/in-use")
    mount "$device" in-use
    expect 5 volume create "$device" --size 16M --key-file key --force
    check "its file system is as it was" mountpoint -q in-use
    umount in-use
    expect 0 fsck.ext4 -fn "$device"
    expect 0 volume create "$device" --size 16M --key-file key --force
    serve "$device"
    expect 5 volume serve "$device" --key-file key --socket other
    stop_server
    losetup --detach "$device"
else
    leave_out "block devices: they take root and loop devices"
fi
