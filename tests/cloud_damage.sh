#!/usr/bin/env bash
# Damaged slots of the cloud store: few values are lost, the rest is served, a scrub finds all.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
tree=(--local store --blocks 9000 --block-len 256 --lambda 8 --durability process
    --allow-simulated-tee)
values=6000

start() {
    start_service gateway RESP "$traceless" gateway "${tree[@]}" --resp "127.0.0.1:$port" "$@"
}

# Changes a byte at each of $1 random places of the other arguments, else of the nodes' files.
damage() {
    local files=("${@:2}")
    [ "$#" -gt 1 ] || files=(store/host/*.nodes)
    python3 - "$1" "${files[@]}" <<'DAMAGE'
import os, random, sys

count, files = int(sys.argv[1]), sys.argv[2:]
random.seed(count)
sizes = [os.stat(name).st_blocks and os.path.getsize(name) for name in files]
for _ in range(count):
    name = random.choices(files, sizes)[0]
    with open(name, "r+b") as file:
        at = random.randrange(os.path.getsize(name))
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 0x11]))
DAMAGE
}

# How many of the values are lost, and how many are missing. Any other one must be right.
read_all() {
    python3 - "$port" "$values" <<'READ'
import socket, sys

port, values = map(int, sys.argv[1:])
client = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
lost = missing = 0
for first in range(0, values, 100):
    names = [b"name%d" % n for n in range(first, first + 100)]
    words = b"".join(b"$%d\r\n%s\r\n" % (len(name), name) for name in names)
    client.write(b"*101\r\n$4\r\nMGET\r\n" + words)
    client.flush()
    assert client.readline() == b"*100\r\n"
    for name in names:
        line = client.readline()
        if line.startswith(b"-"):
            assert b"lost" in line, line
            lost += 1
        elif line == b"$-1\r\n":
            missing += 1
        else:
            value = client.read(int(line[1:]) + 2)[:-2]
            assert value == b"value-of-" + name, (name, value)
print(lost, missing)
READ
}

fill() {
    for number in $(seq 0 $((values - 1))); do
        echo "SET name$number value-of-name$number"
    done | redis-cli -p "$port" --pipe >fill.log
}

section "a store without damage"
start
check "it is filled" fill
check "all is there" [ "$(read_all)" = "0 0" ]
stop_service
expect 0 "$traceless" gateway scrub "${tree[@]}"
check "it says so" grep -q "sound: every slot" out
expect 0 "$traceless" gateway check --local store
cp -r store whole

for count in 1 10 100; do
    section "$count damaged places"
    rm -r store
    cp -r whole store
    damage "$count"
    start
    read -r lost missing <<<"$(read_all)"
    echo "  $lost of $values values are lost"
    check "no more than were damaged, and none without an error" \
        [ "$lost" -le "$count" -a "$missing" = 0 ]
    check "the same ones are lost when they are read again" [ "$(read_all)" = "$lost 0" ]
    stop_service
    start
    check "and after a restart" [ "$(read_all)" = "$lost 0" ]
    stop_service
    code=$((lost > 0))
    expect "$code" "$traceless" gateway check --local store --json
    check "the state knows them" \
        [ "$(python3 -c 'import json; print(len(json.load(open("out"))["lost"]))')" = "$lost" ]
done

section "a scrub finds what nobody has read"
rm -r store
cp -r whole store
damage 100
expect 1 "$traceless" gateway scrub "${tree[@]}" --json
cp out scrub.json
scrubbed() { python3 -c "import json; print(len(json.load(open('scrub.json'))['$1']))"; }
slots=$(scrubbed damaged_slots) lost=$(scrubbed lost)
echo "  100 places: $slots slots in use or not, $lost values lost"
check "most places are in nodes that were written" [ "$slots" -gt 20 -a "$slots" -le 100 ]
check "some values are lost" [ "$lost" -gt 0 -a "$lost" -le "$slots" ]
expect 1 "$traceless" gateway scrub "${tree[@]}"
check "the damage is replaced" grep -q ": 0 slots are damaged" err
check "the values are still named" [ "$(grep -c "^lost: 1 blocks of the value" out)" = "$lost" ]
start
check "clients get as many errors" [ "$(read_all)" = "$lost 0" ]
stop_service
expect 1 "$traceless" gateway repair --local store
check "nothing is removed unasked" grep -q -e "--accept-loss" err
expect 1 "$traceless" gateway repair --local store --accept-loss
check "it says how many" grep -q "$lost values and objects were removed" err
expect 0 "$traceless" gateway check --local store
expect 0 "$traceless" gateway scrub "${tree[@]}"
start
check "they are gone, and all others there" [ "$(read_all)" = "0 $lost" ]
check "they can be written again" fill
check "and read" [ "$(read_all)" = "0 0" ]
stop_service

section "a scrub beside clients, and its speed"
rm -r store
cp -r whole store
damage 100
metrics=$((port + 1))
start --scrub 500M --metrics "127.0.0.1:$metrics"
for _ in $(seq 200); do
    curl -s "http://127.0.0.1:$metrics/metrics" >metrics.txt
    ! grep -q "^traceless_damaged_slots_total $slots$" metrics.txt || break
    sleep 0.1
done
check "it finds as much" grep -q "^traceless_damaged_slots_total $slots$" metrics.txt
check "and what is lost" grep -q "^traceless_lost_blocks $lost$" metrics.txt
check "clients are served" [ "$(read_all)" = "$lost 0" ]
check "the log names nodes, and no value" grep -q "the scrub found damaged slots" gateway.err
check "no names in the log" bash -c '! grep -q name[0-9] gateway.err'
stop_service
bytes=$(python3 -c 'import json; print(json.load(open("scrub.json"))["bytes"])')
began=$SECONDS
expect 1 "$traceless" gateway scrub "${tree[@]}" --speed $((bytes / 3))
check "no faster than it may" [ $((SECONDS - began)) -ge 2 ]
expect 2 "$traceless" gateway scrub "${tree[@]}" --speed 0

section "a second copy heals"
rm -r store
cp -r whole store
copy=(--copy file:copy)
start "${copy[@]}"
wait_for_copy 1
check "values are kept beside it" fill
stop_service
damage 100
start "${copy[@]}"
check "no value is lost" [ "$(read_all)" = "0 0" ]
stop_service
expect 0 "$traceless" gateway check --local store
damage 60
damage 61 copy/nodes/*.nodes
expect 0 "$traceless" gateway scrub "${tree[@]}" "${copy[@]}" --json
cp out scrub.json
check "damaged slots are healed" [ "$(scrubbed healed_slots)" -gt 10 ]
check "and none is lost" [ "$(scrubbed damaged_slots)$(scrubbed lost)" = 00 ]
expect 0 "$traceless" gateway scrub "${tree[@]}" "${copy[@]}" --json
cp out scrub.json
check "then none is damaged" [ "$(scrubbed healed_slots)" = 0 ]
start "${copy[@]}"
wait_for_copy 1
stop_service
expect 0 "$traceless" gateway scrub "${tree[@]}"
check "the store is whole without it" grep -q "sound: every slot" out

section "a copy takes the place of a lost store"
mv store/host lost
expect 4 "$traceless" gateway "${tree[@]}" --resp "127.0.0.1:$port" "${copy[@]}"
check "an empty store does not replace its copy" grep -q "newer than the store" err
rm -r store/host
expect 0 "$traceless" gateway scrub "${tree[@]}" --store file:copy
check "the copy is whole, too" grep -q "sound: every slot" out
start --store file:copy --copy file:other
check "all values are in it" [ "$(read_all)" = "0 0" ]
wait_for_copy 1
stop_service

section "a copy on a disk that does not answer stops nothing, and is healed"
put_back() {
    fsfreeze --unfreeze mnt 2>/dev/null || true
}
if can_mount; then
    rm -r store
    cp -r whole store
    truncate --size 1G disk
    mkfs.ext4 -q disk
    mkdir mnt
    mounts+=("$scratch/mnt")
    mount --options loop disk mnt
    start --copy file:mnt/copy
    wait_for_copy 1
    fsfreeze --freeze mnt
    began=$SECONDS
    check "values are written" fill
    check "and read" [ "$(read_all)" = "0 0" ]
    check "soon" [ $((SECONDS - began)) -le 40 ]
    check "it is reported" grep -q "the second copy is behind.*does not answer" gateway.err
    fsfreeze --unfreeze mnt
    wait_for_copy 2
    stop_service
    rm -r store/host
    start --store file:mnt/copy
    check "all values are in it" [ "$(read_all)" = "0 0" ]
    stop_service
    umount mnt
else
    leave_out "a disk that does not answer: no loop device can be mounted"
fi
