"""The examples of the README and of the help run."""

import doctest
import os
import pathlib
import re

import pytest

import traceless

README = pathlib.Path(os.environ["TRACELESS_ROOT"], "crates", "traceless-py", "README.md")


def test_the_examples_of_the_readme(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        # pandas is not installed here.
        if "pandas" not in block:
            exec(block, names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "b'42' 1" and printed[1].endswith("events")
    assert printed[-3:] == ["pass", "gateway", "b'blue' True"]


@pytest.mark.parametrize("name", ["Array", "Gateway", "Map", "Volume", "advise"])
def test_the_examples_of_the_help(name, home, monkeypatch):
    monkeypatch.chdir(home)
    test = doctest.DocTestParser().get_doctest(
        getattr(traceless, name).__doc__, {"os": os, "traceless": traceless}, name, None, None
    )
    assert test.examples
    outcome = doctest.DocTestRunner().run(test)
    assert outcome.failed == 0, outcome
