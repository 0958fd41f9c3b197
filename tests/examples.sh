#!/usr/bin/env bash
# The examples of the library and of the simulator run, and check what they show.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run() {
    local example
    example=$(tests/lib/example "$1")
    "$example" "${@:2}"
}

run contacts 2000
run map "$scratch/map"
run encrypted_array "$scratch/array"
run own_scheme
