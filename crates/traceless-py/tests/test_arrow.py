"""Arrow: traces and batches of blocks, taken by the Arrow PyCapsule interface."""

import os
import struct

import nanoarrow
import numpy
import pytest

import traceless


@pytest.fixture
def trace(home, key):
    """A trace of more than one batch, with syncs."""
    path = home / "trace"
    with traceless.Volume.create(home / "image", 1 << 24, key=key, unfilled=True) as volume:
        volume.write_at(0, bytes(1 << 24))
    with traceless.Volume(home / "image", key=key, trace=path) as volume:
        for n in range(40000):
            volume.read_at(n % 4096 * 4096, 16)
            if n % 1000 == 0:
                volume.write_at(0, bytes(4096))
                volume.flush()
    return path


def test_a_trace_is_a_stream_of_batches(trace):
    columns = traceless.read_trace(trace)
    stream = traceless.TraceStream(trace)
    for _ in range(2):
        batches = nanoarrow.ArrayStream(stream).read_all()
        assert len(batches) == len(columns.at)
        fields = {field.name: field.type.name for field in batches.schema.fields}
        assert list(fields) == list(columns._fields)
        assert [name.lower() for name in fields.values()] == [c.dtype.name for c in columns]
    for name, column in columns._asdict().items():
        assert numpy.array_equal(list(batches.child(list(fields).index(name)).iter_py()), column)
    assert columns.epoch[-1] > 0


def test_a_long_trace_has_more_than_one_batch(home):
    path = home / "long.trace"
    events = b"".join(struct.pack("<QQIBBH", n, n * 64, 64, n % 2, 1, 0) for n in range(70000))
    path.write_bytes(struct.pack("<8sHHI", b"TLTRACE\0", 1, 24, 0) + events)
    batches = nanoarrow.ArrayStream(traceless.TraceStream(path)).read_all()
    assert [len(batch) for batch in batches.iter_chunks()] == [1 << 16, 70000 - (1 << 16)]
    assert list(batches.child(3).iter_py()) == [n * 64 for n in range(70000)]


def test_a_trace_that_is_cut(trace, home):
    whole = len(traceless.read_trace(trace).at)
    cut = home / "cut.trace"
    cut.write_bytes(trace.read_bytes()[:-100])
    with pytest.raises(traceless.DamageError) as error:
        traceless.read_trace(cut)
    words = str(error.value).split(": ", 1)[1]
    with pytest.raises(Exception, match=words[:20]):
        nanoarrow.ArrayStream(traceless.TraceStream(cut)).read_all()
    before = nanoarrow.ArrayStream(traceless.TraceStream(cut, prefix=True)).read_all()
    assert 0 < len(before) == len(traceless.read_trace(cut, prefix=True).at) < whole
    with pytest.raises(traceless.FileError):
        traceless.TraceStream(home / "missing.trace")
    (home / "text").write_text("no trace, but a text of some length")
    with pytest.raises(traceless.Error):
        traceless.TraceStream(home / "text")


def test_blocks_are_an_array_without_copies():
    array = traceless.Array(1000, block_len=48, contents=os.urandom(48 * 1000))
    addrs = [3, 999, 3, 0]
    blocks = array.read_batch(addrs)
    column, again = nanoarrow.c_array(blocks), nanoarrow.c_array(blocks)
    assert column.schema.format == "w:48" and len(column) == len(blocks) == 4
    # Whoever takes the array gets the same memory, and keeps it.
    assert column.buffers == again.buffers
    del blocks, again
    values = list(nanoarrow.Array(column).iter_py())
    assert values == [array[addr] for addr in addrs]
    # And the way back: what Arrow holds is written from where it lies.
    array.write_many([10, 11, 12, 13], nanoarrow.Array(column).buffer(1))
    assert array.read_many([10, 11, 12, 13]).tobytes() == b"".join(values)
    assert len(array.read_batch([])) == 0
    with pytest.raises(traceless.RangeError):
        array.read_batch([1000])
