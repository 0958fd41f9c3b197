#!/usr/bin/env bash
# Measures what calls of the Python package cost beside the same calls in Rust: the package is built
# and installed, and `traceless-lab bench python` gets the arguments. Called by `cargo xtask floors
# python`, whose output must be JSON alone.
exec 3>&1 >&2
cargo=${TRACELESS:+cargo}
# shellcheck source-path=SCRIPTDIR source=../lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=../lib/python_package.sh
source "$lib/python_package.sh"
install_python_package ray==2.60.0
# Ray leaves a token in the home folder. The experiments are named from the checkout's root.
export HOME=$scratch
cd "$root"
"$(dirname "$traceless")/traceless-lab" bench python --python "$scratch/venv/bin/python" "$@" >&3
