#!/usr/bin/env bash
# The tree of a cloud store in Redis, PostgreSQL and S3: servers that are killed, and networks that
# fail.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
tree=(--blocks 6000 --block-len 256 --lambda 8 --allow-simulated-tee)
engine=$((port + 1))
proxy=$((port + 2))

start_redis() {
    mkdir -p redis
    start_service redis '.*Ready' redis-server --port "$engine" --dir redis --save '' \
        --appendonly yes "$@"
    redis=$started
}

ask() {
    redis-cli -p "$port" "$@"
}

section "no answered write is lost by killing gateway, host, enclave and the engine's server"
for kind in redis postgres s3; do
    mkdir "$kind-killed"
    check "$kind and its checker agree" \
        python3 "$lib/kills.py" "$traceless" "$scratch/$kind-killed" "${KILLS:-12}" 3 "$kind"
done

section "a primary that is killed is replaced by its sentinels, and no answered write is lost"
mkdir sentinel-killed
SLOWEST_MAX=10 python3 "$lib/kills.py" "$traceless" "$scratch/sentinel-killed" "${KILLS:-6}" 3 \
    sentinel | tee kills
check "a primary was killed" grep -q "'engine': [1-9]" kills

section "what cannot work is said"
local=("$traceless" gateway "${tree[@]}" --resp "127.0.0.1:$port" --local)
expect 2 "${local[@]}" gateway --store mysql://127.0.0.1/
check "the engines are named" grep -q "there are file, postgres, redis" err
expect 2 "${local[@]}" gateway --store "redis://127.0.0.1/?store=a*b"
expect 2 "$traceless" host --store redis://127.0.0.1/
check "a host has files of its own" grep -q -- --state err
echo "secret of redis" >password
start_redis --requirepass "secret of redis"
url=redis://127.0.0.1:$engine/
expect 4 "${local[@]}" gateway --store "$url"
check "a password is needed" grep -q "storage engine failed: .*NOAUTH" err
start_service gateway RESP "${local[@]}" gateway --store "$url" --store-password-file password
check "the password is accepted" test "$(ask set name value)" = OK
stop_service
if grep "secret of redis" gateway.err gateway.out; then
    fail "the password is in a message"
fi
kill "$redis"
wait "$redis" || true
rm -r redis
start_redis --maxmemory-policy allkeys-lru
expect 4 "${local[@]}" other --store "$url"
check "a Redis that forgets is refused" grep -q "noeviction" err
redis-cli -p "$engine" config set maxmemory-policy noeviction >/dev/null
redis-cli -p "$engine" config set appendonly no >/dev/null
start_service gateway RESP "${local[@]}" other --store "$url"
check "one that keeps nothing is a warning" grep -q "appendonly no" gateway.err
stop_service
kill "$redis"
wait "$redis" || true
rm -r redis gateway other
for place in redis://127.0.0.1/?replica=1 postgres://127.0.0.1/?sslmode=verify_full \
    rediss://127.0.0.1/?ssl_ca_certs=missing.pem redis+sentinel://127.0.0.1/; do
    expect 2 "${local[@]}" gateway --store "$place"
    check "it is said what is wrong with $place" grep -qE "replica=|verify-full|missing|SERVICE" err
done

section "a server is verified by TLS"
for own in server stranger; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=$own \
        -keyout $own-root.key -out $own-root.pem 2>/dev/null
done
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=server \
    -keyout server.key -out server.csr 2>/dev/null
openssl x509 -req -in server.csr -CA server-root.pem -CAkey server-root.key -CAcreateserial \
    -days 2 -extfile <(echo subjectAltName=IP:127.0.0.1) -out server.pem 2>/dev/null
start_redis --port 0 --tls-port "$engine" --tls-cert-file "$PWD/server.pem" \
    --tls-key-file "$PWD/server.key" --tls-auth-clients no --tls-ca-cert-file "$PWD/server-root.pem"
tls_url=rediss://127.0.0.1:$engine/?ssl_ca_certs=$PWD
expect 4 "${local[@]}" gateway --store "$tls_url/stranger-root.pem"
check "an unknown root is named as the reason" grep -q "none of the roots has signed it" err
start_service gateway RESP "${local[@]}" gateway --store "$tls_url/server-root.pem"
check "a known one lets the store be opened" test "$(ask set name value)" = OK
stop_service
kill "$redis"
wait "$redis" || true
rm -r redis gateway

section "of two hosts the newer has the store, and a gateway goes on with it"
start_redis
for number in 1 2; do
    start_service "host$number" "host at" "$traceless" host --store "$url" \
        --listen "127.0.0.1:$((port + 4 + number))" --state "state$number"
    declare "host$number=$started"
done
gateway=("$traceless" gateway "${tree[@]}" --resp "127.0.0.1:$port" --state gateway)
at() {
    echo --host "127.0.0.1:$((port + 4 + $1))" --host-cert "state$1/host.pem"
}
# shellcheck disable=SC2046  # words of a command
start_service gateway RESP "${gateway[@]}" $(at 1)
for number in $(seq 300); do
    echo "set name$number value$number"
done | ask >answers
check "values are kept" test "$(grep -c OK answers)" -eq 300
stop_service
# shellcheck disable=SC2046  # words of a command
start_service gateway RESP "${gateway[@]}" $(at 2)
for number in $(seq 300); do
    echo "get name$number"
done | ask >answers
check "the other host has them" diff answers <(seq -f value%g 300)
stop_service
# shellcheck disable=SC2046  # words of a command
start_service gateway RESP "${gateway[@]}" $(at 1)
check "the first host takes the store back" test "$(ask get name300)" = value300
check "and goes on" test "$(ask set name300 new)" = OK
cp -r gateway copy
stop_service
# shellcheck disable=SC2046  # words of a command
start_service gateway RESP "${gateway[@]}" $(at 2)
# shellcheck disable=SC2046  # words of a command
expect 5 "$traceless" gateway "${tree[@]}" --resp "127.0.0.1:$((port + 3))" --state copy $(at 1)
check "an older copy of the gateway is refused" grep -q "another gateway" err
check "the store is where it was" test "$(ask get name300)" = new
stop_service
# shellcheck disable=SC2154  # declared above
kill "$host1" "$host2"
wait "$host1" "$host2"

section "a network that closes or silences connections is overcome"
python3 "$lib/proxy.py" "$proxy" "$engine" &
network=$!
rm -r gateway
start_service gateway RESP "${local[@]}" local --cache 0 \
    --store "redis://127.0.0.1:$proxy/?store=local"
local_gateway=$started
for number in $(seq 3000); do
    echo "SET name$number value$number"
done | redis-cli -p "$port" --pipe >fill
check "most values are in the engine" grep -q "replies: 3000" fill
for sign in USR2 USR1; do
    kill "-$sign" "$network"
    begin=$SECONDS
    for number in $(seq 10); do
        check "a read is answered" test "$(ask get "name$number")" = "value$number"
        check "a write is answered" test "$(ask set "$sign$number" after)" = OK
    done
    check "soon" test $((SECONDS - begin)) -le 10
done
kill -STOP "$redis"
begin=$SECONDS
for number in $(seq 11 20); do
    ask get "name$number"
done >silent &
sleep 3
kill -CONT "$redis"
wait $!
check "a server that stands still for seconds is waited for" test $((SECONDS - begin)) -le 10
check "it is reported" grep -q "storage engine is away: waiting" gateway.err
check "and its return" grep -q "storage engine is back" gateway.err
check "and no client sees an error" diff silent <(seq -f value%g 11 20)
kill "$redis"
wait "$redis" || true
# Some values wait at the gateway and are there at once.
for number in $(seq 2000 2050); do
    ask get "name$number" >away
    ! grep -q TRYAGAIN away || break
done
check "a client is asked to try again" grep -q "^TRYAGAIN .*storage engine" away
start_redis
# A round that has failed meanwhile may be reported once.
for _ in $(seq 3); do
    ask get USR11 >back
    ! grep -q TRYAGAIN back || continue
    break
done
check "the store goes on" test "$(cat back)$(ask get name3000)" = aftervalue3000
kill "$started"
wait "$started" || true
rm -r redis

section "a second copy in an engine that goes away"
url="redis://127.0.0.1:$engine/?store=copy"
fill() {
    for number in $(seq 2000); do
        echo "SET name$number $1$number"
    done | redis-cli -p "$port" --pipe | grep -q "errors: 0, replies: 2000"
}
kill "$network" "$local_gateway"
wait "$network" "$local_gateway" || true
start_service gateway RESP "${local[@]}" mirrored --copy "$url"
mirrored=$started
check "a copy that is away stops nothing" test "$(ask set early value)" = OK
check "it is reported" grep -q "second copy is away" gateway.err
start_redis
wait_for_copy 1
check "values are written to both" fill first
kill -9 "$redis"
wait "$redis" || true
begin=$SECONDS
check "writes go on without the copy" fill second
check "soon" test $((SECONDS - begin)) -le 10
check "it is reported" grep -q "second copy is behind" gateway.err
start_redis
wait_for_copy 2
check "all of it is there" test "$(ask get name7) $(ask dbsize)" = "second7 2001"
kill -STOP "$redis"
begin=$SECONDS
check "a copy that does not answer stops no writes" fill third
check "for long" test $((SECONDS - begin)) -le 30
check "and no reads" test "$(ask get name7)" = third7
check "it is behind" test "$(grep -c "second copy is behind" gateway.err)" -ge 2
kill -CONT "$redis"
wait_for_copy 3
kill "$mirrored"
wait "$mirrored"
rm -r mirrored/host
start_service gateway RESP "${local[@]}" mirrored --store "$url"
for number in $(seq 2000); do
    echo "get name$number"
done | ask >answers
check "the copy takes the place of a lost store" diff answers <(seq -f third%g 2000)
stop_service
kill "$redis"
