#!/usr/bin/env bash
# The auditor: schemes in trees and their planted faults, and traces of a library that is not ours.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

audit() {
    "$traceless" audit "$@"
}

told() {
    check "$1" python3 -c "import json; told = json.load(open('out')); assert $1, told"
}

section "schemes pass, and every planted fault is found"
expect 0 audit tree --level quick --json
expect_json traceless.audit.v1 target verdict claims
told "told['verdict'] == 'pass'"
told "sum('catches' in claim['name'] for claim in told['claims']) == 16"
told "sum('finds nothing in' in claim['name'] for claim in told['claims']) == 2"
told "sum(': leaves are uniform' in claim['name'] for claim in told['claims']) == 12"

section "all targets test themselves in one run"
expect 0 audit --self-test --json
expect_json traceless.audit.v1 target verdict claims
told "sum('catches' in claim['name'] for claim in told['claims']) >= 25"
told "sum(claim['name'].startswith('nothing is found in') for claim in told['claims']) == 21"
expect 2 audit --self-test tree

section "what is wrong with a scheme is told"
expect 1 audit tree --scheme mutant:searches-first --level ci --json
told "any(c['verdict'] == 'leak' and 'near' in c['name'] for c in told['claims'])"
expect 2 audit tree --scheme mutant:none

section "times tell nothing where that is claimed"
expect 0 audit timing --level quick --json
expect_json traceless.audit.v1 target verdict claims
told "sum('catches' in claim['name'] for claim in told['claims']) == 4"
expect 1 audit timing --scheme mutant:compares-early --level quick

section "traces of a Path ORAM in Python: sound ones pass"
oram=$lib/path_oram.py
python3 "$oram" a.trace random 1
python3 "$oram" b.trace hot 2
expect 0 audit compare a.trace b.trace --json
expect_json traceless.audit.compare.v1 equal judged_by claims
told "told['judged_by'] == 'statistics' and not told['equal']"
expect 1 audit compare a.trace b.trace --equal

section "broken ones do not"
for fault in forgets counts-up leaf-of-block; do
    python3 "$oram" broken.trace hot 3 "$fault"
    expect 1 audit compare a.trace broken.trace
done
