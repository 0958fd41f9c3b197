#!/usr/bin/env bash
# The live page of a volume and of a gateway: in a browser, for Prometheus, and closed to others.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

nbd_uri='nbd+unix:///?socket=socket'

# Sets `url`, `address` and `token` to what the command with the messages $1 has printed.
find_page() {
    local line="traceless: the dashboard is at "
    for _ in $(seq 100); do
        ! has_line "$1" "$line" || break
        sleep 0.1
    done
    url=$(sed -n "s/^$line//p" "$1")
    address=${url%%/#*}
    address=${address##*/}
    token=${url#*token=}
}

# The status, or with a second argument what an expression over the text `t` says, of the path $1.
get() {
    python3 - "http://$address$1" "${token-}" "${host-$address}" "${2:-status}" <<'GET'
import json, re, sys, urllib.error, urllib.request

url, token, host, expression = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}", "Host": host}
try:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as reply:
        status, t = reply.status, reply.read().decode()
except urllib.error.HTTPError as error:
    status, t = error.code, ""
metric = lambda name: float(re.search(f"^traceless_{re.escape(name)} (.*)$", t, re.M)[1])
used = lambda places: sum(n > 0 for n in places)
print(eval(f"({expression})"))
GET
}

# Waits until an expression over the metrics holds.
wait_for() {
    for _ in $(seq 300); do
        [ "$(get /metrics "$1")" != True ] || break
        sleep 0.1
    done
}

# The audit's state, for a reader of a failure.
audit() {
    get /adversary.json 'json.loads(t)["audit"]'
}

# Whether the most used place of the user is in the hot megabyte, and few are used nearly as much.
are_in_one_place() {
    [ "$(get /user.json '(lambda p: p.index(max(p)) > 16 and
        sum(3 * n > max(p) for n in p) <= 8)(json.loads(t)["places"][0])')" = True ]
}

# Whether the audit beside the product has found nothing, in $1 or more checks.
is_clean() {
    [ "$(get /adversary.json '(lambda audit: audit["verdict"] == "nothing_found" and
        audit["in_turn"] + audit["draws"] >= '"$1"')(json.loads(t)["audit"])')" = True ]
}

section "a volume is served with its page"
head -c 32 /dev/urandom >key
expect 0 volume create image --size 32M --key-file key
serve image --dashboard 127.0.0.1:0
find_page server.err
check "the address is printed" [ -n "$url" ]
# It says nothing else, and stop_server sees to that.
: >server.err

section "nothing without the token, or under a foreign name"
for path in /adversary.json /user.json /metrics; do
    check "$path" [ "$(get $path)" = 200 ]
    check "$path without the token" [ "$(token='' get $path)" = 401 ]
    check "$path with a wrong token" [ "$(token=${token%?}x get $path)" = 401 ]
    check "$path under a foreign name" [ "$(host=evil.example get $path)" = 421 ]
done
check "the page under a foreign name" [ "$(host=evil.example:80 get /)" = 421 ]
for options in "0.0.0.0:0" "127.0.0.1:0 --dashboard-password-file image" "nowhere.invalid:1"; do
    read -ra words <<<"$options"
    rm -f socket2
    code=2
    [ "${words[0]}" != nowhere.invalid:1 ] || code=4
    expect "$code" volume serve image --key-file key --socket socket2 --dashboard "${words[@]}"
done

section "what was copied is counted"
head -c 8M /dev/urandom >data
before=$(get /metrics 'metric("adversary_bytes_total{op=\"write\"}")')
nbdcopy --flush data "$nbd_uri"
check "the user's bytes" \
    [ "$(get /metrics 'metric("user_bytes_total{op=\"write\"}") == 8 << 20')" = True ]
check "and latencies" [ "$(get /metrics 'metric("user_request_seconds_count{op=\"write\"}") ==
    metric("user_requests_total{op=\"write\"}") > 0')" = True ]
check "the adversary's bytes: two blocks for one, and tags" [ "$(get /metrics "2.0 < \
    (metric('adversary_bytes_total{op=\"write\"}') - $before) / (8 << 20) < 2.3")" = True ]
check "the volume itself" [ "$(get /metrics 'metric("volume_writes")')" = 2048.0 ]

section "a user with a hot spot, in a browser"
fio --name=hot --ioengine=nbd --uri="$nbd_uri" --bs=4k --rw=randrw --rwmixread=30 \
    --offset=12M --size=256K --time_based --runtime=30 --rate=2m >fio.log 2>&1 &
writer=$!
mkdir pictures
if command -v chromedriver >/dev/null; then
    check "the page" python3 "$lib/dashboard_page.py" "$url" "$PWD/pictures" >page.log
    [ -z "${PICTURES:-}" ] || cp pictures/*.png page.log "$PICTURES"
else
    leave_out "the page in a browser: chromedriver is needed"
    sleep 3
fi
kill -INT "$writer"
wait "$writer" || true
# As much as the volume holds, to the same few blocks.
fio --name=hot --ioengine=nbd --uri="$nbd_uri" --bs=4k --rw=randwrite --offset=12M --size=256K \
    --io_size=32M --iodepth=4 >fio.log 2>&1
check "the user's accesses are in one place" [ "$(get /user.json \
    'used(json.loads(t)["places"][0]) <= 3')" = True ]
check "the adversary's are everywhere" [ "$(get /adversary.json \
    'used(json.loads(t)["places"][1]) > 100')" = True ]
check "the audit beside it has found nothing" is_clean 2000
check "nor do metrics report a leak" [ "$(get /metrics 'metric("audit_leak") == 0 and
    metric("audit_writes_in_turn_total") > 2000 and
    metric("audit_writes_out_of_turn_total") == 0')" = True ]
check "the adversary's side has nothing of the user" [ "$(get /adversary.json \
    '{"latencies", "in_flight", "readings"} & json.loads(t).keys()')" = "set()" ]
stop_server

for options in "--scheme sq" "--scheme ring" "--scheme hive" "--scheme datalair --map disk"; do
    section "a volume of another scheme, and its audit: $options"
    read -ra words <<<"$options"
    expect 0 volume create other --size 16M --key-file key "${words[@]}" --force
    serve other --dashboard 127.0.0.1:0
    find_page server.err
    : >server.err
    fio --name=hot --ioengine=nbd --uri="$nbd_uri" --bs=4k --rw=randwrite --offset=4M \
        --size=256K --io_size=16M --iodepth=4 --fsync=64 >fio.log 2>&1
    audit
    check "it has found nothing" is_clean 100
    stop_server
done

section "a gateway is served with its page"
port=$((20000 + RANDOM % 12000))
"$traceless" gateway --local store --blocks 6000 --block-len 256 --lambda 8 --enclave inside \
    --allow-simulated-tee --resp "127.0.0.1:$port" --dashboard 127.0.0.1:0 \
    >gateway.out 2>gateway.err &
gateway=$!
find_page gateway.err
for _ in $(seq 100); do
    ! grep -q RESP gateway.out || break
    sleep 0.1
done
seq 1500 | sed 's/.*/set name& value/' | redis-cli -p "$port" >/dev/null
for _ in 1 2 3; do
    check "a value is answered" [ "$(redis-cli -p "$port" get name7)" = value ]
done
check "requests, their latencies, and the gateway's own metrics" [ "$(get /metrics \
    'metric("user_requests_total{op=\"read\"}") >= 3 and
    metric("user_request_seconds_count{op=\"read\"}") == 3 and
    metric("adversary_events_total{op=\"write\"}") > 0 and metric("queries_total") > 100')" = True ]
audit
check "the audit of the leaves has found nothing" is_clean 1024
check "values for people" [ "$(get /user.json 'len(json.loads(t)["readings"]) >= 8')" = True ]
check "a closed page" [ "$(token=x get /metrics)" = 401 ]
kill -TERM "$gateway"
check "it ends" wait "$gateway"

section "a mounted volume has its page, too"
if can_mount; then
    expect 0 volume create mounted --size 32M --key-file key
    mkdir mnt
    mounts+=("$scratch/mnt")
    expect 0 volume mount mounted mnt --key-file key --dashboard 127.0.0.1:0
    cp err mount.err
    find_page mount.err
    check "its requests" [ "$(get /metrics \
        'metric("user_requests_total{op=\"write\"}") > 0')" = True ]
    check "a closed page" [ "$(token=x get /metrics)" = 401 ]
    expect 0 umount mnt
else
    leave_out "a mounted volume: root, FUSE and loop devices are needed"
fi

# The program's own interpreter: a wrapper of it may be a script that forks.
python=$(python3 -c 'import sys; print(sys.executable)')
cat >hot.py <<'HOT'
import os
import time

data = bytearray(24 << 20)
end = time.monotonic() + 60
while not os.path.exists("stop") and time.monotonic() < end:
    for at in range(18 << 20, 19 << 20, 4096):
        data[at] = 1
HOT
for options in "--scheme detwo" "--mode process" "--scheme eager-parallel" "--scheme ring"; do
    section "a paged program has its page: $options"
    rm -f stop
    read -ra words <<<"$options"
    "$traceless" run --resident 64 --memory 64M "${words[@]}" --dashboard 127.0.0.1:0 \
        -- "$python" -I -S hot.py >run.out 2>run.err &
    program=$!
    find_page run.err
    wait_for 'metric("user_requests_total{op=\"write\"}") > 20000'
    check "faults, pages that left, and their latencies" [ "$(get /metrics \
        'metric("user_requests_total{op=\"write\"}") > 20000 and metric("pager_programs") == 1 and
        metric("pager_evictions") >= 20000 and
        metric("user_request_seconds_count{op=\"read\"}") >= 20000')" = True ]
    # However long the program has run meanwhile.
    # The beginning of Python touches ten places, thousands of times.
    for _ in $(seq 100); do
        ! are_in_one_place || break
        sleep 0.25
    done
    check "the program's pages are in one place: $(get /user.json 'json.loads(t)["places"][0]')" \
        are_in_one_place
    check "the store's are everywhere" [ "$(get /adversary.json \
        'used(json.loads(t)["places"][1]) > 120')" = True ]
    audit
    check "the audit beside it has found nothing" is_clean 10000
    check "a closed page" [ "$(token=x get /metrics)" = 401 ]
    touch stop
    check "it ends as ever" wait "$program"
done
expect 2 "$traceless" run --dashboard 0.0.0.0:0 -- "$python" hot.py

section "a simulated machine has its page"
"$traceless" sim trace zipf:1 --scheme path --length 3000K --dashboard 127.0.0.1:0 \
    >sim.out 2>sim.err &
program=$!
find_page sim.err
wait_for 'metric("adversary_events_total{op=\"write\"}") > 100000'
check "requests, and lines on the bus" [ "$(get /metrics \
    'metric("adversary_events_total{op=\"read\"}") >
    metric("user_requests_total{op=\"read\"}") > 0')" = True ]
audit
check "the audit of the leaves has found nothing" is_clean 1024
check "spaces" [ "$(get /adversary.json 'json.loads(t)["space"] >= 1 << 30')" = True ]
kill -TERM "$program"
wait "$program" || true
