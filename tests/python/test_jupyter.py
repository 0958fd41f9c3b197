"""The notebooks in Jupyter's own kernel."""

import os
import pathlib
import time

import nbclient
import nbformat
import pytest

FOLDER = pathlib.Path(os.environ["TRACELESS_ROOT"], "crates", "traceless-py", "notebooks")
# A notebook may take so long on one core that others use, too.
SECONDS = 20


def printed(book):
    """The kinds of output of each cell, and what is printed but for numbers that vary."""
    return [
        [output.get("text") or sorted(output["data"]) for output in cell["outputs"]]
        for cell in book.cells if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook(path):
    stored, book = (nbformat.read(path, as_version=4) for _ in range(2))
    nbformat.validate(stored)
    begin = time.monotonic()
    nbclient.NotebookClient(book, timeout=4 * SECONDS).execute()
    assert time.monotonic() - begin < SECONDS
    before, after = printed(stored), printed(book)
    if "look-up" in path.stem:
        # Places drawn at random, and times.
        assert [len(cell) for cell in before] == [len(cell) for cell in after]
    else:
        assert before == after
