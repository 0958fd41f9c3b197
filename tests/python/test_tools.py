"""Traces, blocks and reports in pyarrow, polars and pandas."""

import os
import struct

import numpy
import pandas
import polars
import pyarrow
import pytest

import traceless


@pytest.fixture
def trace(home):
    path = home / "long.trace"
    events = b"".join(struct.pack("<QQIBBH", n, n * 64, 64, n % 2, 1, 0) for n in range(70000))
    path.write_bytes(struct.pack("<8sHHI", b"TLTRACE\0", 1, 24, 0) + events)
    return path


def test_a_trace_is_a_table(trace, home):
    columns = traceless.read_trace(trace)
    table = pyarrow.table(traceless.TraceStream(trace))
    assert table.column_names == list(columns._fields) and table.column("at").num_chunks == 2
    for name, column in columns._asdict().items():
        assert table.schema.field(name).type == pyarrow.from_numpy_dtype(column.dtype)
        assert numpy.array_equal(table.column(name).to_numpy(), column)
    frame = polars.DataFrame(traceless.TraceStream(trace))
    assert frame.equals(polars.DataFrame(columns._asdict()))
    assert len(pandas.DataFrame(columns._asdict())) == len(columns.at)
    trace.write_bytes(trace.read_bytes()[:-10])
    with pytest.raises(Exception, match="cut|whole|ends"):
        polars.DataFrame(traceless.TraceStream(trace))
    with pytest.raises(Exception, match="cut|whole|ends"):
        pyarrow.table(traceless.TraceStream(trace))


def test_blocks_are_an_array_without_copies():
    array = traceless.Array(1000, block_len=48, contents=os.urandom(48 * 1000))
    addrs = [3, 999, 3, 0]
    blocks = array.read_batch(addrs)
    column, again = pyarrow.array(blocks), pyarrow.array(blocks)
    assert column.type == pyarrow.binary(48)
    assert column.buffers()[1].address == again.buffers()[1].address
    del blocks, again
    assert column.to_pylist() == [array[addr] for addr in addrs]
    array.write_many([10, 11, 12, 13], column.buffers()[1])
    assert array.read_many([10, 11, 12, 13]).tobytes() == b"".join(column.to_pylist())
    assert polars.Series(array.read_batch([10])).to_list() == [array[10]]


def test_reports_are_tables(home):
    figure = os.path.join(os.environ["TRACELESS_ROOT"], "experiments", "ir-oram", "fig12.toml")
    report = traceless.sweep([figure], home / "out", records=100, jobs=2)
    rows = traceless.report_rows(report)
    columns = ["experiment", "metric", "variant", "workload", "value"]
    for frame in (polars.DataFrame(rows), pandas.DataFrame(rows)):
        assert list(frame.columns) == columns and len(frame) == len(rows) > 0
        assert str(frame["value"].dtype).lower() == "float64"
