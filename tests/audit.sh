#!/usr/bin/env bash
# The auditor: schemes in trees and their planted faults, and traces of a library that is not ours.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=lib/audit.sh
source "$lib/audit.sh"

section "what is wrong with a scheme is told"
expect 1 audit tree --scheme mutant:one-dummy-path --level quick --schemes-only --html page.html
check "a page of the leak" grep -q '<td class="leak">leak</td>' page.html
check "pictures of two users" test "$(grep -c '<figure><svg' page.html)" = 2
expect 2 audit tree --scheme path --level quick --schemes-only --html missing/page.html
expect 1 audit tree --scheme mutant:searches-first --level quick --schemes-only --json
told "any(c['verdict'] == 'leak' and 'near' in c['name'] for c in told['claims'])"
told "not any('catches' in c['name'] for c in told['claims'])"
expect 2 audit tree --self-test --schemes-only
expect 2 audit tree --scheme mutant:none

section "a simulated processor's bus"
expect 0 audit sim --scheme ir-oram --level quick --json
expect_json traceless.audit.v1 target verdict claims
told "told['target'] == 'sim' and told['verdict'] == 'pass'"
told "sum('catches' in claim['name'] for claim in told['claims']) == 17"
told "sum('finds nothing in' in claim['name'] for claim in told['claims']) == 3"
told "any('not claimed to be hidden' in claim['evidence'] for claim in told['claims'])"
told "any('gaps tell' in c['name'] and 'differ in' in c['evidence'] for c in told['claims'])"
expect 0 audit sim --scheme rho --level quick --schemes-only --html page.html
check "both trees of two pairs at a fixed rate and one without" \
    test "$(grep -c '<figure><svg' page.html)" = 6
expect 1 audit sim --scheme mutant:t-per-program --level quick --schemes-only --json
told "any(c['verdict'] == 'leak' and 'follow from the paths' in c['name'] for c in told['claims'])"
expect 1 audit sim --scheme fetch-slots --level quick --schemes-only
expect 2 audit sim --scheme mutant:none

section "honest seeds raise no alarm, and are not judged twice"
expect 0 audit alarms --seeds 4 --file seeds --json
expect_json traceless.audit.alarms.v1 seeds alarms tests
told "told['seeds'] == 4 and told['alarms'] == [] and told['tests']"
expect 0 audit alarms --seeds 6 --file seeds
check "each seed is a line" [ "$(wc -l <seeds)" = 6 ]
expect 2 audit alarms --seeds 1 --file page.html

section "traces of ORAMs in Python: sound ones pass, with and without their secrets"
oram() {
    python3 "$lib/orams.py" "$@"
}
# Two users of one scheme, and what is asked for.
record() {
    local scheme=$1 a=$2 b=$3
    oram "$scheme" "$a" 1 a.trace --secret a.secret "${@:4}"
    oram "$scheme" "$b" 2 b.trace --secret b.secret "${@:4}"
}
for sound in "path random hot" "two-trees hot scan" "ring hot scan" "square-root hot scan" \
    "ring one random --style any-order" "square-root one random --style shelter-last"; do
    # shellcheck disable=SC2086 # each is several words
    record $sound
    expect 0 audit compare a.trace b.trace --json
    expect_json traceless.audit.compare.v1 equal judged_by not_judged claims
    told "told['judged_by'] == 'statistics' and not told['equal']"
    expect 0 audit compare a.trace b.trace --secret-a a.secret --secret-b b.secret
    expect 1 audit compare a.trace b.trace --equal
done

section "too few accesses are not judged, but for what is found in them"
record path hot random --accesses 700
expect 3 audit compare a.trace b.trace
check "what it takes is told" grep -q '^not judged: 700 accesses .* takes 1000' out
expect 1 audit compare a.trace b.trace --equal
record path hot random --accesses 700 --fault forgets
expect 1 audit compare a.trace b.trace

section "broken ones do not pass"
oram path random 1 a.trace
for fault in forgets counts-up leaf-of-block old-leaf; do
    oram path hot 3 broken.trace --fault "$fault"
    expect 1 audit compare a.trace broken.trace
done
for broken in "two-trees same-leaf" "two-trees old-leaf" "ring forgets" "ring old-leaf" \
    "ring fixed-slot" "ring eager" "square-root rereads" "square-root near"; do
    record "${broken% *}" random hot --fault "${broken#* }"
    expect 1 audit compare a.trace b.trace
done

section "what only shows beside what was asked for is found with it"
for scheme in path ring square-root; do
    record "$scheme" random random --fault skips-hits
    expect 0 audit compare a.trace b.trace
    expect 1 audit compare a.trace b.trace --secret-a a.secret --secret-b b.secret
    check "by whether they cause events" grep -q '^leak .*whether they cause events' out
done

section "what shows only beside other accesses, or in a long trace, is found"
# The detector's own tests plant more of them.
leaks=("xor-1 12 beside earlier" "parity 12 beside earlier" "order 12 beside earlier"
    "equal-1500 12 at any distance" "sum-of-two 40 several earlier")
before=
for leak in "${leaks[@]}"; do
    read -r fault thousands detector <<<"$leak"
    if [ "$thousands" != "$before" ]; then
        oram path random 1 a.trace --accesses "${thousands}000"
        before=$thousands
    fi
    oram path random 3 b.trace --secret b.secret --accesses "${thousands}000" --fault "$fault"
    expect 1 audit compare a.trace b.trace --secret-b b.secret
    check "by the test that is there for it" grep -q "^leak .*$detector" out
done
oram path random 4 b.trace --secret b.secret --accesses "${before}000"
expect 0 audit compare a.trace b.trace --secret-b b.secret

section "schemes are recorded, with their secrets, and judged by both"
for seed in 1 2; do
    expect 0 audit tree --scheme path --user "$([ "$seed" = 1 ] && echo hot || echo random)" \
        --seed "$seed" --level quick --trace "$seed.trace" --secret "$seed.secret"
done
check "nobody else reads secrets" [ "$(stat --format %a 1.secret)" = 600 ]
expect 0 audit compare 1.trace 2.trace --secret-a 1.secret --secret-b 2.secret --json
told "sum('tell nothing of secrets' in claim['name'] for claim in told['claims']) == 4"
told "told['claims'][-1]['evidence'].startswith('not judged: 8000 and 8000 accesses; times')"
expect 0 audit compare 1.trace 2.trace --html page.html
check "a page of both" grep -q 'A: 1.trace' page.html
expect 0 audit tree --scheme mutant:leaf-of-block --user random --seed 3 --level quick \
    --trace 3.trace --secret 3.secret
expect 1 audit compare 3.trace 3.trace --secret-a 3.secret --json
told "told['equal'] and told['judged_by'] == 'statistics'"
expect 4 audit compare 1.trace 2.trace --secret-a 2.trace
expect 4 audit compare 1.trace 1.secret
expect 2 audit compare 1.trace 2.trace --secret-a 1.secret --equal
for scheme in detwo sq linear plain; do
    for user in one random; do
        expect 0 audit volume --scheme "$scheme" --user "$user" --level quick --length 300 \
            --trace "$user.trace"
    done
    expect "$([ "$scheme" = plain ] && echo 1 || echo 0)" audit compare one.trace random.trace
done
expect 2 audit tree --secret 1.secret

section "Python reads what was recorded, with and without numpy"
reads() {
    "$python" "$lib/columns.py" "$root/dist" "$@"
}
# The package installs numpy for the system's Python, which need not be the first.
python=python3
"$python" -c 'import numpy' 2>err || python=/usr/bin/python3
for numpy in without with; do
    if [ "$numpy" = with ] && ! "$python" -c 'import numpy' 2>err; then
        leave_out "columns as arrays: there is no numpy"
        continue
    fi
    expect 0 reads "$numpy" 1.trace 1.secret
    expect 0 reads "$numpy" a.trace a.secret
done
expect 0 python3 "$root/dist/traceless_trace.py" 1.trace --csv
check "all of it" [ "$(wc -l <out)" -eq "$((1 + 2 * 8 * 8000))" ]
check "at most four bytes an event" \
    [ "$(stat --format %s 1.trace)" -le "$((4 * 2 * 8 * 8000))" ]

section "a trace whose writer was killed is cut, and its beginning is there"
"$traceless" audit tree --scheme path --level release --trace killed.trace >killed 2>&1 &
pid=$!
until [ "$(stat --format %s killed.trace 2>/dev/null || echo 0)" -gt 100000 ]; do
    sleep 0.02
done
end "$pid"
expect 4 audit compare killed.trace killed.trace
expect 1 python3 "$root/dist/traceless_trace.py" killed.trace
check "Python tells so" grep -q "is cut after" err
expect 0 audit convert killed.trace whole.trace --prefix
expect 0 audit compare whole.trace killed.trace --prefix --equal

section "traces of other tools"
for tool in blkparse bpftrace s3 page-faults; do
    expect 0 audit compare "$lib/recorded/$tool.txt" "$lib/recorded/$tool.txt" --format "$tool"
    expect 0 audit convert "$lib/recorded/$tool.txt" "$tool.trace"
    expect 0 audit compare "$lib/recorded/$tool.txt" "$tool.trace" --exact-order
    expect 4 audit convert "$lib/recorded/$tool.txt" other.trace --format redis
done
expect 4 audit compare key key
if command -v redis-server >/dev/null; then
    redis-server --port 0 --unixsocket "$scratch/redis" --save '' --daemonize no >redis.log &
    until redis-cli -s redis ping >/dev/null 2>&1; do
        sleep 0.05
    done
    for user in one random again; do
        redis-cli -s redis monitor >"$user.txt" &
        monitor=$!
        until [ -s "$user.txt" ]; do
            sleep 0.02
        done
        for i in {1..50}; do
            case $user in
                one) echo "get user:7" ;;
                *) echo "get user:$i" ;;
            esac
        done | redis-cli -s redis >/dev/null
        redis-cli -s redis set 'last "one"' $'\x01\n' >/dev/null
        until grep -q last "$user.txt"; do
            sleep 0.02
        done
        end "$monitor"
    done
    expect 0 audit convert random.txt random.trace
    check "every command" [ "$(cut -d ' ' -f 1 out)" -eq "$(grep -c '"' random.txt)" ]
    expect 0 audit compare random.txt again.txt
    expect 1 audit compare one.txt random.txt
else
    leave_out "what redis-cli monitor prints: there is no Redis"
fi
