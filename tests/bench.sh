#!/usr/bin/env bash
# The suites of `volume bench`: every row is there, on any scheme that this build has.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

suite() {
    expect 0 volume bench --suite "$@" --dir . --json
}

rows() {
    python3 "$lib/rows.py" "$@" <out || fail "the rows are not as promised"
    checks=$((checks + 1))
}

workloads=(
    seq-write-1m seq-read-1m aging-rewrite-4k aging-read-1m
    seq-read-4k random-read-4k random-read-1m seq-write-4k random-write-4k random-write-1m
    mix-{90-10,70-30,50-50,30-70}-{4k,1m}
)
subjects=(plain detwo detwo-1/3 sq sq-map-disk sq-paper hive datalair)

section "tree ORAMs by themselves"
small=("$traceless" bench tree --blocks 500 --accesses 200 --rounds 2)
for seal in none aead aegis merkle; do
    expect 0 "${small[@]}" --seal "$seal" --cached 2 --maps 1 --json
    expect_json traceless.bench.tree.v1 machine what numbers
    check "two trees, each with one path an access" python3 -c "
import json
told = json.load(open('out'))
assert told['what']['encrypted'] == ('$seal' != 'none')
assert told['numbers']['paths_per_access'] == 2"
done
expect 0 "${small[@]}" --seal pmmac
expect 0 "${small[@]}"
check "the best seal is the default" grep -q AEGIS-256 out
expect 0 "$traceless" bench tree --blocks 5000 --accesses 200 --scheme circuit --client oblivious
check "that of the oblivious client, too" grep -q AES-256-GCM out
for with in "--scheme unified --plb 1" "--scheme rho --plb 1" "--scheme llc-d --plb 1 --llc 16" \
    "--scheme ir-dwb --plb 1 --llc 16" "--scheme circuit" "--scheme ring --z 4" \
    "--scheme ring --cached 2" "--scheme circuit --client oblivious"; do
    for seal in none aead; do
        # As many blocks as let a part of the oblivious client's tree lie on the store.
        # shellcheck disable=SC2086
        expect 0 "$traceless" bench tree --blocks 5000 --accesses 200 --rounds 2 $with \
            --seal "$seal" --json
        expect_json traceless.bench.tree.v1 machine what numbers
        check "$with moves bytes" python3 -c "
import json
told = json.load(open('out'))
assert told['what']['encrypted'] == ('$seal' == 'aead')
assert told['numbers']['bytes_per_access'] > 0"
    done
done
for scheme in path unified rho llc-d ir-dwb circuit ring; do
    expect 0 "${small[@]}" --scheme "$scheme" --block-len 0
done
# Nearly every access misses, and every second one leaves its line changed.
above=("$traceless" bench tree --blocks 500 --accesses 5000 --plb 1 --cached 2 --llc 16
    --workload sequential --json)
numbers() {
    expect 0 "${above[@]}" --scheme "$1"
    check "$2" python3 -c "
import json
told = json.load(open('out'))
paths, idle = (told['numbers'][f'{which}paths_per_access'] for which in ('', 'idle_'))
assert told['what']['llc_bytes'] == 16384
assert $3, (paths, idle)"
}
numbers llc-d "a line that returns takes no path of its own" "idle == 0 and 0.97 < paths < 1.1"
numbers ir-dwb "dirty lines are written back in between" "idle == 1 and 0.97 < paths < 1.1"
for without in "--client oblivious" "--scheme ring --client oblivious" "--scheme ring --z 5" \
    "--scheme circuit --maps 1" "--scheme llc-d --client oblivious" \
    "--scheme ir-dwb --block-len 2000 --llc 1" \
    "--scheme circuit --client oblivious --z 2" "--scheme unified --plb 0" \
    "--scheme unified --plb-ways 0" "--scheme unified --plb-ways 5" "--maps 1 --seal pmmac" \
    "--scheme circuit --seal pmmac" "--scheme ring --seal merkle" \
    "--scheme circuit --client oblivious --seal aegis"; do
    # shellcheck disable=SC2086
    expect 2 "${small[@]}" $without
done
expect 2 "$traceless" bench tree --blocks 500 --levels 3
expect 2 "$traceless" bench tree --blocks 500 --z 0
expect 2 "$traceless" bench tree --blocks 0
for scheme in path unified rho llc-d ir-dwb circuit ring; do
    expect 2 "$traceless" bench tree --scheme "$scheme" --blocks 18446744073709551615
done

section "stashes and levels, beside what was published"
stash=("$traceless" bench stash --levels 16 --accesses 2000)
expect 0 "${stash[@]}" --plot stash.svg --json
expect_json traceless.bench.stash.v1 machine seed above runs bounds levels_of_the_paper
check "the plot is XML, and has a curve for each tree" python3 -c "
import json, xml.dom.minidom as x
told, plot = json.load(open('out')), x.parse('stash.svg')
assert len({run['name'] for run in told['runs']}) == 11
assert len(plot.getElementsByTagName('polyline')) > 2 * len(told['runs'])"
expect 0 "${stash[@]}" --search --json
expect_json traceless.bench.stash.search.v1 machine levels cached searches
check "the result keeps both limits" python3 -c "
import json
told = json.load(open('out'))
assert [s['has_substash'] for s in told['searches']] == [False, True]
for search in told['searches']:
    assert search['tried'][-1]['is_allowed'] and search['tried'][-1]['gain'] > 1.1"
expect 2 "$traceless" bench stash --levels 15
expect 2 "$traceless" bench stash --search --plot stash.svg

section "models: every workload of every subject, counted"
for device in hdd ssd; do
    suite sqoram --device "$device" --file-size 16M --requests 256 --plot "$device.svg"
    expect_json traceless.volume.bench.sqoram.v1 machine device file_bytes rounds caches_dropped \
        subjects rows seeks left_out
    rows suite model "${#subjects[@]}" "${subjects[@]}" "${workloads[@]}"
    check "the plot is XML" python3 -c "import xml.dom.minidom as x; x.parse('$device.svg')"
    rows plotted "$device.svg"
done

section "models: traces, elevator, the size of the disk"
suite sqoram --device hdd --file-size 16M --requests 256 --subject detwo --only seq-write-1m \
    --traces traces
mv out slow
check "a trace of each" [ "$(find traces -name '*-seq-write-1m-0.trace' | wc -l)" -eq 2 ]
check "it can be read" python3 "$lib/trace.py" writes traces/detwo-seq-write-1m-0.trace >/dev/null
suite sqoram --device hdd --file-size 16M --requests 256 --subject detwo --only seq-write-1m \
    --elevator
rows faster slow
suite sqoram --device hdd --file-size 16M --requests 256 --subject detwo --only seq-write-1m \
    --disk-size 1T
rows faster slow

section "this disk: over NBD, and on ext4"
interfaces=raw
if [ "$(id -u)" -eq 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ]; then
    interfaces=raw,ext4
else
    leave_out "ext4: needs root, FUSE and loop devices"
fi
suite sqoram --file-size 16M --requests 64 --repeat 1 --on "$interfaces" --subject detwo
for on in ${interfaces//,/ }; do
    rows suite "$on" 2 plain detwo "${workloads[@]}"
done
still_mounted=$(findmnt --noheadings --list --output TARGET | grep "$scratch" || true)
check "nothing stays mounted" [ -z "$still_mounted" ]
check "nothing is left" [ -z "$(find . -maxdepth 1 -name 'traceless-bench-*')" ]
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chmod 777 .
    expect 0 setpriv --reuid 65534 --regid 65534 --clear-groups "$traceless" volume bench \
        --suite sqoram --file-size 16M --requests 64 --repeat 1 --on ext4 --subject detwo --json
    rows left-out ext4
else
    leave_out "how a user who is not root is told: needs root and setpriv"
fi

section "experiments: each file is understood"
for experiment in "$root"/experiments/sqoram/*.toml; do
    if [ "$interfaces" = raw ] && grep -q '^on = "ext4"' "$experiment"; then
        leave_out "$(basename "$experiment"): needs what ext4 needs"
        continue
    fi
    expect 0 volume bench --quick --json --plot experiment.svg --experiment "$experiment"
    expect_json traceless.volume.bench.sqoram.v1 rows
    rows plotted experiment.svg
done

section "the floors of the group write-only, for a scheme that is there"
suite write-only --quick --file-size 16M --requests 256 --subject detwo
expect_json traceless.write-only.bench.v1 machine subject create rows
rows floors "$root/bench/floors.toml" detwo

section "the floors, for the scheme that they are about"
suite write-only --quick --file-size 16M --only sq-space-factor
rows floors-named sq-space-factor

section "a model of gateways with many hosts"
cat >parts.json <<'EOF'
{"lock_batch": 0, "lock_query": 1e-5, "send_message": 3e-5, "request": 2e-5, "thread": 5e-5,
 "serve_message": 6e-5, "serve_slot": 2e-5, "relay_message": 0, "relay_query": 0,
 "make_slot": 2e-7, "evict_slot": 8e-7, "idle": 1e-5, "capacity": 1}
EOF
lab=$(dirname "$traceless")/traceless-lab
scale=("$lab" scale --calibration parts.json --round-trip 1 --clients 1024)
expect 0 "${scale[@]}" --hosts 1,64 --blocks 1e6,1e12 --json
expect_json traceless.scale.v1 machine calibration predictions
check "a gateway's lock serves as many requests as it can, with more hosts" python3 -c "
import json
one, many, deep, both = json.load(open('out'))['predictions']
assert one['requests_per_second'] < many['requests_per_second'] < 1e5
assert deep['layers'] > one['layers'] and deep['requests_per_second'] < one['requests_per_second']
assert many['locked'] > 0.9 and both['host_busy'] < 0.2"
expect 0 "${scale[@]}" --hosts 4 --blocks 1e9
echo '{"lock_batch": 0}' >wrong.json
expect 2 "$lab" scale --calibration wrong.json
expect 4 "$lab" scale --calibration missing.json
expect 2 "${scale[@]}" --hosts 0
expect 2 "${scale[@]}" --blocks 1.5
expect 2 "${scale[@]}" --cores 4

section "what is refused"
expect 2 volume bench --suite sqoram --file-size 1M
expect 2 volume bench --suite sqoram --file-size 16385K
expect 2 volume bench --suite sqoram --file-size 32M --volume-size 16M
expect 2 volume bench --suite sqoram --subject none
expect 2 volume bench --suite sqoram --elevator
expect 2 volume bench --suite sqoram --device hdd --on raw
expect 2 volume bench --suite write-only --subject detwo,detwo-1/3
expect 2 volume bench --suite write-only --subject plain
expect 2 volume bench --suite none
echo 'suite = "none"' >wrong.toml
expect 2 volume bench --experiment wrong.toml
expect 2 volume bench --experiment missing.toml
expect 2 volume bench --experiment "$root/experiments/sqoram/table-1.toml" --suite sqoram
expect 0 volume bench --help
check "the help names the models" grep -q -- '--device <MODEL>' out
