#!/usr/bin/env bash
# The auditor's tests of itself, and its audit of times.
# Alone: it audits times.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=lib/audit.sh
source "$lib/audit.sh"

section "all targets test themselves in one run"
expect 0 audit --self-test --json
expect_json traceless.audit.v1 target verdict claims
told "told['verdict'] == 'pass'"
told "sum('catches' in claim['name'] for claim in told['claims']) >= 46"
told "sum('finds nothing in' in claim['name'] for claim in told['claims']) >= 8"
told "sum(claim['name'].startswith('nothing is found in') for claim in told['claims']) == 58"
expect 2 audit --self-test tree

section "times tell nothing where that is claimed"
expect 0 audit timing --level quick --json
expect_json traceless.audit.v1 target verdict claims
told "sum('catches' in claim['name'] for claim in told['claims']) == 4"
expect 1 audit timing --scheme mutant:compares-early --level quick
