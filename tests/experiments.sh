#!/usr/bin/env bash
# Figures and tables of the papers on secure processors, from their files.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

sim() {
    "$traceless" sim "$@"
}

told() {
    check "$1" python3 -c "import json; told = json.load(open('out')); assert $1, told"
}

all=("$root"/experiments/{ir-oram,unified-oram,beyond}/*.toml)

section "every file names machines that can be, and workloads that there are"
expect 0 sim sweep "${all[@]}" --level full --out results --print-commands
files=$(grep -o "experiments/[^ ]*toml" out | sort -u | wc -l)
check "every file has runs" [ "$files" = "${#all[@]}" ]
check "nothing was simulated" [ ! -e results ]

section "the list of claims has every figure"
for file in "$root"/experiments/{ir-oram,unified-oram}/*.toml; do
    figure=$(basename "$file" .toml)
    check "$figure is in it" grep -q "^| .*\`$figure\`.* |" "$root/experiments/README.md"
done

section "each of them, cut short"
# With one workload where quick runs have three, and with one kernel of the largest inputs.
cp -r "$root/experiments" cut
sed -i '/^ *"kernel\/\(fft\|lu\|ocean\).*set=B",$/d' cut/*/*.toml
sed -i 's/^workloads = \["table-2.mcf", "table-2.lbm".*/workloads = ["table-2\/mcf"]/' \
    cut/*/*.toml
check "workloads are left out" grep -q '^workloads = \["table-2/mcf"\]$' cut/workloads/table-2.toml
check "one kernel is left" [ "$(grep -c 'set=B' cut/unified-oram/fig4.toml)" = 1 ]
expect 0 sim sweep cut/{ir-oram,unified-oram,beyond}/*.toml --records 300 --out small \
    --jobs 2 --json
expect_json traceless.sim.sweep.v1 experiments
told "len(told['experiments']) == ${#all[@]}"
mv out swept
check "every number is one" python3 -c "
import json, math
for experiment in json.load(open('swept'))['experiments']:
    for metric in experiment['metrics']:
        assert all(of['mean'] is not None for of in metric['variants']), (experiment, metric)
"
check "sizes are the paper's" python3 -c "
import json
verdicts = [v for e in json.load(open('swept'))['experiments'] for v in e['verdicts']
    if v['text'].startswith(('PL', 'less than 1 % of the space', 'a pointer table', 'the top'))]
assert len(verdicts) == 14 and all(v['reproduced'] for v in verdicts), verdicts"

section "a figure, at another size"
figure=$root/experiments/ir-oram/fig12.toml
expect 0 sim run "$figure" --out results --records 300 --json
expect_json traceless.sim.run.v1 title metrics verdicts
told "[v['reproduced'] for v in told['verdicts'] if v['text'].startswith('PL')] == [True] * 5"
mv out first
for ending in json csv parquet svg; do
    check "its $ending" [ -s results/ir-oram-fig12.quick.$ending ]
done

check "a whole Parquet" python3 -c "
whole = open('results/ir-oram-fig12.quick.parquet', 'rb').read()
assert whole[:4] == whole[-4:] == b'PAR1'"

section "what is too short to judge"
check "its reports say so" python3 -c "
import json
told = json.load(open('first'))
verdicts = {v['text']: v for v in told['verdicts']}
short = [v for v in verdicts.values() if v['too_short']]
assert short and all(v['reproduced'] is None for v in short), verdicts
assert all(v['reproduced'] is not None for v in verdicts.values() if not v['too_short']), verdicts
assert json.load(open('results/ir-oram-fig12.quick.json')) == told"
check "and its picture" grep -q "too short to judge: " results/ir-oram-fig12.quick.svg
expect 0 sim run "$figure" --out results --records 300
check "and its text" grep -q "^too short to judge: another machine\|^too short to judge: .* of " out

section "how long things take"
check "each result tells" python3 -c "
import glob, json
for name in glob.glob('results/runs/*.json'):
    latencies = json.load(open(name))['counts']['latencies']
    assert latencies['reads']['count'] > 0 and latencies['paths']['data']['p99'] > 0, name"
check "each column has its name" grep -q "latencies.reads_by_map.0.p99" \
    results/ir-oram-fig12.quick.csv

section "what was made is not made again, and a sweep makes the same"
runs=$(find results/runs -name '*.json' | wc -l)
touch before
expect 0 sim sweep "$figure" --out results --records 300 --jobs 2 --json
check "the same report" python3 -c "
import json
sweep, alone = json.load(open('out')), json.load(open('first'))
assert sweep['experiments'] == [alone]"
check "no run was made" [ -z "$(find results/runs -newer before)" ]
check "no part is left" [ -z "$(find results -name '*.part')" ]

section "runs as commands"
expect 0 sim sweep "$figure" --out others --records 300 --slurm job.sh --print-commands
check "one for each run" [ "$(wc -l <out)" = "$runs" ]
check "and as many tasks" grep -q -- "--array=0-$((runs - 1))\$" job.sh
check "a task makes its run" env SLURM_ARRAY_TASK_ID=2 bash job.sh
check "which is the same" cmp others/runs/*.json "results/runs/$(basename others/runs/*.json)"

section "shards at the same time, by the manifest's command, come to the same"
mkdir path
ln -s "$traceless" path/traceless
manifest=$(awk '/^ *- >-/ { inside = 1; next } /^ *resources:/ { inside = 0 } inside' \
    "$root/docs/simulator.md" | tr '\n' ' ')
share=$(sed -e "s,experiments/ir-oram/fig10.toml --level full,'$figure' --records 300," \
    -e 's,/16,/3,; s,/results/,shards/,' <<<"$manifest")
check "it is the command of a shard" grep -q 'exec traceless.*fig12.*INDEX/3.*shards/' <<<"$share"
# Is killed somewhere, and made anew.
JOB_COMPLETION_INDEX=0 PATH=$scratch/path:$PATH sh -c "$share" >shard-0 &
until [ -n "$(find shards -name '*.json' -path '*/runs/*' 2>/dev/null)" ]; do sleep 0.01; done
end $!
check "what a killed shard left is whole" python3 -c "
import glob, json
assert [json.load(open(name)) for name in glob.glob('shards/0/runs/*.json')]"
shards=()
for nth in 0 1 2; do
    JOB_COMPLETION_INDEX=$nth PATH=$scratch/path:$PATH sh -c "$share" >"shard-$nth" &
    shards+=($!)
done
wait "${shards[@]}"
check "a shard has some of the runs" test "$(find shards/0/runs -name '*.json' | wc -l)" -lt "$runs"
merge() {
    sim sweep "$figure" --records 300 --out merged --merge "$@"
}
expect 0 merge shards/* --json
check "the same report" cmp out <(sim sweep "$figure" --out results --records 300 --json)
check "and the same files" diff -r results merged
rm -r merged

section "what is no whole sweep"
expect 2 merge shards/0 shards/2
check "the missing shard, and its command" grep -q "1/3 is missing; .*fig12.* --shard 1/3$" err
expect 2 merge shards/0 shards/1 results
check "what is no shard" grep -q "results: no shard lies here" err
expect 0 sim sweep "$figure" --records 301 --out foreign --shard 2/3 --json
expect_json traceless.sim.shard.v1 shard of version level records experiments runs
expect 2 merge shards/0 shards/1 foreign
check "the foreign shard" grep -q "foreign/shards/2-of-3.json.* --records 301, not" err
some=$(find shards/1/runs -name '*.json' | head -n 1)
sed -i 's/"cycles": /"cycles": 1/' "$some"
expect 1 merge shards/*
check "the damaged result, and its command" grep -q "$some: it is damaged.* --shard 1/3$" err
sed -i '/"digest"/ d' "$some"
cp -r results/runs/. shards/2/runs
expect 1 merge shards/*
check "both results of a run" grep -q "two results differ.* $some and .*$(basename "$some")" err
check "nothing was joined" [ -z "$(find merged -type f)" ]

section "what is refused"
sed -e 's/^paper/papr/' -e "s,\.\./,$root/experiments/," "$figure" >wrong.toml
expect 2 sim run wrong.toml --out results
expect 4 sim run missing.toml --out results
expect 2 sim run "$figure" --out results --only 1000
expect 2 sim sweep "$figure" --out results --shard 3/3
check "shares count from 0" grep -q "from 0 to N - 1" err
expect 2 sim sweep "$figure" --out results --shard 0/3 --merge shards/0

section "memories, and what they draw"
for machine in ddr4-2400 ddr4-3200 usimm-4channel; do
    expect 0 sim trace 'uniform?before=10' --length 5K --scheme dram --json \
        --config "$root/experiments/machines/$machine.toml"
    expect_json traceless.sim.trace.v1 dram channels
    told "0.01 < told['dram']['utilisation'] < 1 and told['dram']['bytes'] == 64 * 5000"
    told "abs(sum(told['dram']['energy'].values()) / told['dram']['picojoules'] - 1) < 1e-9"
    told "abs(sum(c['dram']['picojoules'] for c in told['channels'])
        / told['dram']['picojoules'] - 1) < 1e-9"
done

section "tables of the cloud paper"
table=$root/experiments/cloud/table-1.toml
expect 2 "$traceless" bench cloud --experiment "$table"
expect 2 "$traceless" bench cloud --experiment "$table" --out cloud --data 1G
sed -e 's/^quick = .*/quick = { queries = 100, rounds = 1, divided-by = 64 }/' \
    -e 's/^workloads = .*/workloads = ["1 KB", "2 KB"]/; /^workload = "8 KB"/s/8 KB/1 KB/' \
    -e '/^\[workload."[48] KB"\]/,+1d; s/who = "benes" }/who = "benes", in-files = true }/' \
    "$root/experiments/cloud/compared.toml" >compared.toml
expect 0 "$traceless" bench cloud --experiment compared.toml --out cloud --json
expect_json traceless.cloud.experiment.v1 verdicts metrics
check "all have answered" test "$(find cloud/runs -name '*.json' | wc -l)" = 12
check "no tree is left" [ -z "$(find cloud -name 'tree-*')" ]
