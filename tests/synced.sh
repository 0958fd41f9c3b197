#!/usr/bin/env bash
# Volumes, gateways and hosts make durable what their answers rest on, by their system calls.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
traced=openat,/^rename,/^mkdir,write,pwrite64,sendto,sendmsg,fsync,fdatasync
tracer=(strace -f -qq -yy -s 0 -e "trace=$traced" -o)

# Traces a gateway on the new folder $1, which takes 1,500 values, into $1.trace.
trace_gateway() {
    local folder=$1
    shift
    "${tracer[@]}" "$folder.trace" "$traceless" gateway --local "$scratch/$folder/store" \
        --blocks 6000 --block-len 256 --lambda 8 --resp "127.0.0.1:$port" \
        --anchor "$scratch/anchors/$folder.anchor" --allow-simulated-tee "$@" \
        >"$folder.out" 2>"$folder.err" &
    server=$!
    until grep -q RESP "$folder.out"; do
        kill -0 "$server" 2>/dev/null || fail "no gateway: $(cat "$folder.err")"
        sleep 0.05
    done
    seq 1500 | sed 's/.*/SET name& value&/' | redis-cli -p "$port" >"$folder.answers"
    check "all were taken" test "$(grep -c '^OK' "$folder.answers")" -eq 1500
    # The tracer ends with what it traces.
    pkill -TERM -P "$server"
    wait "$server" || fail "the gateway ended with $?"
}

synced() {
    python3 "$lib/synced.py" "$@"
}

if ! strace -f -qq -o /dev/null true 2>/dev/null; then
    leave_out "what is durable before an answer: programs cannot be traced here"
    exit
fi

section "what a command on a volume wrote is durable when it ends"
image=$scratch/volume/image
anchor=$scratch/anchors/anchor
mkdir volume anchors
head --bytes 32 /dev/urandom >other
keys=(--key-file "$scratch/key")
# Traces the command $2... on the volume, and leaves out the syncs of each file and folder in turn;
# $1 is its name.
command_is_durable() {
    local command=$1 left_out
    shift
    expect 0 "${tracer[@]}" "$command.trace" "$traceless" "$@"
    expect 0 synced command "$command.trace"
    for left_out in $(grep -o -E 'f(data)?sync\([0-9]+<[^>]*>' "$command.trace" |
        sed -E 's/.*\///; s/>//' | sort -u); do
        expect 1 synced command "$command.trace" --without 'f*sync' "$left_out"
        echo "        $command without $left_out: $(cat out)"
    done
}
command_is_durable create volume create "$image" --size 4M "${keys[@]}" --anchor "$anchor"
command_is_durable add volume keys add "$image" "${keys[@]}" --new-key-file "$scratch/other"
command_is_durable remove volume keys remove "$image" "${keys[@]}" --slot 1
command_is_durable grow volume grow "$image" "${keys[@]}" --anchor "$anchor" --size 8M
command_is_durable backup volume header backup "$image" "${keys[@]}" --file "$scratch/volume/backup"

section "what a server of a volume wrote is durable when it answers a flush"
"${tracer[@]}" serve.trace "$traceless" volume serve "$image" "${keys[@]}" --anchor "$anchor" \
    --socket socket 2>err &
server=$!
until [ -S socket ] && nbd probe 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || fail "no server: $(cat err)"
    sleep 0.05
done
nbd fill 20 3
nbd flush
pkill -KILL -P "$server"
wait "$server" 2>/dev/null || true
expect 0 synced command serve.trace
for file in image anchor; do
    expect 1 synced command serve.trace --without fdatasync "$file"
done

section "each sync of a gateway comes before what rests on it"
trace_gateway power
expect 0 synced gateway power.trace
cat out

section "each one that is left out is noticed"
for left_out in "fdatasync state.*" "fdatasync places.log" "fdatasync *.nodes" "fsync *.new" \
    "fsync power" "fsync store" "fsync gateway" "fsync state" "fsync host" \
    "fdatasync *.anchor" "fsync anchors"; do
    expect 1 synced gateway power.trace --without "${left_out% *}" "${left_out#* }"
    echo "        $left_out: $(cat out)"
done

section "nodes before the host's log is durable are noticed"
# No program does that, and a log without its sync is noticed at its mark.
printf '1 pwrite64(3</made/%s>, ""..., 100, 20000) = 100\n' places.log inner.nodes >nodes.trace
expect 1 synced gateway nodes.trace
check "$(cat out)" grep -q "nodes before .*places.log" out

section "a gateway that promises less syncs less"
trace_gateway process --durability process
expect 1 synced gateway process.trace
