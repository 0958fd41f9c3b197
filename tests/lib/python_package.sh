# The Python package, built from this checkout and installed. PROFILE names another profile of cargo
# than release. A program from elsewhere comes without a build of the workspace, which the wheel
# could be made of; what sources this says so before common.sh, in `cargo`.
# shellcheck shell=bash

profile=${PROFILE:-release}
crate=$root/crates/traceless-py
export TRACELESS=$traceless TRACELESS_ROOT=$root

# Makes the environment `venv`, with the package and the packages $@ from elsewhere.
install_python_package() {
    python3 -m venv venv
    venv/bin/pip install --quiet --no-compile --disable-pip-version-check maturin==1.16.0 \
        numpy==2.4.6 pytest==9.2.0 "$@" >pip.out 2>&1 || fail "pip: $(tail -n 5 pip.out)"
    # shellcheck disable=SC2154  # common.sh sets them, and `cargo` is set before it
    (cd "$root" && CARGO=${cargo:-$lib/workspace_cargo} PROFILE=$profile \
        "$scratch/venv/bin/maturin" build --profile "$profile" --locked \
        --manifest-path "$crate/Cargo.toml" --interpreter "$scratch/venv/bin/python" \
        --out "$scratch/wheels") >maturin.out 2>&1 || fail "maturin: $(tail -n 30 maturin.out)"
    check "the wheel is for every Python from 3.9 on" \
        compgen -G 'wheels/traceless-*-cp39-abi3-*.whl'
    venv/bin/pip install --quiet --no-compile --no-deps wheels/*.whl
    # Where no source of the package is, so that the installed one is tested.
    cp -r "$crate/tests" python_tests
}

# Runs the tests of the package in the files $@, all of them.
pytest() {
    local files=("${@/#/python_tests/}") passed
    venv/bin/python -m pytest --quiet -p no:cacheprovider "${files[@]}" >pytest.out 2>&1 ||
        fail "pytest: $(cat pytest.out)"
    passed=$(sed -n 's/^\([0-9]*\) passed.*/\1/p' pytest.out)
    check "no test was left out: $(tail -n 1 pytest.out)" grep -q '^[0-9]* passed in' pytest.out
    checks=$((checks + passed))
}
