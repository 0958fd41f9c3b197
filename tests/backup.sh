#!/usr/bin/env bash
# Backups of a cloud store: from one tree into another, of another shape and in another place.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
head -c 32 /dev/urandom >key
head -c 32 /dev/urandom >other-key
options=(--allow-simulated-tee --durability process --enclave inside)
old=("${options[@]}" --local old --key-file key --blocks 6000 --block-len 256 --lambda 8)
tree=("${options[@]}" --blocks 3000 --block-len 1K --lambda 4)
new=("${tree[@]}" --local new --key-file key)
ask() {
    redis-cli -p "$port" "$@"
}

section "a gateway has values of many lengths, some of which expire"
start_service gateway RESP "$traceless" gateway "${old[@]}" --resp "127.0.0.1:$port"
for number in $(seq 300); do
    echo "set name$number $(head -c $((number * 7)) /dev/zero | tr '\0' "$((number % 10))")"
done | ask >answers
check "values are kept" test "$(grep -c OK answers)" -eq 300
ask set gone soon px 1 >/dev/null
ask set later kept ex 100000 >/dev/null
expect 5 "$traceless" gateway backup "${old[@]}" --to backup
check "a gateway that runs is not backed up" test ! -e backup -a ! -e backup.partial
check "it must end first" grep -q "end that one first" err
kill -KILL "$started"
wait "$started" || true

section "it is backed up into one file"
"$traceless" gateway backup "${old[@]}" --to backup >out 2>err
check "what is in it is said" grep -q "backed up: 30[12] names" out
check "only its owner can read it" test "$(stat -c %a backup)" = 600
check "nothing else is left" test ! -e backup.partial
if grep -q "name17" backup; then
    fail "a name can be read in the file"
fi
expect 2 "$traceless" gateway backup "${old[@]}" --to backup
check "no file is replaced" grep -q "exists already" err

section "nothing is restored from a damaged file, under another key, or without room"
for at in 3 10 50 5000; do
    cp backup damaged
    printf '\377' | dd of=damaged bs=1 seek="$at" conv=notrunc status=none
    ! cmp --quiet backup damaged ||
        printf '\0' | dd of=damaged bs=1 seek="$at" conv=notrunc status=none
    code=0
    "$traceless" gateway restore "${new[@]}" --from damaged >out 2>err || code=$?
    check "a changed byte $at is refused" test "$code" -ne 0
done
head -c 70000 backup >damaged
expect 4 "$traceless" gateway restore "${new[@]}" --from damaged
expect 4 "$traceless" gateway restore "${tree[@]}" --local other --key-file other-key --from backup
expect 4 "$traceless" gateway restore "${options[@]}" --local small --key-file key --blocks 100 \
    --lambda 4 --from backup
expect 4 "$traceless" gateway restore "${new[@]}" --from missing

section "it is restored into another tree"
"$traceless" gateway restore "${new[@]}" --from backup --verify >out 2>err
check "the file is sound" grep -q "^sound: 30[12] names" out
"$traceless" gateway restore "${new[@]}" --from backup >out 2>err
check "what was restored is said" grep -q "^restored: 30[12] names" out
expect 2 "$traceless" gateway restore "${new[@]}" --from backup
start_service gateway RESP "$traceless" gateway "${new[@]}" --resp "127.0.0.1:$port"
for number in $(seq 300); do
    echo "get name$number"
done | ask >found
for number in $(seq 300); do
    head -c $((number * 7)) /dev/zero | tr '\0' "$((number % 10))"
    echo
done >wanted
check "all values are as they were" cmp wanted found
check "one that expires does so at its time" test "$(ask ttl later)" -gt 90000
check "one that has expired is gone" test -z "$(ask get gone)"
stop_service

section "with its state in an engine, a gateway that was killed is backed up after its lease"
engine=$((port + 1))
start_service redis '.*Ready' redis-server --port "$engine" --save '' --appendonly no
redis=$started
leased=("${options[@]}" --key-file key --lease 2 --store "redis://127.0.0.1:$engine/"
    --state "redis://127.0.0.1:$engine/?store=state" --blocks 3000 --block-len 256 --lambda 4)
start_service gateway RESP "$traceless" gateway "${leased[@]}" --resp "127.0.0.1:$port"
for number in $(seq 50); do
    ask set "name$number" "value$number" >answers
    check "it is answered" grep -q OK answers
done
expect 5 "$traceless" gateway backup "${leased[@]}" --to leased
check "one that runs must end first" grep -q "end that one first" err
check "it runs on" test "$(ask get name50)" = value50
kill -KILL "$started"
wait "$started" || true
expect 0 "$traceless" gateway backup "${leased[@]}" --to leased
check "the wait is said" grep -q "until its lease has run out" err
check "every answered value is in it" grep -q "backed up: 50 names" out
expect 0 "$traceless" gateway restore --local from-leased "${tree[@]}" --key-file key --from leased
check "and comes back" grep -q "restored: 50 names" out
start_service gateway RESP "$traceless" gateway "${leased[@]}" --resp "127.0.0.1:$port"
check "the gateway goes on" test "$(ask get name50)" = value50
stop_service
kill "$redis"
