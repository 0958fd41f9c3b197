#!/usr/bin/env bash
# Volumes, gateways in a folder and in an engine, and a backup, that earlier versions left
# (tests/goldens/make.sh) open, hold what was written, take more, and open again.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

is_volume() {
    local image=$1 nth
    expect 0 volume check "$image" --key-file key --json
    expect_json traceless.volume.check.v1 sound
    serve "$image"
    for ((nth = 0; nth < 8; nth++)); do
        check "block $nth" nbd verify "$((4096 * nth))" "$((1 + nth))"
    done
    check "it can be written" nbd fill 16 1001
    stop_server
    serve "$image"
    check "it holds that" nbd verify 28672 1008
    stop_server
}

# is_gateway OPTIONS...: of its state and tree.
is_gateway() {
    local gateway port round nth wanted
    for round in 1 2; do
        "$traceless" gateway "$@" --allow-simulated-tee --resp 127.0.0.1:0 \
            >gateway.out 2>gateway.err &
        gateway=$!
        until has_line gateway.out "RESP at"; do
            kill -0 "$gateway" || fail "the gateway: $(cat gateway.err)"
            sleep 0.05
        done
        port=$(sed -n 's/^RESP at .*:\([0-9]*\)$/\1/p' gateway.out)
        for ((nth = 0; nth < 20; nth++)); do
            wanted=$(printf "%0$((40 * nth + 1))d" "$nth")
            [ "$nth" -ne 3 ] || wanted=
            [ "$nth $round" != "4 2" ] || wanted=new
            check "name $nth" [ "$(redis-cli -p "$port" get "name $nth")" = "$wanted" ]
        done
        check "a name is set" [ "$(redis-cli -p "$port" set "name 4" new)" = OK ]
        kill -TERM "$gateway"
        wait "$gateway" || fail "the gateway: $(cat gateway.err)"
    done
}

# later FILE AT NUMBER: the file with another number of its format, as a later version would have
# written it, with contents that this one does not know.
later() {
    printf '%s\377' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# What a version has left that is not known here is refused with advice, and stays.
is_refused_later() {
    local file=$1 options=(--local gateway --blocks 64 --block-len 256 --allow-simulated-tee)
    cp -r gateway whole
    later "$file" 7 9
    sha256sum "$file" >sum
    expect 4 "$traceless" gateway "${options[@]}" --resp 127.0.0.1:0
    check "it says what to do" grep -q "has format 0*9.*upgrade this program" err
    expect 4 "$traceless" gateway backup "${options[@]}" --to backup
    check "a backup says so, too" grep -q "upgrade this program" err
    case $file in
        */state.*)
            expect 4 "$traceless" gateway check --local gateway
            expect 4 "$traceless" gateway repair --local gateway --accept-loss
            check "a repair does not give it up" grep -q "upgrade this program" err
            ;;
    esac
    check "it stays as it is" sha256sum --check --quiet sum
    rm -rf gateway
    mv whole gateway
}

for golden in "$root"/tests/goldens/*.tar.xz; do
    section "$(basename "$golden" .tar.xz)"
    rm -rf ./*.img gateway engine key backup
    tar --extract --xz --file "$golden"
    case $golden in
        */gateway.*)
            for file in gateway/gateway/state/state.* gateway/host/places.log; do
                is_refused_later "$file"
            done
            is_gateway --local gateway --blocks 64 --block-len 256
            ;;
        */engine.*)
            port=$((20000 + RANDOM % 12000))
            start_service redis '.*Ready' redis-server --port "$port" --dir engine --save ''
            redis=$started engine=redis://127.0.0.1:$port/
            is_gateway --state "$engine?store=state" --store "$engine" --key-file key \
                --lease 1 --blocks 64 --block-len 256 --lambda 4
            kill "$redis"
            wait "$redis" || true
            ;;
        */backup.*)
            tree=(--blocks 200 --block-len 1K --key-file key)
            cp backup later
            later later 8 "$(printf '\2')"
            expect 4 "$traceless" gateway restore --local gateway "${tree[@]}" \
                --allow-simulated-tee --from later
            check "a later backup is refused" grep -q "upgrade this program" err
            expect 0 "$traceless" gateway restore --local gateway "${tree[@]}" \
                --allow-simulated-tee --from backup
            is_gateway --local gateway "${tree[@]}"
            ;;
        *) is_volume ./*.img ;;
    esac
done
