#!/usr/bin/env bash
# The Python package: its wheel is built and installed, and used beside the command. Beside large
# packages it is used in tests/python/run.sh.
# A program from elsewhere comes without a build of the workspace, which the wheel could be made of.
cargo=${TRACELESS:+cargo}
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=lib/python_package.sh
source "$lib/python_package.sh"

section "the wheel, in an environment with what it needs and what tests it"
install_python_package mypy==2.4.1 typing_extensions==4.16.0 nanoarrow==0.9.0

section "arrays, maps, volumes, stores, traces, the auditor, the simulator and advice"
pytest

section "the types are those of the package, and a program that uses them is typed"
mkdir typed
expect 0 venv/bin/python python_tests/typed.py typed
expect 0 venv/bin/python -m mypy --strict --cache-dir mypy_cache python_tests/typed.py
expect 0 venv/bin/python -m mypy.stubtest traceless
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
assert traceless.__doc__.startswith("Storage")
assert "prefix=False" in traceless.read_trace.__text_signature__
END
