#!/usr/bin/env bash
# A cloud store with its tree divided among hosts: what each has, what is refused, what is kept, and
# hosts that are added, and that are drained.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
tree=(--blocks 6000 --block-len 256 --lambda 8 --allow-simulated-tee)
front=(--resp "127.0.0.1:$port" --metrics "127.0.0.1:$((port + 1))")

ask() {
    redis-cli -p "$port" "$@"
}

# The address of the host $1.
address() {
    echo "127.0.0.1:$((port + 10 + $1))"
}

# Starts the host $1; its number goes to `hosts`.
hosts=()
start_host() {
    start_service "host$1" "host at" "$traceless" host --store "file:host$1" \
        --listen "$(address "$1")"
    hosts[$1]=$started
}

# Ends the host $1.
end_host() {
    kill "${hosts[$1]}"
    wait "${hosts[$1]}"
}

# The command of a gateway at the hosts $@, each with its certificate.
gateway_at() {
    gateway=("$traceless" gateway "${tree[@]}" "${front[@]}" --state state)
    local number
    for number in "$@"; do
        gateway+=(--host "$(address "$number")" --host-cert "host$number/host.pem")
    done
}

# Waits until the host $1 has $2 trees.
trees_at() {
    local tries
    for tries in $(seq 200); do
        if curl -s "http://127.0.0.1:$((port + 1))/metrics" | grep -q "trees{host=\"$1\"} $2"; then
            checks=$((checks + 1))
            return
        fi
        sleep 0.1
    done
    fail "host $1 has $2 trees after $tries tries"
}

write_values() {
    local number
    for number in $(seq 1000); do
        echo "set name$number $1$number"
    done | ask >answers
    check "values are kept" test "$(grep -c OK answers)" -eq 1000
}

check_values() {
    local number
    for number in $(seq 1000); do
        echo "get name$number"
    done | ask >found
    seq -f "$1%g" 1000 | cmp - found || fail "values are as they were written"
    checks=$((checks + 1))
}

# Whether the store of a folder has nodes: its files are long from the beginning, and have holes.
has_nodes() {
    [ "$(du -k "$1/nodes/leaf.nodes" | cut -f 1)" -gt 100 ]
}

section "a tree is divided among hosts"
for number in 0 1 2; do
    start_host "$number"
done
gateway_at 0 1 2
start_service gateway RESP "${gateway[@]}"
write_values value
check_values value
for number in 0 1 2; do
    check "host $number has its part" has_nodes "host$number"
done

section "hosts and gateway go away, and come back"
stop_service
start_service gateway RESP "${gateway[@]}"
serving=$started
check_values value
for number in 0 1 2; do
    kill -KILL "${hosts[$number]}"
    wait "${hosts[$number]}" || true
    start_host "$number"
    check_values value
done
kill "$serving"
wait "$serving"

section "hosts in another order, too few and too many of them are refused"
gateway_at 1 0 2
expect 4 "${gateway[@]}"
check "it says what to do" grep -q "in the same order" err
gateway_at 0 1
expect 2 "${gateway[@]}"
check "it says so" grep -q "name all of them" err
gateway_at 0 1 2
expect 2 "${gateway[@]}" --host-cert host0/host.pem
check "certificates are one, or one for each" grep -q "once for each --host" err

# Kilobytes on the disk of the hosts that had all trees.
room() {
    du -ck host0 host1 host2 | tail -n 1 | cut -f 1
}

is_room_freed() {
    local tries
    for tries in $(seq 100); do
        if [ "$(room)" -lt $(($1 * 9 / 10)) ]; then
            return
        fi
        sleep 0.1
    done
    echo "$(room) of $1 KB after $tries tries"
    return 1
}

section "at a constant rate no tree moves, and the host can be left out again"
start_host 3
gateway_at 0 1 2 3
start_service gateway RESP "${gateway[@]}" --rate fixed=200/s
trees_at 3 0
check "it says so" grep -q "no tree moves" gateway.err
stop_service
if has_nodes host3; then
    fail "a host without a tree has nodes"
fi
gateway_at 0 1 2
start_service gateway RESP "${gateway[@]}"
check_values value
stop_service

section "trees move to a host more, beside clients"
before=$(room)
gateway_at 0 1 2 3
start_service gateway RESP "${gateway[@]}"
check_values value
trees_at 3 2
check_values value
check "host 3 has its part" has_nodes host3
check "the old hosts have more room" is_room_freed "$before"
stop_service
gateway_at 0 1 2
expect 2 "${gateway[@]}"
check "all hosts are named from now on" grep -q "name all of them" err
gateway_at 0 1 2 3
start_service gateway RESP "${gateway[@]}"
check_values value
stop_service

section "a host is drained beside clients, and left out"
expect 2 "${gateway[@]}" --drain 1 --rate fixed=100/s
expect 2 "${gateway[@]}" --drain 4
start_service gateway RESP "${gateway[@]}" --drain 1
check_values value
trees_at 3 0
check_values value
stop_service
end_host 3
gateway_at 0 1 2
start_service gateway RESP "${gateway[@]}"
check_values value
stop_service

section "an old copy of a partition is refused"
start_service gateway RESP "${gateway[@]}"
check_values value
stop_service
end_host 1
cp -r host1 old
start_host 1
start_service gateway RESP "${gateway[@]}"
write_values other
stop_service
end_host 1
mv host1 newest
mv old host1
start_host 1
expect 1 "${gateway[@]}"
check "it says so" grep -q "one was put back" err
end_host 1
rm -r host1
mv newest host1
start_host 1
start_service gateway RESP "${gateway[@]}"
check_values other
stop_service
for number in 0 1 2; do
    end_host "$number"
done

section "a divided tree of one machine, with a copy of each part"
local=("$traceless" gateway "${tree[@]}" "${front[@]}" --local local)
expect 2 "${local[@]}" --store file:one --store file:other --copy file:copy
check "copies are one for each" grep -q "once for each --store" err
local+=(--store file:one --store file:other --copy file:one.copy --copy file:other.copy)
start_service gateway RESP "${local[@]}"
write_values local
stop_service
start_service gateway RESP "${local[@]}"
check_values local
stop_service
for part in one other one.copy other.copy; do
    check "$part is used" has_nodes "$part"
done

section "trees of one machine move to a store more"
local+=(--store file:third --copy file:third.copy)
start_service gateway RESP "${local[@]}"
trees_at 2 2
check_values local
stop_service
start_service gateway RESP "${local[@]}"
check_values local
stop_service
check "the copy has its part" has_nodes third.copy

section "no answered write is lost by killing gateway, hosts and enclaves"
mkdir killed
check "hosts and their checker agree" env HOSTS=3 \
    python3 "$lib/kills.py" "$traceless" "$scratch/killed" "${KILLS:-40}" 5
mkdir grown
check "trees move to new hosts meanwhile" env HOSTS=4 FIRST_HOSTS=1 \
    python3 "$lib/kills.py" "$traceless" "$scratch/grown" "${KILLS:-40}" 6
