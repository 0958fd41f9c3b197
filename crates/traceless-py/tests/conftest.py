"""What the tests of the package share."""

import os
import pathlib

import pytest


@pytest.fixture
def key() -> bytes:
    return os.urandom(32)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of the test's own."""
    return tmp_path
