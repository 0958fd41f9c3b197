#!/usr/bin/env bash
# kill -9 of the server at random moments under writes and flushes. Afterwards each block is old or
# new and never mixed, and nothing that a flush acknowledged is lost. KILLS is how often.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

KILLS=${KILLS:-16}
BLOCKS=1024
RANDOM=${SEED:-$RANDOM}
# Options of the volumes, taken in turn; an option and its value are joined by =.
KINDS=(
    "" "--refresh=3 --map=disk" "--scheme=plain" "--refresh=1/3"
    "--scheme=sq" "--scheme=sq --map=disk" "--scheme=hive" "--scheme=datalair"
    "--scheme=ring"
)

# Waits a random time of at most so many milliseconds.
wait_up_to() {
    sleep "$(printf '0.%03d' $((RANDOM % $1)))"
}

# A server that is killed while it opens the volume, which means to recover it.
kill_while_opening() {
    "$traceless" volume serve "$1" --key-file key --socket socket 2>server.err &
    server=$!
    wait_up_to 60
    kill_server
}

section "$KILLS kills of servers of ${#KINDS[@]} volumes"
for kind in "${!KINDS[@]}"; do
    read -ra options <<<"${KINDS[kind]}"
    expect 0 volume create "image-$kind" --size "$((BLOCKS * 4096))" --key-file key "${options[@]}"
done
cp image-0 older
for ((round = 0; round < KILLS; round++)); do
    kind=$((round % ${#KINDS[@]}))
    if ((RANDOM % 3 == 0)); then
        kill_while_opening "image-$kind"
    fi
    serve "image-$kind"
    seed=$RANDOM
    : >writer.out
    python3 "$lib/nbd_writer.py" socket "state-$kind" "$BLOCKS" "$seed" >>writer.out 2>&1 &
    writer=$!
    until grep -q verified writer.out || ! kill -0 "$writer" 2>/dev/null; do sleep 0.02; done
    wait_up_to 900
    kill_server
    what="kill $((round + 1)), ${KINDS[kind]:-the default}"
    wait "$writer" || fail "$what, seed $seed: $(tail -n 3 writer.out)"
    checks=$((checks + 1))
    echo "        $what: $(tail -n 1 writer.out)"
done

section "everything once more, and a check of all that is live"
for kind in "${!KINDS[@]}"; do
    serve "image-$kind"
    expect 0 python3 "$lib/nbd_writer.py" socket "state-$kind" "$BLOCKS" verify
    stop_server
    expect 0 volume check "image-$kind" --key-file key
done

section "a planted loss: an older image must be noticed"
cp older image-0
serve image-0
expect 1 python3 "$lib/nbd_writer.py" socket state-0 "$BLOCKS" verify
check "told by its block" grep -q '^block .* holds write' err
stop_server
