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

section "each of them, at its small size"
expect 0 sim sweep "${all[@]}" --out small --jobs 2 --json
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

section "what is refused"
sed -e 's/^paper/papr/' -e "s,\.\./,$root/experiments/," "$figure" >wrong.toml
expect 2 sim run wrong.toml --out results
expect 4 sim run missing.toml --out results
expect 2 sim run "$figure" --out results --only 1000

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
