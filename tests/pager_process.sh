#!/usr/bin/env bash
# Programs that another process pages: they may fork, and their keys are not theirs.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/paged.sh
source "$lib/paged.sh"

# From here on every program is paged by another process.
run() {
    "$traceless" run --mode process "$@"
}

only_where_allowed "5.19 or newer"
"$python" -c "print(*(n * 7919 % 20011 for n in range(1, 10001)), sep='\\n')" >numbers
head -n 2000 numbers >few

lacks() {
    ! grep --quiet --text "$1" "$2"
}

section "programs as they are"
for scheme in detwo eager-parallel; do
    most=15 same --resident 15 --memory 8M --scheme "$scheme" --refresh 7 -- sort numbers
done
for scheme in plain path-fused; do
    most=15 same --resident 15 --memory 8M --scheme "$scheme" -- sort numbers
done
most=15 same --resident 15 --policy random --cipher gcm -- sort -r numbers
same --resident 64 -- xz --threads=2 --block-size=4KiB -1 --stdout few
same --resident 24 -- "$python" "$lib/mappings.py"
gcc -O1 "$lib/mappings.c" -o mappings
most=16 same --resident 16 --memory 8M -- ./mappings
expect 0 run --resident 16 --memory 8M -- ./mappings more
check "what cannot be is refused" lacks ": 0" out
expect 2 run --way move -- true
expect 2 run --policy clock -- true
check "what takes the mode thread is refused" grep -q "mode process" err

section "all files are closed, and libraries loaded"
same_files_and_libraries

section "copies of the process"
if run -- sh -c '(true)' 2>err; then
    copies_of_the_process
    evictions=0 same --resident 16 -- bash -c 'a=$(ls / | wc -l); (echo "$a"); (exit 3) || echo $?'
else
    leave_out "copies of the process: $(cat err)"
fi

section "where programs run"
if run -- sh -c '(true)' 2>err; then
    same_places fork
else
    same_places
fi

section "large reads and writes, direct I/O"
head --bytes 8M /dev/urandom >random
evictions=0
run --resident 16 -- dd if=random iflag=direct bs=1M of=copy oflag=direct status=none 2>err
check "all arrives" cmp random copy
check "it is said that it is not direct" grep -q "through the cache" err

section "what is written tells nothing"
gcc -O1 "$lib/pages.c" -o pages
for secret in 1 2 3; do
    expect 0 run --resident 16 --trace "detwo.$secret" -- ./pages "$secret"
    "$python" "$lib/trace.py" writes "detwo.$secret" >"$secret.writes"
done
check "there is a trace" [ "$(wc -l <1.writes)" -gt 30000 ]
for secret in 1 2; do
    expect 0 run --resident 16 --scheme eager-parallel --trace helped -- ./pages "$secret"
    "$python" "$lib/trace.py" writes helped >helped.writes
    check "there is a trace" [ "$(wc -l <helped.writes)" -gt 30000 ]
    check "the same writes, whoever refreshes" cmp \
        "--bytes=$(stat --format %s helped.writes)" 1.writes helped.writes
done
check "the same writes" cmp 1.writes 2.writes
check "the same writes" cmp 1.writes 3.writes

section "the end of the pager, and of programs"
expect 7 run -- sh -c 'exit 7'
expect 137 run -- sh -c 'kill -KILL $$'
expect 127 run -- ./no-such-program
expect 125 run --backing /proc/none -- true
check "it is said why" grep -q "backing file" err
cat >endless.py <<'END'
import os, sys
area, n = bytearray(1 << 20), 0
if "fork" in sys.argv:
    os.fork()
print(os.getpid(), flush=True)
while True:
    for page in range(0, 1 << 20, 4096):
        if area[page] != n % 256:
            os.write(2, b"wrong data\n")
        area[page] = (n + 1) % 256
    n += 1
END
# Kills the pager of a program with these arguments after so long: all must end, and say why.
pager_is_killed() {
    local running pager pid code=0
    : >pids
    "$traceless" run --mode process --resident 15 -- "$python" endless.py "${@:2}" \
        >pids 2>killed.err &
    running=$!
    until [ "$(wc -l <pids)" -ge "${people:-1}" ]; do sleep 0.02; done
    sleep "$1"
    pager=$(pgrep --parent "$running" --full serve-pages)
    kill -KILL "$pager"
    wait "$running" || code=$?
    check "it ends with 125, not $code" [ "$code" -eq 125 ]
    check "it says why" grep -q "the pager has ended" killed.err
    check "nothing was wrong" lacks "wrong data" killed.err
    for pid in $(cat pids); do
        for _ in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.02
        done
        check "$pid is gone" gone "$pid"
    done
}
gone() {
    ! kill -0 "$1" 2>/dev/null
}
for after in 0.0 0.05 0.11 0.17 0.3; do
    pager_is_killed "$after"
done
if run -- sh -c '(true)' 2>err; then
    people=2 pager_is_killed 0.1 fork
fi
# Programs that outlive the first one are served on, and the pager ends with the last.
if run -- sh -c '(true)' 2>err; then
    programs_that_outlive_the_first
fi
