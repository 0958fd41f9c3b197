#!/usr/bin/env bash
# A gateway and its host make durable what they rely on, by the system calls that they make.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

port=$((20000 + RANDOM % 12000))
traced=openat,/^rename,/^mkdir,write,pwrite64,sendto,sendmsg,fsync,fdatasync

# Traces a gateway on the new folder $1, which takes 1,500 values, into $1.trace.
trace() {
    local folder=$1
    shift
    strace -f -qq -yy -s 0 -e "trace=$traced" -o "$folder.trace" "$traceless" gateway \
        --local "$scratch/$folder/store" --blocks 6000 --block-len 256 --lambda 8 \
        --resp "127.0.0.1:$port" --allow-simulated-tee "$@" >"$folder.out" 2>"$folder.err" &
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

section "each sync comes before what rests on it"
trace power
expect 0 synced power.trace
cat out

section "each one that is left out is noticed"
for left_out in "fdatasync state.*" "fdatasync places.log" "fdatasync *.nodes" "fsync *.new" \
    "fsync power" "fsync store" "fsync gateway" "fsync state" "fsync host"; do
    expect 1 synced power.trace --without "${left_out% *}" "${left_out#* }"
    echo "        $left_out: $(cat out)"
done

section "a gateway that promises less syncs less"
trace process --durability process
expect 1 synced process.trace
