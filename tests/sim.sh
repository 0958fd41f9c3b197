#!/usr/bin/env bash
# The simulator on workloads of real programs: recorded, packed, run.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

sim() {
    "$traceless" sim "$@"
}

told() {
    check "$1" python3 -c "import json; told = json.load(open('out')); assert $1, told"
}

section "record a program, and nothing of it changes"
seq 1 8000 >numbers
head -n 1000 numbers >few
expect 0 sim record --out whole.workload --l1-kib 16 --json -- sort -r -o sorted numbers
expect_json traceless.sim.record.v1 instructions reads writes cut_short
told "told['instructions'] > 1_000_000 and told['reads'] > told['writes'] > 100"
told "not told['cut_short'] and told['exit_code'] == 0"
mv out whole
check "the program did its work" cmp sorted <(sort -r numbers)
expect 0 sim record --out part.workload --l1-kib 16 --skip 500 --misses 1K --json -- sort numbers
told "told['reads'] == 1000 and told['cut_short'] and told['exit_code'] is None"
expect 0 sim record --out failed.workload --l1-kib 16 --json -- sort ./no-such-file
told "told['exit_code'] == 2 and not told['cut_short']"
check "that it failed is told" grep -q "the program ended with code 2" err
expect 0 sim record --out rest.workload --skip 100M --json -- true
told "told['instructions'] == told['reads'] == told['writes'] == 0 and not told['cut_short']"
check "nothing else is left" [ -z "$(find . -name '*.part')" ]

section "both recorders agree"
if command -v cc "qemu-$(uname -m)" >have; then
    # Its work is its own; the C library's differs with what the processor offers.
    program='{ count[$1 % 500]++; line[NR] = $0 } END { for (i = NR; i > 0; i--) n += line[i] }'
    for with in lackey qemu; do
        expect 0 sim record --with "$with" --out "$with.workload" --l1-ways 16 --json -- \
            awk "$program" numbers
        mv out "$with"
    done
    check "they tell the same" python3 -c "
import json
lackey, qemu = json.load(open('lackey')), json.load(open('qemu'))
for what in ('instructions', 'reads', 'writes'):
    assert abs(qemu[what] / lackey[what] - 1) < 0.01, (what, lackey, qemu)"
    expect 0 sim record --with qemu --out part-2.workload --l1-kib 16 --skip 500 --misses 1K \
        --json -- sort numbers
    told "told['reads'] == 1000 and told['cut_short']"
    expect 0 sim trace part-2.workload --scheme dram --json
    expect 0 sim record --with qemu --out failed.workload --json -- sort ./no-such-file
    told "told['exit_code'] == 2"
    expect 2 sim record --with qemu --out none.workload -- ./no-such-program
    printf '#!/bin/sh\n' >script
    chmod +x script
    expect 2 sim record --with qemu --out none.workload -- ./script
    check "nothing else is left" [ -z "$(find . -name '*.part*')" ]
else
    leave_out "no QEMU or no C compiler"
fi

section "run it"
expect 0 sim trace whole.workload --scheme dram --json
expect_json traceless.sim.trace.v1 machine cycles instructions records channels
check "what was recorded is what is run" python3 -c "
import json
told, whole = json.load(open('out')), json.load(open('whole'))
assert told['records'] == whole['reads'] + whole['writes']
counts = [c[op] for c in told['channels'] for op in ('reads', 'writes')]
served = sum(c['served'] + c['merged'] for c in counts)
assert served == told['records']
assert abs(told['instructions'] / whole['instructions'] - 1) < 0.02"
grep -v records_per_second out >plain
gzip -k whole.workload
zstd -q whole.workload
for packed in whole.workload.gz whole.workload.zst; do
    expect 0 sim trace "$packed" --scheme dram --json
    check "$packed is the same" cmp plain <(grep -v records_per_second out)
done
expect 0 sim trace whole.workload --scheme dram --json \
    --config "$root/experiments/machines/usimm-4channel.toml"
check "that machine is the default" cmp plain <(grep -v records_per_second out)
for scheme in dram ir-oram; do
    expect 0 sim trace whole.workload --scheme "$scheme" --length 2K --check --json \
        --config "$root/experiments/machines/small.toml"
    told "told['commands_checked'] > told['dram']['reads'] + told['dram']['writes'] > 0"
done

section "run it over a scheme"
for scheme in path recursive unified compressed baseline rho ir-alloc ir-stash ir-dwb ir-oram \
    bundled llc-d llc-d+ir-stash+ir-alloc ring; do
    expect 0 sim trace part.workload --scheme "$scheme" --json \
        --config "$root/experiments/machines/small.toml"
    expect_json traceless.sim.trace.v1 machine cycles last_level paths channels
    told "told['machine']['oram']['scheme'] == '$scheme'"
    told "sum(told['paths'][k] for k in ('requests', 'returned')) >= sum(
        told['last_level'][k] for k in ('read_misses', 'write_backs'))"
    told "told['paths']['data'] > 0"
    told "all(sum(l['count'] for l in [t['reads_at_hand'], *t['reads_by_map']])
        == t['reads']['count'] > 0 for t in [told['latencies']])"
    told "all(told['paths'][k] == told['latencies']['paths'][k]['count']
        for k in ('dummy', 'eviction', 'early'))"
done

section "record programs of Debian packages"
TRACELESS=$traceless "$root/experiments/record" recorded 5K 1K >told
for program in xz bzip2 gzip zstd python perl sqlite cc1 awk sort; do
    check "$program was recorded" grep -Eq "^$program +[0-9]+ +5000 " told
    expect 0 sim trace "recorded/$program.workload" --scheme dram --json
    told "told['records'] >= 5000"
done

section "run what is made up"
for workload in uniform stride:3 zipf:0.8 'chase?bytes=1M' table-2/gcc kernel/ocean_c \
    'table-2/mcf+uniform@3'; do
    expect 0 sim trace "$workload" --length 2K --scheme dram --json
    told "told['records'] == 2000"
    grep -v records_per_second out >plain
    expect 0 sim trace "$workload" --length 2K --scheme dram --json --seed 1
    check "$workload is the same again" cmp plain <(grep -v records_per_second out)
done

section "kernels ask for what real programs do"
if command -v cc >have; then
    cc -O1 -o kernel "$root/tests/lib/kernel.c"
    while read -r kernel size; do
        for run in '' run; do
            # shellcheck disable=SC2086
            expect 0 sim record --out kernel.workload --l1-kib 32 --l1-ways 4 --json -- \
                ./kernel "${kernel%_*}" "$size" $run
            mv out "recorded-$run"
        done
        expect 0 sim trace "kernel/$kernel?size=$size" --length 1G --scheme dram --json
        check "kernel/$kernel loads and stores as often" python3 -c "
import json
told, before, after = [json.load(open(name)) for name in ('out', 'recorded-', 'recorded-run')]
for what in ('reads', 'writes'):
    kernel = sum(c[what]['served'] + c[what]['merged'] for c in told['channels'])
    program = after[what] - before[what]
    assert abs(kernel / program - 1) < 0.02, (what, kernel, program)
instructions = after['instructions'] - before['instructions']
assert 0.6 < told['instructions'] / instructions < 1.6, (told['instructions'], instructions)"
    done <<END
radix 100000
lu_nc 160
END
else
    leave_out "no C compiler"
fi

section "several cores"
expect 0 sim trace stride:1 stride:1 --length 1K --scheme dram --json
told "told['records'] == 2000"
expect 0 sim trace 'stride:1 & stride:1' --length 1K --scheme dram --json
told "told['records'] == 2000"
small=$root/experiments/machines/small.toml
for workload in 'kernel/radix?size=2000&threads=4' \
    'stride:1 & kernel/ocean_nc?size=34&threads=4'; do
    expect 0 sim trace "$workload" --length 5K --scheme compressed --json --config "$small"
    # A line that was written and never read has no label that could have come back with it.
    told "told['records'] > 1000"
    told "0 <= told['paths']['data'] - told['last_level']['read_misses'] \
        <= told['last_level']['write_misses']"
    grep -v records_per_second out >plain
    expect 0 sim trace "$workload" --length 5K --scheme compressed --json --config "$small"
    check "$workload is the same again" cmp plain <(grep -v records_per_second out)
done

section "text of other simulators"
printf '10 R 0x40 0x0\n0 W 0x80\n' >usimm
expect 0 sim trace usimm --scheme baseline --json
check "the paper's machine is the default" python3 -c "
import json, tomllib
def agree(of, told):
    return all(agree(of[k], told[k]) for k in of) if isinstance(of, dict) else of == told
wants = tomllib.load(open('$root/experiments/machines/ir-oram.toml', 'rb'))
told = json.load(open('out'))['machine']
assert len(wants) == 4 and agree(wants, told), (wants, told)"
expect 0 sim trace usimm --scheme dram --json
told "told['instructions'] == 12 and told['records'] == 2"
printf '10 64 128\n' >ramulator
expect 0 sim trace ramulator --format ramulator --scheme dram --json
told "told['instructions'] == 12 and told['records'] == 2"

python3 -c "
import struct, sys
for nth in range(3000):
    sys.stdout.buffer.write(struct.pack('<Q8B6Q', nth, *[0] * 8, 64 * nth, 0, 64 * nth, 0, 0, 0))
" >instructions
for packed in instructions 'instructions?format=champsim' x.champsimtrace.gz x.champsim.zst; do
    case $packed in
        *.gz) gzip -c instructions >"$packed" ;;
        *.zst) zstd -qc instructions >"$packed" ;;
    esac
    format=()
    [ "$packed" != instructions ] || format=(--format champsim)
    expect 0 sim trace "$packed" "${format[@]}" --scheme dram --json
    told "(told['instructions'], told['records']) == (3000, 2999)"
done

if command -v valgrind >have; then
    valgrind --tool=lackey --trace-mem=yes --basic-counts=no --log-file=lackey.text sort few >sorted
    zstd -q lackey.text
    for text in lackey.text lackey.text.zst; do
        expect 0 sim trace "$text" --format lackey --length 2K --scheme dram --json
        told "told['records'] == 2000 < told['instructions']"
    done
else
    leave_out "no Valgrind"
fi

section "a core for each workload"
expect 0 sim trace usimm uniform --length 1K --scheme dram --json
told "told['records'] == 1002"

section "nothing to simulate"
: >empty
gzip -kc empty >empty.gz
for none in empty empty.gz rest.workload; do
    expect 2 sim trace "$none" --scheme dram --json
done
expect 2 sim trace usimm empty --scheme dram
expect 2 sim trace uniform --length 0 --scheme dram
expect 2 sim record --out none.workload --misses 0 -- true
check "which misses are too few is told" grep -q -- "--misses.*1 or more" err

section "odd, but possible"
odd_machine() {
    sed "$1" "$root/experiments/machines/small.toml" >odd.toml
}
for change in 's/after-completion = 1000/after-completion = 0/' \
    's/after-completion = 1000/fetch-slots = 0/' 's/cached_levels = 5/cached_levels = 15/' \
    's/queue = 2000/queue = 1/' 's/map_levels = 2/map_levels = 0/' 's/depth = 10/depth = 0/'; do
    odd_machine "$change"
    expect 0 sim trace usimm --scheme baseline --config odd.toml --json
    told "told['records'] == 2"
done

section "impossible machines"
for change in 's/channels = 4/channels = 0/' 's/channels = 4/channels = 1073741824/' \
    's/ways = 8/ways = 0/' 's/bytes = 65536/bytes = 0/' 's/plb_ways = 4/plb_ways = 0/' \
    's/plb_bytes = 2048/plb_bytes = 4611686018427387904/' 's/levels = 16/levels = 0/' \
    's/levels = 16/levels = 33/' 's/levels = 16/levels = 64/' \
    's/blocks = 65536/blocks = 65536000/' 's/blocks = 65536/blocks = -1/' \
    's/stash_blocks = 200/stash_blocks = 9223372036854775807/' \
    's/row_len = 32768/row_len = 9223372036854775807/' 's/rob = 128/rob = 0/' \
    's/row_len = 32768/row_len = 32769/' 's/row_len = 32768/row_len = 64/' \
    's/cached_levels = 5/cached_levels = 16/' 's/rcd = 11/rcd = 0/' 's/faw = 32/faw = 0/' \
    's/clock_ratio = 4/clock_ratio = 0/' 's/refi = 6240/refi = 1/' 's/low = 20/low = 90/' \
    's/seed = 1/seed = 1\nno_such_key = 2/' 's/seed = 1/seed = 1\nwarm_up = 9223372036854775807/' \
    's/seed = 1/seed = 1\nsmall = { per_main = 0 }/'; do
    odd_machine "$change"
    expect 2 sim trace usimm --scheme baseline --config odd.toml
done
expect 4 sim trace usimm --scheme baseline --config missing.toml
expect 4 sim trace . --scheme dram
seq -f '10 R 0x%.0f00 0x0' 1000 2000 | gzip -c | head -c 1000 >cut.gz
expect 4 sim trace cut.gz --scheme dram

section "what is refused"
xz -c instructions >x.champsim.xz
expect 4 sim trace x.champsim.xz --scheme dram
expect 2 sim trace ramulator --scheme dram
expect 2 sim trace missing --scheme dram
expect 2 sim trace usimm --scheme none
check "what schemes there are is told" grep -q "dram, path, recursive, " err
head -c 100000 /dev/zero >zeros
expect 2 sim trace zeros --scheme dram
check "that it is no text is told" grep -q "zeros, line 1: it is too long for a line" err
expect 2 sim trace 'kernel/ocean_c?threads=3' --scheme dram
expect 2 sim trace 'uniform & missing' --scheme dram
expect 2 sim trace table-2/none --scheme dram
expect 2 sim trace usimm --scheme dram --format packed
head -c -1 whole.workload >torn
expect 2 sim trace torn --scheme dram
check "what to do is told" grep -q "cut short after [0-9]* operations: copy it anew, or record" err
printf 'TRCLSWL1\002\002' >older
expect 2 sim trace older --scheme dram
printf '1 R 0x40 0x0\n18446744073709551616 R 0x40 0x0\n' >large
expect 2 sim trace large --scheme dram
check "line and field are told" grep -q "large, line 2: the number of instructions before it" err
echo 'processor = 1' >wrong.toml
expect 2 sim trace usimm --scheme dram --config wrong.toml
sed 's/banks = 8/banks = 7/' "$root/experiments/machines/usimm-4channel.toml" >wrong.toml
expect 2 sim trace usimm --scheme dram --config wrong.toml
expect 2 sim record --out none.workload -- ./no-such-program
expect 2 sim record --out none.workload --l1-ways 3 -- true
expect 4 sim record --out missing/none.workload -- true
check "no workload without a recording" [ -z "$(find . -name 'none*')" ]
