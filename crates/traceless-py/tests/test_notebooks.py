"""The notebooks run, and hold what they printed. tests/python/run.sh runs them in Jupyter."""

import json
import os
import pathlib

import pytest

FOLDER = pathlib.Path(os.environ["TRACELESS_ROOT"], "crates", "traceless-py", "notebooks")
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def code(name):
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_all_of_them_are_there():
    assert NOTEBOOKS == [
        "audit-your-own-oram", "hide-a-look-up-table", "reproduce-figure-10",
        "snapshots-of-your-disk",
    ]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_they_hold_what_they_printed(name):
    cells = code(name)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs and all(output["output_type"] != "error" for output in outputs)
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs) or "audit" in name
    assert os.path.getsize(FOLDER / f"{name}.ipynb") < 100_000
    assert "/tmp/" not in (FOLDER / f"{name}.ipynb").read_text()


# The figure takes longest, and tests/experiments.sh makes others.
@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if "figure" not in name])
def test_their_code_runs(name):
    names = {"__name__": "__main__"}
    for cell in code(name):
        exec("".join(cell["source"]), names)
