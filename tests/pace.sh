#!/usr/bin/env bash
# Paging at a constant rate, what is said of it while it runs, and limits of memory.
# Alone: ticks of a rate need a processor in time.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/paged.sh
source "$lib/paged.sh"

gcc -O1 "$lib/uneven.c" -o uneven

# What the store shows of a secret: writes, with the tick that each is nearest to. The exit code of
# the program is left in `code`.
shown() {
    local secret=$1 out=$2
    code=0
    "$traceless" run --resident 16 --memory 8M --lock off --stats stats --trace trace \
        "${options[@]}" -- ./uneven "$secret" "${@:3}" >/dev/null 2>err || code=$?
    "$python" "$lib/trace.py" ticks trace 40000000 >"$out"
}

# The same, in a run in which no tick is late by a quarter of a period.
shown_quietly() {
    for _ in {1..20}; do
        shown "$@"
        [ "$code" -eq 0 ] || fail "it does not run: $(cat err)"
        check "the length is kept" [ "$(of_stats ticks)" -eq 75 ]
        [ "$(of_stats tick_delay_max_ns)" -ge 10000000 ] || return 0
    done
    fail "20 runs had late ticks"
}

lacks_text() {
    ! grep -q "$1" "$2"
}

differ() {
    ! cmp --silent "$1" "$2"
}

# A value of all programs together.
of_stats() {
    "$python" -c "
import json
print(sum(one['$1'] for one in json.load(open('stats'))))"
}

section "programs with other numbers of faults look alike"
if run --mode process -- true 2>/dev/null; then
    for scheme in detwo eager-parallel; do
        options=(--pace fixed=25/s,length=75 --scheme "$scheme")
        for secret in 18 60; do
            shown_quietly "$secret" "$scheme.$secret"
            check "faults use ticks" [ "$(of_stats ticks_used)" -ge $((secret - 16)) ]
        done
        check "there is a trace" [ "$(wc -l <"$scheme.18")" -gt 500 ]
        check "$scheme: the same at the same ticks" cmp "$scheme.18" "$scheme.60"
    done
    section "programs that end in other ways, or start programs"
    options=(--pace fixed=1000/s,length=150)
    for how in killed at-once; do
        shown 40 "ends.$how" "$how"
        check "$how: the length is kept" [ $(($(of_stats ticks) % 150)) -eq 0 ]
    done
    shown 40 "ends.other"
    check "it ended in order" [ "$code" -eq 0 ]
    # shellcheck disable=SC2016
    forks='a=$(ls / | wc -l); echo "$a"; (echo inside); seq 100 | sort -n | tail -n 1'
    sh -c "$forks" >native
    expect 0 run --stats stats --pace fixed=2000/s,length=10 --resident 16 -- sh -c "$forks"
    check "forks work" cmp out native
    # What it started may still have ticks to come.
    check "the length is kept" "$python" -c "
import json
assert json.load(open('stats'))[0]['ticks'] % 10 == 0"
else
    leave_out "a length: $(cat err)"
fi
options=(--mode thread)
for secret in 18 60; do
    shown "$secret" "demand.$secret"
done
check "without a rate they differ" differ demand.18 demand.60
expect 0 run --pace fixed=10000/s --resident 16 --memory 8M --scheme ring -- sort /etc/services
check "the same output" cmp out <(sort /etc/services)

section "late ticks, and what is refused"
expect 0 run --pace fixed=100000/s --scheme path --resident 16 -- sort /etc/services
check "late ticks are told" grep -q "ticks were late" err
expect 2 run --pace fixed=0/s -- true
expect 2 run --pace fixed=9/s,length=8 --mode thread -- true
expect 2 run --pace fixed=9/s --scheme plain -- true

section "a socket with what is counted"
"$traceless" run --stats-socket socket --pace fixed=1000/s -- "$python" -c "
import time
held = [b'x' * (1 << 16) for _ in range(40)]
time.sleep(4)" &
until [ -S socket ]; do sleep 0.05; done
check "only its user may connect" [ "$(stat --format %a socket)" = 600 ]
"$python" - <<END
import json, socket
client = socket.socket(socket.AF_UNIX)
client.connect("socket")
client.settimeout(30)
lines = [json.loads(line) for line in client.makefile()]
assert len(lines) >= 3, lines
last = lines[-1]
assert last["schema"] == "traceless.run.stats.v1"
assert last["programs"][0]["faults"] > 0 and last["programs"][0]["ticks"] > 100, last
assert 0 < last["resident"] <= 256 and last["outside"] > 0 and last["store_bytes"] > 256 << 20, last
assert max(line["faults_per_second"] for line in lines) > 0, lines
END
wait %1
check "it goes with the program" [ ! -e socket ]
: >taken
expect 125 run --stats-socket taken -- true
check "a file is not replaced" [ -f taken ]

section "a control group's limit of memory"
group=
for place in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    mkdir "$place/traceless-test-$$" 2>/dev/null || continue
    group=$place/traceless-test-$$
    for limit in memory.max memory.limit_in_bytes; do
        [ -e "$group/$limit" ] && break 2
    done
    rmdir "$group"
    group=
done
if [ -n "$group" ] && echo 100M >"$group/$limit"; then
    in_group() {
        bash -c "echo \$\$ >'$group/cgroup.procs'; exec \"\$@\"" -- "$traceless" run "$@"
    }
    expect 0 in_group --memory 50M -- true
    check "what fits is not told" lacks_text "allows" err
    expect 0 in_group --memory 100M -- true
    check "what may not fit is told" grep -q "takes up to .* allows 100: .*--backing" err
    expect 0 in_group --memory 100M --backing pages -- true
    check "a file is not memory" lacks_text "allows" err
    expect 125 in_group --memory 1G --resident 30000 -- true
    check "what cannot fit is refused" grep -q "$group/$limit" err
    rmdir "$group"
else
    leave_out "a limit of memory: no control group can be made"
fi
