#!/usr/bin/env bash
# Volumes, a gateway's folder and its backup that earlier versions left (tests/goldens/make.sh)
# open, hold what was written, take more, and open again.
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

# is_gateway OPTIONS...: of its tree.
is_gateway() {
    local gateway port round nth wanted
    for round in 1 2; do
        "$traceless" gateway --local gateway "$@" --allow-simulated-tee --resp 127.0.0.1:0 \
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

for golden in "$root"/tests/goldens/*.tar.xz; do
    section "$(basename "$golden" .tar.xz)"
    rm -rf ./*.img gateway key backup
    tar --extract --xz --file "$golden"
    case $golden in
        */gateway.*) is_gateway --blocks 64 --block-len 256 ;;
        */backup.*)
            tree=(--blocks 200 --block-len 1K --key-file key)
            expect 0 "$traceless" gateway restore --local gateway "${tree[@]}" \
                --allow-simulated-tee --from backup
            is_gateway "${tree[@]}"
            ;;
        *) is_volume ./*.img ;;
    esac
done
