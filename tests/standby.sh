#!/usr/bin/env bash
# Gateways that stand by for each other, with their state in a storage engine: who answers, who
# waits, and that nothing is lost.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
engine=$((port + 1))
proxy=$((port + 2))
lease=2
tree=(--blocks 6000 --block-len 256 --lambda 8 --allow-simulated-tee --lease "$lease")
head -c 32 /dev/urandom >key

mkdir redis
start_service redis '.*Ready' redis-server --port "$engine" --dir redis --save '' --appendonly yes
redis=$started
stores=(--state "redis://127.0.0.1:$engine/?store=state" --store "redis://127.0.0.1:$engine/")

# The command of the gateway $1, with the key $2 [default: key].
gateway() {
    gateway=("$traceless" gateway "${tree[@]}" --key-file "$scratch/${2:-key}"
        --resp "127.0.0.1:$((port + 10 + $1))" --metrics "127.0.0.1:$((port + 20 + $1))")
}

# Asks the gateway $1.
ask() {
    redis-cli -p "$((port + 10 + $1))" "${@:2}" 2>&1 || true
}

# Waits until the gateway $1 answers.
wait_for() {
    local begin=$SECONDS
    until [ "$(ask "$1" ping)" = PONG ]; do
        [ $((SECONDS - begin)) -le 20 ] || fail "gateway $1 does not answer"
        sleep 0.1
    done
}

is_ready() {
    fetch "http://127.0.0.1:$((port + 20 + $1))/healthz" >/dev/null 2>&1
}

section "no answered write is lost by killing gateways, hosts, enclaves and the engine's server"
for kind in redis postgres s3; do
    mkdir "$kind-killed"
    check "$kind and its checker agree" env GATEWAYS=2 \
        python3 "$lib/kills.py" "$traceless" "$scratch/$kind-killed" "${KILLS:-8}" 3 "$kind"
done

section "what cannot work is said"
gateway 1
state=(--state "redis://127.0.0.1:$engine/?store=state")
expect 2 "$traceless" gateway "${tree[@]}" "${stores[@]}"
check "a key is needed" grep -q -- --key-file err
expect 2 "${gateway[@]}" "${state[@]}"
check "and a place for the tree" grep -q -- "--host or --store" err
same=redis://127.0.0.1:$engine/
expect 2 "${gateway[@]}" --state "$same" --store "$same"
check "and a name for the state" grep -q "store=NAME" err
expect 2 "${gateway[@]}" "${stores[@]}" --s3 "127.0.0.1:$((port + 3))"
check "and keys of S3" grep -q -- --s3-keys err
expect 2 "${gateway[@]}" --state folder
check "a state in a folder needs a host" grep -q -- --host err
expect 2 "${gateway[@]}" "${stores[@]}" --lease 0

section "one gateway answers, and another one takes its place"
mkdir home
start_service one RESP env -C home HOME="$scratch/home" TMPDIR="$scratch/home" \
    strace -f -qq -o "$scratch/calls" -e trace=openat,open,creat,mkdir,rename,link,symlink \
    "${gateway[@]}" "${stores[@]}"
one=$(pgrep -P "$started" -f traceless | head -1)
traced=$started
gateway 2
start_service two "standing by" "${gateway[@]}" "${stores[@]}"
two=$started
for number in $(seq 500); do
    echo "set name$number value$number"
done | ask 1 >answers
check "values are kept" test "$(grep -c OK answers)" -eq 500
check "the first is ready" is_ready 1
check "the second is not" eval '! is_ready 2'
check "and does not listen" grep -q "Connection refused" <(ask 2 ping)
if grep -E 'O_CREAT|creat\(|mkdir|rename|link' calls | grep -v /dev/; then
    fail "the gateway has written a file"
fi
check "the gateway's folder is empty" test -z "$(ls home)"
begin=$SECONDS
kill -TERM "$one"
wait "$traced"
wait_for 2
check "at once, if the first one ends in order" test $((SECONDS - begin)) -le 3
check "with all values" test "$(ask 2 get name500)" = value500
for number in $(seq 500); do
    echo "get name$number"
done | ask 2 >answers
check "each of them" diff answers <(seq -f value%g 500)
gateway 1
start_service one "standing by" "${gateway[@]}" "${stores[@]}"
one=$started
begin=$SECONDS
kill -KILL "$two"
wait "$two" || true
wait_for 1
check "after its lease, if it is killed" test $((SECONDS - begin)) -le $((lease + 4))
check "with all values" test "$(ask 1 get name1)" = value1

section "a gateway that stood still has lost its state, and says nothing old"
gateway 2
start_service two "standing by" "${gateway[@]}" "${stores[@]}"
two=$started
check "a value is written" test "$(ask 1 set name1 old)" = OK
kill -STOP "$one"
wait_for 2
check "the other one has it" test "$(ask 2 get name1)" = old
check "and changes it" test "$(ask 2 set name1 new)" = OK
kill -CONT "$one"
answer=$(ask 1 get name1)
check "the first one does not answer ($answer)" test "$answer" != old
code=0
wait "$one" || code=$?
check "it ends, and says why" test "$code" -eq 5
check "in its log" grep -q "another gateway" one.err
check "the other one goes on" test "$(ask 2 get name1)" = new

section "a gateway that cannot reach its state does not answer from memory"
kill -TERM "$two"
wait "$two"
python3 "$lib/proxy.py" "$proxy" "$engine" &
network=$!
sleep 0.5
gateway 1
start_service one RESP "${gateway[@]}" --store "redis://127.0.0.1:$engine/" \
    --state "redis://127.0.0.1:$proxy/?store=state"
one=$started
check "a value is written" test "$(ask 1 set name1 before)" = OK
gateway 2
start_service two "standing by" "${gateway[@]}" "${stores[@]}"
two=$started
kill -STOP "$network"
wait_for 2
check "the other one changes it" test "$(ask 2 set name1 after)" = OK
answer=$(timeout 3 redis-cli -p "$((port + 11))" get name1 2>&1 || true)
check "the first one does not answer ($answer)" test "$answer" != before
for _ in $(seq 100); do
    ! grep -q "storage engine is away" one.err || break
    sleep 0.1
done
check "the engine is reported" grep -q "storage engine is away" one.err
kill -CONT "$network"
code=0
wait "$one" || code=$?
check "it ends when the network is back" test "$code" -eq 5
check "nothing has changed" test "$(ask 2 get name1)" = after

section "another key and a damaged state are refused"
head -c 32 /dev/urandom >other
gateway 1 other
expect 1 "${gateway[@]}" "${stores[@]}"
check "the key is doubted" grep -q -- "--key-file" err
kill -TERM "$two"
wait "$two"
gateway 1
for piece in $(redis-cli -p "$engine" keys '{state:*'); do
    redis-cli -p "$engine" setrange "$piece" 30 damaged >/dev/null
done
expect 1 "${gateway[@]}" "${stores[@]}"
check "nothing was changed" grep -q "nothing was changed" err
kill "$network" "$redis"
