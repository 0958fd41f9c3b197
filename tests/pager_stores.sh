#!/usr/bin/env bash
# How much of the store of `traceless run` is used: all of it, as pages leave, or as there are more
# of them; in memory, and in a file.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/paged.sh
source "$lib/paged.sh"

gcc -O1 -Wall -Wextra -Werror "$lib/distinct.c" -o distinct
growths=(whole evictions pages)

section "the writes of programs with other numbers of pages"
for growth in "${growths[@]}"; do
    for pages in 300 3000; do
        expect 0 run --resident 16 --growth "$growth" --trace trace -- ./distinct $pages 6000
        check "its output" [ "$(cat out)" = right ]
        "$python" "$lib/trace.py" writes trace >"$growth.$pages"
    done
    check "there is a trace" [ "$(wc -l <"$growth.300")" -gt 30000 ]
done
# Neither how many pages there are shows, nor which, but where that is asked for.
for growth in whole evictions; do
    check "$growth: the same writes" cmp "$growth.300" "$growth.3000"
done
differ() {
    ! cmp --silent "$1" "$2"
}
check "pages: another number of pages, other writes" differ pages.300 pages.3000
check "the default is by evictions" run --resident 16 --trace trace -- ./distinct 300 6000
"$python" "$lib/trace.py" writes trace >default
check "the same writes" cmp default evictions.300

section "a store in memory"
# Kilobytes of the largest process, with what it has of memory without a name.
peak() {
    "$python" -c "
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)" "$@"
}
seq 1500000 >numbers
native=$(peak zstd -q -f -3 numbers -o packed)
mv packed expected
declare -A peaks
for growth in "${growths[@]}"; do
    peaks[$growth]=$(peak "$traceless" run --lock off --memory 1G --growth "$growth" -- \
        zstd -q -f -3 numbers -o packed)
    check "$growth: the same output" cmp packed expected
    echo "zstd: ${peaks[$growth]} KB with --growth $growth, $native KB natively"
done
check "pages: at most four times what it takes natively" \
    [ "${peaks[pages]}" -lt $((4 * native)) ]
check "and a sixth of a whole store" [ "${peaks[pages]}" -lt $((peaks[whole] / 6)) ]
check "evictions: less than a whole store" [ "${peaks[evictions]}" -lt $((peaks[whole] * 3 / 4)) ]

section "a store in a file"
taken() {
    du --block-size=1 "$1" | cut -f 1
}
# Bytes of the file system that the store takes in the end.
with_file() {
    expect 0 run --resident 16 --memory 1G --backing store "$@" -- ./distinct 3000 20000
    taken store
    rm store
}
whole=$(with_file)
check "its space is taken at once" [ "$whole" -gt $((1 << 30)) ]
for growth in evictions pages; do
    few=$(with_file --growth "$growth")
    echo "$few of $whole bytes with --growth $growth"
    check "$growth: it takes what it needs" [ "$few" -lt $((whole / 5)) ]
done
check "pages: little more than the pages" [ "$few" -lt $((3000 * 4096 * 3)) ]

section "programs work as without paging"
seq 200000 >numbers
for scheme in detwo parallel eager eager-parallel; do
    same --resident 16 --scheme "$scheme" --growth pages -- sort -r numbers
done
same --resident 64 --growth pages --refresh 5/2 --backing store -- sort numbers
rm store
if run --mode process -- true 2>err; then
    same --resident 64 --growth pages --mode process -- sort numbers
else
    leave_out "the mode process: $(cat err)"
fi
evictions=0 same --resident 128 --growth pages -- "$python" "$lib/forks.py"
same --resident 16 --memory 16M --growth pages -- ./distinct 3800 20000

section "what does not apply is refused"
expect 2 run --scheme plain --growth pages -- true
expect 2 run --refresh 1 --growth pages -- true
expect 2 run --pace fixed=100/s --growth pages -- true
check "it is said what to do" grep -q -e "--growth evictions" err

section "a network block device"
truncate --size 400M disk
export_url="nbd+unix:///pages?socket=$scratch/socket"
serve_disk() {
    qemu-nbd --persistent --shared 4 --format raw --export-name pages --socket "$scratch/socket" \
        "$@" disk &
    server=$!
    until nbdinfo "$export_url" >/dev/null 2>&1; do
        kill -0 "$server" || fail "the server has ended"
        sleep 0.05
    done
}
kill_disk() {
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    rm -f "$scratch/socket"
}
lacks() {
    ! grep --quiet --text "$1" "$2"
}
serve_disk
seq 30000 >few
same --resident 16 --backing "$export_url" -- sort -r few
same --resident 16 --memory 32M --scheme path-fused --backing "$export_url" -- ./distinct 3000 4000
same --resident 16 --memory 64M --growth pages --backing "$export_url" -- ./distinct 3000 8000
check "pages are in the export" [ "$(taken disk)" -gt $((40 << 20)) ]
check "but not what they hold" lacks 29999 disk
evictions=0 same --resident 64 --backing "$export_url" -- dash -c "(echo inside); true"
if run --mode process -- true 2>err; then
    same --resident 16 --mode process --backing "$export_url" -- ./distinct 3000 4000
fi
expect 0 run --scheme plain --backing "$export_url" -- true
check "it is said what the server observes" grep -q "observes which pages are read" err
expect 0 run --scheme path-fused --memory 8M --backing "$export_url" -- true
check "unless that is hidden" lacks "observes which pages are read" err
expect 2 run --scheme eager --backing "$export_url" -- true
expect 2 run --backing nbd://127.0.0.1:1/%zz -- true
expect 125 run --memory 1G --backing "$export_url" -- true
check "it is said what to do" grep -q "or less --memory" err
expect 125 run --backing "nbd+unix:///other?socket=$scratch/socket" -- true
check "it is said which" grep -q "/other?socket" err

section "a server that is killed"
run --resident 16 --memory 64M --backing "$export_url" "${lock[@]}" -- ./distinct 3000 20000 \
    >out 2>err &
running=$!
sleep 1
for _ in 1 2 3; do
    kill_disk
    sleep 0.5
    serve_disk
    sleep 0.5
done
check "the program goes on" kill -0 "$running"
wait "$running" || fail "it has failed: $(cat err)"
check "with its pages" [ "$(cat out)" = right ]

section "a server that changes pages"
run --resident 16 --memory 64M --backing "$export_url" "${lock[@]}" -- ./distinct 3000 40000 \
    >out 2>err &
running=$!
sleep 1
dd if=/dev/zero of=disk bs=1M count=80 conv=notrunc status=none
status=0
wait "$running" || status=$?
check "is found ($status)" [ "$status" -eq 125 ]
check "it is said of which" grep -q "the export $export_url failed" err
check "nothing wrong was read" lacks "wrong data" out
kill_disk
