#!/usr/bin/env bash
# The examples of the library, the simulator and the auditor run, and check what they show.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run() {
    cargo run --quiet --release --locked --package traceless --example "$@"
}

run contacts -- 2000
run map -- "$scratch/map"
run encrypted_array -- "$scratch/array"
cargo run --quiet --release --locked --package traceless-sim --example own_scheme
cargo run --quiet --release --locked --package traceless-audit --example own_oram -- "$scratch"
