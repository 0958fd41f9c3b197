"""Checks that traces are read as columns.

columns.py DIST with|without TRACE [SECRET]   reads with numpy or without it
"""

import bisect
import sys

sys.path.insert(0, sys.argv[1])
import traceless_trace as tt

if sys.argv[2] == "without":
    tt.numpy = None
trace = tt.read(sys.argv[3])
count = len(trace.op)
assert count > 0 and all(len(column) == count for column in trace)
assert sum(len(part.op) for part in tt.frames(sys.argv[3])) == count
assert set(map(int, trace.op)) <= {tt.READ, tt.WRITE, tt.SYNC}
assert int(trace.epoch[-1]) <= sum(1 for op in trace.op if op == tt.SYNC)
if tt.numpy:
    tt.numpy, arrays = None, tt.numpy
    for column, other in zip(trace, tt.read(sys.argv[3])):
        assert list(map(int, column)) == other
    tt.numpy = arrays
if sys.argv[4:]:
    requests = tt.secrets(sys.argv[4])
    owners = tt.asked_by(count, requests)
    assert len(owners) == count
    for event in range(0, count, 97):
        owner = bisect.bisect_right(requests.seen, event) - 1
        if owner >= 0 and requests.op[owner] == tt.SYNC:
            owner = -1
        assert int(owners[event]) == owner, event
try:
    tt.read(__file__)
except tt.TraceError:
    sys.exit(0)
sys.exit("this is no trace")
