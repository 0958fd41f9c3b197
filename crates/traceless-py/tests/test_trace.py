"""Traces as columns: equal to those of the reader in plain Python, which shares no code."""

import os
import pickle
import struct
import sys

import numpy as np
import pytest

import traceless

sys.path.insert(0, os.path.join(os.environ["TRACELESS_ROOT"], "dist"))
import traceless_trace  # noqa: E402


@pytest.fixture
def trace(home, key):
    path = home / "volume.trace"
    with traceless.Volume.create(home / "image", 1 << 22, key=key, unfilled=True, trace=path) as v:
        for nth in range(300):
            v.write_at(nth * 7919 % 1000 * 4096, bytes([nth % 256]) * 5000)
            if nth % 50 == 0:
                v.flush()
    return path


def equal(mine, theirs):
    assert mine._fields == theirs._fields
    for name in mine._fields:
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name


def test_columns_are_those_of_the_other_reader(trace):
    columns = traceless.read_trace(trace)
    equal(columns, traceless_trace.read(trace))
    assert len(columns.op) > 1000
    types = [column.dtype for column in columns]
    assert types == [np.uint64, np.uint8, np.uint8, np.uint64, np.uint32, np.int64]
    assert (columns.op == traceless.SYNC).sum() >= 6 and columns.epoch.max() >= 6
    assert set(columns.surface) == {traceless.SURFACES.index("storage")}
    assert (traceless.READ, traceless.WRITE) == (traceless_trace.READ, traceless_trace.WRITE)
    assert traceless.OPS == traceless_trace.OPS and traceless.SURFACES == traceless_trace.SURFACES
    again = pickle.loads(pickle.dumps(columns))
    equal(again, columns)


def test_secrets(home):
    requests = [(0, 0, 64, 8), (3, 1, 1 << 40, 64), (9, 2, 0, 0)]
    traceless_trace.write_secrets(home / "secret", requests)
    secrets = traceless.read_secrets(home / "secret")
    equal(secrets, traceless_trace.secrets(home / "secret"))
    assert [tuple(map(int, row)) for row in zip(*secrets)] == requests
    with pytest.raises(traceless.FileError, match="secret: "):
        traceless.read_trace(home / "secret")


def test_version_1(home):
    path = home / "mine.trace"
    events = [(5, 4096, 64, 1, 0), (7, 0, 0, 2, 0), (8, 1 << 50, 1, 0, 3)]
    with open(path, "wb") as out:
        out.write(struct.pack("<8sHHI", b"TLTRACE\0", 1, 24, 0))
        for event in events:
            out.write(struct.pack("<QQIBBH", *event, 0))
    columns = traceless.read_trace(path)
    equal(columns, traceless_trace.read(path))
    assert columns.epoch.tolist() == [0, 0, 1]


def test_damage(trace, home):
    whole = trace.read_bytes()
    cut = home / "cut"
    cut.write_bytes(whole[:-5])
    with pytest.raises(traceless.DamageError, match="cut: it is cut after"):
        traceless.read_trace(cut)
    assert len(traceless.read_trace(cut, prefix=True).op) == len(traceless.read_trace(trace).op)
    cut.write_bytes(b"letter")
    with pytest.raises(traceless.FileError, match="cut: this is not a trace file"):
        traceless.read_trace(cut, prefix=True)
    with pytest.raises(OSError, match="missing"):
        traceless.read_trace(home / "missing")


def test_an_empty_trace(home, key):
    path = home / "trace"
    traceless_trace.write_secrets(path, [])
    assert len(traceless.read_secrets(path).op) == 0
