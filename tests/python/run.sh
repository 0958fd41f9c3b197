#!/usr/bin/env bash
# The Python package beside what is large: pyarrow, polars, pandas, Jupyter and Ray.
cargo=${TRACELESS:+cargo}
# shellcheck source-path=SCRIPTDIR source=../lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=../lib/python_package.sh
source "$lib/python_package.sh"

section "the wheel, in an environment with all of them"
install_python_package pyarrow==26.0.1 polars==2.1.0 pandas==3.1.1 nbclient==0.11.0 \
    nbformat==5.11.1 ipykernel==7.4.0 ray==2.60.0
cp "$root"/tests/python/test_*.py python_tests

section "Arrow and tables"
pytest test_tools.py

section "the notebooks, as Jupyter runs them"
pytest test_jupyter.py

section "a sweep on two workers of Ray"
# Ray leaves a token in the home folder, and its workers give way to all other programs.
HOME=$scratch RAY_worker_niceness=0 pytest test_ray.py
