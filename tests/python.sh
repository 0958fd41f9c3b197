#!/usr/bin/env bash
# The Python package: its wheel is built and installed, and used beside the command. PROFILE names
# another profile of cargo than release.
# A program from elsewhere comes without a build of the workspace, which the wheel could be made of.
cargo=${TRACELESS:+cargo}
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

profile=${PROFILE:-release}
crate=$root/crates/traceless-py
export TRACELESS=$traceless TRACELESS_ROOT=$root

section "an environment with what the package needs, and what tests it"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check maturin==1.16.0 numpy==2.4.6 \
    pytest==9.2.0 mypy==2.4.1 typing_extensions==4.16.0 >pip.out 2>&1 ||
    fail "pip: $(tail -n 5 pip.out)"

section "the wheel"
(cd "$root" && CARGO=${cargo:-$lib/workspace_cargo} PROFILE=$profile \
    "$scratch/venv/bin/maturin" build --profile "$profile" --locked \
    --manifest-path "$crate/Cargo.toml" --interpreter "$scratch/venv/bin/python" \
    --out "$scratch/wheels") >maturin.out 2>&1 || fail "maturin: $(tail -n 30 maturin.out)"
check "the wheel is for every Python from 3.9 on" compgen -G 'wheels/traceless-*-cp39-abi3-*.whl'
venv/bin/pip install --quiet --no-deps wheels/*.whl

section "arrays, maps, volumes, traces, the auditor and the simulator"
# Where no source of the package is, so that the installed one is tested.
cp -r "$crate/tests" python_tests
venv/bin/python -m pytest --quiet -p no:cacheprovider python_tests >pytest.out 2>&1 ||
    fail "pytest: $(cat pytest.out)"
passed=$(sed -n 's/^\([0-9]*\) passed.*/\1/p' pytest.out)
check "no test was left out: $(tail -n 1 pytest.out)" grep -q '^[0-9]* passed in' pytest.out
checks=$((checks + passed))

section "the types are those of the package, and a program that uses them is typed"
mkdir typed
expect 0 venv/bin/python python_tests/typed.py typed
expect 0 venv/bin/python -m mypy --strict --cache-dir mypy_cache python_tests/typed.py
expect 0 venv/bin/python -m mypy.stubtest --allowlist python_tests/stubtest.txt traceless
sed 's/block: bytes = array/block: str = array/' python_tests/typed.py >python_tests/wrong.py
expect 1 venv/bin/python -m mypy --strict --cache-dir mypy_cache python_tests/wrong.py

section "everything public has help"
expect 0 venv/bin/python - <<'END'
import inspect
import traceless

public = [name for name in dir(traceless) if not name.startswith("_")]
for name in public:
    item = getattr(traceless, name)
    if not callable(item):
        continue
    assert item.__doc__, name
    members = vars(item) if inspect.isclass(item) and item.__module__ == "traceless" else {}
    for member, value in members.items():
        if not member.startswith("_") and not issubclass(item, (tuple, Exception)):
            assert value.__doc__, (name, member)
            if callable(getattr(item, member)):
                assert inspect.signature(getattr(item, member)) is not None, (name, member)
assert "block_len=64" in traceless.Array.__text_signature__
assert "prefix=False" in traceless.read_trace.__text_signature__
END
