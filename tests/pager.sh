#!/usr/bin/env bash
# Programs that nobody changed, with little memory: they do what they always do.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

# shellcheck source=lib/paged.sh
source "$lib/paged.sh"

"$python" -c "print(*(n * 7919 % 20011 for n in range(1, 10001)), sep='\\n')" >numbers
head -n 2000 numbers >few

lacks() {
    ! grep --quiet --text "$1" "$2"
}

section "programs as they are"
for scheme in detwo eager parallel eager-parallel; do
    most=15 same --resident 15 --memory 8M --scheme "$scheme" --refresh 7 -- sort numbers
done
for scheme in plain path path-fused ring opam; do
    most=15 same --resident 15 --memory 8M --scheme "$scheme" -- sort numbers
done
most=15 same --resident 15 --policy random --cipher gcm -- sort -r numbers
most=15 same --resident 15 --cipher chacha20-hmac -- sort -r numbers
most=32 same --resident 32 --policy clock -- sort -r numbers
same --resident 256 -- xz --threads=1 --stdout few
same --resident 64 -- xz --threads=2 --block-size=4KiB -1 --stdout few
same --resident 64 -- "$python" -c "
print(sum(i * i for i in range(10000)), sorted(str(i) for i in range(3000))[::300])"
cat >query <<END
create table t(a, b);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 5000)
    insert into t select x, x * 7919 % 20011 from c;
create index i on t(b);
select count(*), sum(t.a * u.a) from t join t u on u.b = t.b + 1;
END
input=query same --resident 32 -- sqlite3 :memory:
echo 'int main(void) { int sum = 0; for (int i = 0; i < 10; i++) sum += i; return sum; }' >sum.c
evictions=0 same --resident 256 -- gcc -O2 sum.c -o sum
"$python" -c "
import json
assert len(json.load(open('stats'))) > 2, 'the compiler itself was not paged'"
expect 45 ./sum
"$python" - >formula <<END
import random
random.seed(1)
print('p cnf 60 215')
for _ in range(215):
    print(*(random.choice((-1, 1)) * v for v in random.sample(range(1, 61), 3)), 0)
END
expect 10 picosat formula
mv out native
expect 10 run --resident 15 -- picosat formula
check "the same solution" cmp native out

section "large reads and writes, mappings, threads, direct I/O"
same --resident 24 -- "$python" "$lib/mappings.py"
gcc -O1 "$lib/mappings.c" -o mappings
most=16 same --resident 16 --memory 8M -- ./mappings
most=16 same --resident 16 --memory 8M --way protect -- ./mappings
expect 0 run --resident 16 --memory 8M -- ./mappings more
check "what cannot be is refused" lacks ": 0" out
check "and it is said why" grep -q "mmap is refused" err
head --bytes 8M /dev/urandom >random
evictions=0 same --resident 16 -- dd if=random iflag=direct bs=1M status=none
# Where pages cannot be moved it is not direct: what arrives in a page that has left would be lost.
run --resident 16 --way protect -- \
    dd if=random iflag=direct bs=1M of=copy oflag=direct status=none 2>err
check "all arrives" cmp random copy
check "it is said that it is not direct" grep -q "through the cache" err
rm copy

check "low numbers of files are the program's" [ "$(run -- "$python" -c "
import os
print(os.open('/dev/null', 0))")" = 3 ]
same --scheme eager --resident 24 -- "$python" -c "
import os
print(os.open('/dev/null', 0), sorted(str(i) for i in range(3000))[:9])"

section "memory that is reserved, placed and protected"
gcc -O1 "$lib/reservations.c" -o reservations -pthread
same --resident 32 --memory 8M -- ./reservations
same --resident 32 --memory 8M --policy clock -- ./reservations
same --resident 32 --memory 8M --way protect --lock off -- ./reservations
# What is left out is known, and may be forbidden.
expect 0 run --strict=100 -- true
expect 125 run --strict=0 -- true
check "it is said what" grep -q "^traceless: --strict=0: not paged were .*static data" err
has() {
    command -v "$1" >/dev/null || { leave_out "$1: it is not installed" && false; }
}
if has node; then
    most=8192 same --resident 1024 --strict -- node -e "
const all = [];
for (let i = 0; i < 60000; i++) all.push({number: i, text: 'number ' + i});
console.log(JSON.stringify(all).length, Buffer.alloc(1 << 23, 7)[9])"
fi
if has javac; then
    cat >Words.java <<'END'
public class Words {
    public static void main(String[] arguments) {
        var all = new java.util.TreeMap<String, int[]>();
        for (int i = 0; i < 60000; i++) all.put("word " + i * 7919 % 20011, new int[] {i});
        System.out.println(all.size() + " " + all.firstKey() + all.lastEntry().getValue()[0]);
    }
}
END
    javac Words.java
    most=8192 same --resident 1024 --strict=8 -- java -Xmx64M Words
fi

section "variables of programs and of libraries"
gcc -O1 -Wall -Wextra -Werror -shared -fPIC -DLIBRARY "$lib/variables.c" -o libvariables.so
# What is at fixed addresses calls functions of the C library by jumps of the program's.
for kind in "-fPIE -pie" "-fno-pie -no-pie -z lazy" "-fno-pie -no-pie -z now"; do
    # Options one by one.
    # shellcheck disable=SC2086
    gcc -O1 -Wall -Wextra -Werror $kind "$lib/variables.c" -o variables -L. -lvariables \
        "-Wl,-rpath,$PWD"
    same --resident 64 --memory 16M -- ./variables
    expect 0 run --resident 64 --memory 16M --strict -- ./variables
done
same --resident 64 --memory 16M --way protect --lock off -- ./variables
gcc -O1 -Wall -Wextra -Werror -fno-builtin -DOWN_MALLOC "$lib/variables.c" -o own-malloc -L. \
    -lvariables "-Wl,-rpath,$PWD"
expect 3 run --resident 64 --memory 32M -- ./own-malloc
check "it is said why it does not fork" grep -q "a malloc of its own" err
./own-malloc >own || true
check "and it has its variables" cmp <(head -n 2 own) <(head -n 2 out)
expect 0 run --resident 1024 --strict -- "$python" -c "print(len([str(n) for n in range(99999)]))"

section "all files are closed, and libraries loaded"
same_files_and_libraries
same_files_and_libraries --scheme eager-parallel --backing helped
same_files_and_libraries --trace events
rm helped events
expect 125 run --scheme parallel --helpers 65 -- true

section "paged stacks, and signals"
gcc -O1 "$lib/stacks.c" -o stacks
same --resident 64 --memory 16M -- ./stacks
same --resident 64 --memory 16M --policy clock -- ./stacks

section "where programs run"
same_places

section "the example of the library"
hash_join=$("$lib/example" hash_join)
expect 0 "$hash_join"

section "exit codes"
expect 7 run -- sh -c 'exit 7'
expect 137 run -- sh -c 'kill -KILL $$'
expect 127 run -- ./no-such-program
expect 126 run -- ./numbers
expect 125 run --resident 7 -- true
gcc -static -O1 "$lib/pages.c" -o static
expect 125 run --mode process -- ./static
check "what is linked statically is refused" grep -q statically err
expect 125 run --backing /proc/none -- true

section "out of memory"
expect 1 run --memory 12M -- "$python" -c "x = bytearray(64 << 20)"
check "it is said which memory" grep -q "out of paged memory" err
check "and the program hears of it" grep -q MemoryError err

mkdir small
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=1m none small 2>/dev/null; then
    mounts+=("$scratch/small")
    expect 125 run --backing small/pages -- true
    check "a store without room is refused" grep -q "small/pages: it has no room" err
    check "and keeps none" [ "$(stat --format %b small/pages)" = 0 ]
else
    leave_out "a full file system: it takes root"
fi

expect 125 bash -c "ulimit -f 100; exec '$traceless' run -- true"
check "a limit of files is told" grep -q "ulimit -f" err

section "a store that fails while it is used"
gcc -O1 "$lib/ends.c" -o ends -pthread
for scheme in plain detwo eager eager-parallel path; do
    : >rounds
    timeout 60 "$traceless" run --resident 16 --memory 8M --scheme "$scheme" --backing cut -- \
        ./ends never >rounds 2>cut.err &
    until [ -s rounds ]; do
        kill -0 $! 2>/dev/null || fail "it has ended: $(cat cut.err)"
        sleep 0.02
    done
    truncate --size 0 cut
    code=0
    wait $! || code=$?
    check "it ends with 125, not $code" [ "$code" -eq 125 ]
    check "it names the file" grep -q "the backing file $scratch/cut failed" cut.err
    check "nothing was wrong" lacks "wrong data" rounds
    # What was written since it was cut has no mark: nobody takes it over.
    rm cut
done

section "how programs end, and what they forbid themselves"
same --resident 16 -- ./ends last-thread
expect 7 timeout 20 ./ends strict
mv out native
expect 7 timeout 20 "$traceless" run --resident 16 -- ./ends strict
check "the same output" cmp native out
expect 125 timeout 20 "$traceless" run --resident 16 -- ./ends filter
check "it is said why" grep -q "paging cannot go on: .*not permitted" err

section "two at once, and the store in a file"
same --resident 15 --memory 8M --scheme eager-parallel --backing helped -- sort numbers
rm helped
run --resident 15 --backing first -- sort numbers >one &
run --resident 15 --backing second -- sort -r numbers >two
wait %1
check "the one" cmp one <(sort numbers)
check "the other" cmp two <(sort -r numbers)
check "pages are in the file" [ "$(stat --format %s first)" -gt $((256 << 20)) ]
check "but not what they hold" lacks 19999 first
rm first second

section "what is written tells nothing"
gcc -O1 "$lib/pages.c" -o pages
for secret in 1 2 3; do
    expect 0 run --resident 16 --trace "detwo.$secret" -- ./pages "$secret"
    expect 0 run --resident 16 --scheme plain --trace "plain.$secret" -- ./pages "$secret"
done
differ() {
    ! cmp --silent "$1" "$2"
}
for trace in detwo.{1,2,3} plain.{1,2,3}; do
    "$python" "$lib/trace.py" writes "$trace" >"$trace.writes"
done
check "there is a trace" [ "$(wc -l <detwo.1.writes)" -gt 30000 ]
for secret in 2 3; do
    check "the same writes" cmp detwo.1.writes "detwo.$secret.writes"
    check "the control tells" differ plain.1.writes "plain.$secret.writes"
done
# Whoever refreshes, it is the same. What the last page brought may be left to do when all ends.
for scheme in parallel eager-parallel; do
    for secret in 1 2; do
        expect 0 run --resident 16 --scheme "$scheme" --trace "helped.$secret" -- ./pages "$secret"
        "$python" "$lib/trace.py" writes "helped.$secret" >"helped.$secret.writes"
    done
    check "there is a trace of $scheme" [ "$(wc -l <helped.1.writes)" -gt 30000 ]
    check "what $scheme writes" cmp helped.1.writes helped.2.writes
    check "is what detwo writes" cmp "--bytes=$(stat --format %s helped.1.writes)" \
        detwo.1.writes helped.1.writes
done

section "a figure of the paging paper"
figure() {
    expect "$1" "$traceless" bench pager --experiment "$root/experiments/paging/$2.toml" \
        --out results --json
}
for experiment in "$root"/experiments/paging/*.toml; do
    check "$(basename "$experiment") is in the list" \
        grep -q "^| .*\`$(basename "$experiment" .toml)\`.* |" "$root/experiments/README.md"
done
figure 0 fig5
expect_json traceless.pager.experiment.v1 title metrics verdicts
for ending in json csv parquet svg; do
    check "its $ending" [ -s results/paging-fig5.quick.$ending ]
done
check "all its runs, with the same output, and the same pages in the same order" "$python" -c "
import csv
runs = list(csv.DictReader(open('results/paging-fig5.quick.csv')))
variants = {run['variant'] for run in runs}
programs = {run['workload'] for run in runs}
assert len(variants) == 11 and len(programs) == 3 and len(runs) == 33, runs
for program in programs:
    of = [run for run in runs if run['workload'] == program]
    assert len({run['output'] for run in of}) == 1, of
    paged = [run for run in of if run['variant'] != 'native']
    assert len({(run['faults'], run['order_hash']) for run in paged}) == 1, paged
    assert all(int(run['faults']) >= 400 for run in paged), paged
    assert all(int(run['swap_ns']) < int(run['span_ns'])
        for run in paged if not run['variant'].endswith('simulated')), paged"
mv out first
figure 0 fig5
check "what was run is not run again" cmp out first

section "runs that differ are noticed"
spoil() {
    "$python" - "$1" "$2" <<'END'
import glob, json, os, sys
key, value = sys.argv[1:]
for name in glob.glob("results/runs/*.json"):
    run = json.load(open(name))
    if run["input"]["workload"] != "random-writes":
        continue
    is_first = run["input"]["subject"]["scheme"] == "plain"
    if run["input"]["subject"]["how"] == ("native" if key == "output" else "paged") and is_first:
        run["counts"][key] = json.loads(value)
        # With its digest it would count as damaged, and be made again.
        del run["digest"]
        json.dump(run, open(name, "w"))
    elif run["input"]["subject"]["scheme"] == "eager":
        os.remove(name)
END
}
cp --recursive results whole
spoil order_hash 7
figure 4 fig5
check "other pages" grep -q "other pages came and left" err
rm -r results
mv whole results
spoil output '"x"'
figure 4 fig5
check "another output" grep -q "the output is not that" err
