#!/usr/bin/env bash
# The page with every figure of the papers is made, goes on after a kill, and opens in a browser.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

lab=$(dirname "$traceless")/traceless-lab
few=ir-oram/table-1,ir-oram/overheads,unified-oram/table-3,sqoram/table-2,audit/timing
report() {
    "$lab" report --checkout "$root" --out made --only "$few"
}

section "what is refused"
expect 2 "$lab" report --checkout "$root" --out made --only no-such-figure
expect 4 "$lab" report --checkout "$scratch" --out made
check "no page" [ ! -e made/report.html ]

section "a report that is killed goes on"
report >killed.out 2>killed.err &
until grep -q "^2/5 " killed.err; do
    kill -0 $! || fail "it ended: $(cat killed.err)"
    sleep 0.02
done
end $!
check "no page yet" [ ! -e made/report.html ]
# The command that it left behind may still be at work, and holds the folder.
until report >out 2>err; do
    grep -q "is at work there" err || fail "$(cat err)"
    sleep 0.2
done
check "what was made is there" [ "$(grep -c ': is there$' err)" -ge 2 ]
check "the rest was made" grep -q '^5/5 audit/timing' err
expect 0 report
check "all of it is there" [ "$(grep -c ': is there$' err)" -eq 5 ]
check "nothing failed" grep -q "4 figures, 5 audits, 0 of them" out
check "no part is left" [ -z "$(find made -name '*.part')" ]

section "it opens in a browser, at each size and in each light"
check "the page" python3 "$lib/report_page.py" made/report.html .
