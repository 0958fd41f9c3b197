#!/usr/bin/env bash
# The cloud store's host and enclave as processes of their own.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
listen=127.0.0.1:$((port + 1))
tree=(--blocks 6000 --block-len 256 --lambda 8)
host=("$traceless" host --listen "$listen" --store file:tree)
gateway=("$traceless" gateway "${tree[@]}" --resp "127.0.0.1:$port" --host "$listen"
    --host-cert tree/host.pem)
allowed=--allow-simulated-tee

ask() {
    redis-cli -p "$port" "$@"
}

# The enclaves' processes of the process $1.
enclaves_of() {
    cat "/proc/$1/task/"*/children
}

section "a host, and a gateway that knows its certificate"
start_service host "host at" "${host[@]}"
serving=$started
expect 2 "${gateway[@]}" --state state
check "it says why" grep -q "protects nothing" err
cp tree/host.pem other.pem
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=other \
    -keyout other.key -out other.pem 2>/dev/null
expect 2 "$traceless" gateway "${tree[@]}" --resp "127.0.0.1:$port" --host "$listen" \
    --host-cert other.pem --state state "$allowed"
start_service gateway RESP "${gateway[@]}" --state state "$allowed"
older=$started
check "the evidence says what it is" grep -q "simulated, in a process" gateway.err
check "a value is kept" test "$(ask set name value)" = OK
check "a transaction is answered as a whole" diff <(printf 'OK\nQUEUED\nQUEUED\nOK\n2\n') \
    <(printf 'multi\nset number 1\nincr number\nexec\n' | redis-cli -p "$port")
check "a watched name that was changed ends one" diff <(printf 'OK\nOK\nOK\nQUEUED\n\n') \
    <(printf 'watch number\nset number 3\nmulti\nset number 4\nexec\n' | redis-cli -p "$port")

section "only gateways that say who they are come from a network, and all speak TLS 1.3"
expect 2 "$traceless" host --listen "0.0.0.0:$((port + 4))" --store file:other
check "it says what to do" grep -q "give --client-ca, or listen on" err
check "nothing was begun" test ! -e other
tls() {
    openssl s_client -connect "$listen" -CAfile tree/host.pem "$1" </dev/null >tls.out 2>&1
}
check "TLS 1.3" tls -tls1_3
expect 1 tls -tls1_2

section "the enclave's process can do nothing but compute"
enclave=$(enclaves_of "$serving")
# One process, so one word.
check "it is confined" grep -q "^Seccomp:.2" "/proc/${enclave% }/status"
check "it has its sockets, its memory and no file" \
    test "$(find "/proc/${enclave% }/fd" -lname '/*' ! -lname '/dev/null*' ! -lname '/memfd:*' \
        ! -lname "$scratch/*.err" | wc -l)" -eq 0
kill -KILL "${enclave% }"
check "another takes its place" test "$(ask set second value)" = OK

section "of two gateways the newer has the store"
expect 5 "${gateway[@]}" --state state "$allowed"
cp -r state copy
start_service newer RESP "$traceless" gateway "${tree[@]}" --resp "127.0.0.1:$((port + 2))" \
    --host "$listen" --host-cert tree/host.pem --state copy "$allowed"
newer=$started
check "the newer has the values" test "$(redis-cli -p $((port + 2)) get name)" = value
for question in "exists name" "strlen name" dbsize "scan 0" "ttl name" "get name" "set name 1"; do
    # shellcheck disable=SC2086  # words of a command
    check "the older says that it is out: $question" \
        grep -q "another gateway" <(ask $question 2>&1)
done
kill "$newer" "$older"
wait "$newer"
wait "$older" || true
expect 5 "${gateway[@]}" --state state "$allowed"
check "it says why" grep -q "another gateway" err

section "nothing outlives its host"
start_service newer RESP "${gateway[@]}" --state copy "$allowed"
newer=$started
enclave=$(enclaves_of "$serving")
kill -KILL "$serving"
for _ in $(seq 100); do
    [ -d "/proc/${enclave% }" ] || break
    sleep 0.02
done
check "the enclave is gone with it" test ! -d "/proc/${enclave% }"
start_service host "host at" "${host[@]}"
serving=$started
check "the gateway goes on" test "$(ask get name)" = value
kill "$newer"
wait "$newer"
kill "$serving"
wait "$serving"

section "no answered write is lost by killing gateway, host and enclave"
mkdir killed
check "the store and its checker agree" \
    python3 "$lib/kills.py" "$traceless" "$scratch/killed" "${KILLS:-20}"
mkdir beating
check "with a constant rate, too" \
    python3 "$lib/kills.py" "$traceless" "$scratch/beating" "${KILLS:-12}" 2 file \
        --rate fixed=1500/s

section "a constant rate"
# Low, so that ticks are kept while other programs use the processors, too.
rate=100
metrics=127.0.0.1:$((port + 3))
for wrong in 100 fixed=100 fixed=0/s fixed=200000/s; do
    expect 2 "${gateway[@]}" --state steady "$allowed" --rate "$wrong"
done
# The old one belongs to another gateway.
rm -r tree
start_service host "host at" "${host[@]}"
serving=$started
start_service gateway RESP "${gateway[@]}" --state steady "$allowed" --rate "fixed=$rate/s" \
    --copies 100K --metrics "$metrics"
steady=$started

# A counter of the gateway.
counted() {
    fetch "http://$metrics/metrics" | sed -n "s/^$1 //p"
}

# Queries that are sent in three seconds, while $1... runs.
sent_during() {
    local before after
    before=$(counted traceless_queries_total)
    timeout 3 "$@" >during.out 2>&1 || true
    after=$(counted traceless_queries_total)
    echo $((after - before))
}

most=$((rate * 4))
idle=$(sent_during sleep 3)
check "idle, $idle queries in 3 s" [ "$idle" -ge $((rate * 2)) -a "$idle" -le "$most" ]
hits=$(sent_during redis-benchmark -p "$port" -q -n 100000000 -t get,set -d 100)
check "with hits, $hits" [ "$hits" -ge $((rate * 2)) -a "$hits" -le "$most" ]
misses=$(sent_during redis-benchmark -p "$port" -q -n 100000000 -r 4000 -t set -d 100 -c 8)
check "with misses, $misses" [ "$misses" -ge $((rate * 2)) -a "$misses" -le "$most" ]
check "slots are used for what is missing" \
    [ "$(counted 'traceless_slots_total{use="block"}')" -ge "$rate" ]
check "values are there" test "$(ask set name steady)" = OK
check "and are read" test "$(ask get name)" = steady
kill "$steady"
wait "$steady"
kill "$serving"
wait "$serving"
