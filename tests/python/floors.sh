#!/usr/bin/env bash
# Measures what calls of the Python package cost beside the same calls in Rust: the package is built
# and installed, and `traceless-lab bench python` gets the arguments. Called by `cargo xtask floors
# python`, whose output must be JSON alone.
set -euo pipefail
exec 3>&1 >&2
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# What users have, and not what the tests are compiled to.
if [ -z "${TRACELESS:-}" ]; then
    cd "$tests/.."
    cargo build --release --locked --package traceless-lab --package traceless-cli
    TRACELESS=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/traceless
fi
cargo=cargo
# shellcheck source-path=SCRIPTDIR source=../lib/common.sh
source "$tests/lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=../lib/python_package.sh
source "$lib/python_package.sh"
install_python_package ray==2.60.0
# Ray leaves a token in the home folder. The experiments are named from the checkout's root.
export HOME=$scratch
cd "$root"
"$(dirname "$traceless")/traceless-lab" bench python --python "$scratch/venv/bin/python" "$@" >&3
