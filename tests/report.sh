#!/usr/bin/env bash
# The page with every figure of the papers is made, goes on after a kill, and opens in a browser.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

lab=$(dirname "$traceless")/traceless-lab
few=ir-oram/table-1,ir-oram/overheads,unified-oram/table-3,sqoram/table-2,audit/timing
report=("$lab" report --checkout "$root" --out made --only "$few")

section "what is refused"
expect 2 "$lab" report --checkout "$root" --out made --only no-such-figure
expect 4 "$lab" report --checkout "$scratch" --out made
check "no page" [ ! -e made/report.html ]

section "a report that is killed goes on"
"${report[@]}" >killed.out 2>killed.err &
until grep -q "^2/5 " killed.err; do
    kill -0 $! || fail "it ended: $(cat killed.err)"
    sleep 0.02
done
end $!
check "no page yet" [ ! -e made/report.html ]
expect 0 "${report[@]}"
check "what was made is there" [ "$(grep -c ': is there$' err)" -ge 2 ]
check "the rest was made" grep -q '^5/5 audit/timing' err
expect 0 "${report[@]}"
check "all of it is there" [ "$(grep -c ': is there$' err)" -eq 5 ]
check "nothing failed" grep -q "4 figures, 5 audits, 0 of them" out
check "no part is left" [ -z "$(find made -name '*.part')" ]

section "a night that ends too soon: what was made is on the page, and nothing is left at work"
night=("$lab" report --checkout "$root" --out night --full --only)
short=unified-oram/table-2,unified-oram/table-3
"${night[@]}" "$short,audit/timing" >killed.out 2>killed.err &
killed=$!
until grep -q "^about .* are left" killed.err && [ "$(grep -c '^[12]/3 ' killed.err)" = 2 ] &&
    supervisor=$(pgrep -P "$killed") && command=$(pgrep -P "$supervisor"); do
    kill -0 "$killed" || fail "it ended: $(cat killed.err)"
    sleep 0.02
done
end "$killed"
for _ in $(seq 100); do
    [ -d "/proc/$command" ] || break
    sleep 0.02
done
check "its command ended with it" [ ! -d "/proc/$command" ]
check "the page says what is missing" grep -q '1 of 3 parts are not made yet' night/report.html
check "and has the rest" [ "$(grep -c '<details><summary>All numbers' night/report.html)" = 2 ]
expect 0 "${night[@]}" "$short,audit/timing" --list
check "the list, too" [ "$(grep -c ' is there$' out)" = 2 ]
check "with what is missing" grep -q '^1 of 3 are missing: about .* at level full$' out
expect 0 "${night[@]}" "$short"
check "what was made is not made again" [ "$(grep -c ': is there$' err)" = 2 ]
check "the page is whole" [ -z "$(grep 'not made yet' night/report.html || true)" ]

section "it opens in a browser, at each size and in each light"
check "the page" python3 "$lib/report_page.py" made/report.html .
