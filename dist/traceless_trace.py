"""Reads trace files (docs/trace-format.md) as columns. Needs nothing but Python, and uses numpy if
it is there.

    import traceless_trace

    trace = traceless_trace.read("a.trace")
    writes = [at for op, at in zip(trace.op, trace.at) if op == traceless_trace.WRITE]

`trace` has the columns `time`, `surface`, `op`, `at`, `length` and `epoch` (syncs before the
event): lists, or arrays of numpy. `frames` yields the same in parts of at most 16384 events, for
traces that do not fit into memory. `secrets` reads what users asked for, and `asked_by` tells which
request each event belongs to. `write_secrets` writes them, beside a trace of version 1.

As a program: traceless_trace.py FILE prints how much of what it holds; with --csv all events.
"""

import struct
import sys
import zlib
from collections import namedtuple

try:
    import numpy
except ImportError:
    numpy = None

OPS = ("read", "write", "sync")
SURFACES = ("storage", "dram", "page", "wire")
READ, WRITE, SYNC = range(3)

MAGIC = b"TLTRACE\0"
RECORD = struct.Struct("<QQIBBH")
FRAME_EVENTS = 1 << 14
BODY_MAX = 1 << 19
LAG_MAX = 128
U64 = (1 << 64) - 1

Columns = namedtuple("Columns", "time surface op at length epoch")
Secrets = namedtuple("Secrets", "seen op at length")


class TraceError(Exception):
    """A file that is no trace, or damaged."""


class Cut(TraceError):
    """A trace that its writer did not finish. What is before was yielded."""


def read(path, prefix=False):
    """All events of a trace. Of one that is cut or damaged what is before, if `prefix` is set."""
    return _joined(Columns, _frames(path, 0, prefix))


def frames(path, prefix=False):
    """The events of a trace, as columns of some each."""
    return _frames(path, 0, prefix)


def secrets(path, prefix=False):
    """What users asked for. `seen` is how many events came before each request."""
    all_of_it = _joined(Columns, _frames(path, 1, prefix))
    return Secrets(all_of_it.time, all_of_it.op, all_of_it.at, all_of_it.length)


def write_secrets(path, requests):
    """Writes what users asked for: (seen, op, at, length) of each request, in order."""
    with open(path, "wb") as file:
        file.write(struct.pack("<8sHHI", MAGIC, 2, 1, 0))
        for first in range(0, len(requests), FRAME_EVENTS):
            part = requests[first : first + FRAME_EVENTS]
            _write_frame(file, len(part), _encoded(part))
        _write_frame(file, 0, struct.pack("<Q", len(requests)))


def _write_frame(file, count, body):
    header = struct.pack("<II", count, len(body))
    file.write(header + struct.pack("<I", zlib.adler32(body, zlib.adler32(header))) + body)


def _encoded(requests):
    """The body of a frame, with numbers of eight bytes each: simple, and not small."""
    kinds = sorted({(length, op, 0, 0) for _, op, _, length in requests})
    number = {kind: nth for nth, kind in enumerate(kinds)}
    bits = next((b for b in (0, 1, 2, 4, 8) if len(kinds) <= 1 << b), 16)
    kinds_in_order = (number[length, op, 0, 0] for _, op, _, length in requests)
    of_each = sum(kind << bits * i for i, kind in enumerate(kinds_in_order))
    times, places, before, end = [], [], requests[0][0], 0
    for seen, _, at, length in requests:
        times.append(_folded(seen - before))
        places.append(_folded(at - end))
        before, end = seen, at + length
    body = struct.pack("<QQHHBBH", requests[0][0], 1, len(kinds), 1, 8, 8, 0)
    body += b"".join(struct.pack("<IBBH", *kind) for kind in kinds)
    body += of_each.to_bytes((bits * len(requests) + 7) // 8, "little")
    for column in (times, places):
        body += b"\xff" * ((len(column) + 3) // 4)
        body += struct.pack(f"<{len(column)}QQ", *column, 0)
    return body


def _folded(difference):
    difference = (difference + (1 << 63)) % (1 << 64) - (1 << 63)
    return (difference << 1 if difference >= 0 else (-difference << 1) - 1) & U64


def asked_by(count, requests):
    """The number of the request that each of `count` events belongs to; -1 before the first, and
    after a request for nothing."""
    if numpy:
        owner = numpy.searchsorted(requests.seen, numpy.arange(count), side="right") - 1
        idle = numpy.append(requests.op == SYNC, True)
        return numpy.where(idle[owner], -1, owner)
    owners, owner = [], -1
    for event in range(count):
        while owner + 1 < len(requests.seen) and requests.seen[owner + 1] <= event:
            owner += 1
        owners.append(-1 if owner < 0 or requests.op[owner] == SYNC else owner)
    return owners


def _frames(path, content, prefix):
    syncs = 0
    try:
        with open(path, "rb") as file:
            for time, surface, op, at, length in _raw_frames(file, path, content):
                epoch, syncs = _epochs(op, syncs)
                yield Columns(time, surface, op, at, length, epoch)
    except TraceError:
        if not prefix:
            raise


def _raw_frames(file, path, content):
    header = file.read(16)
    if len(header) < 16 or header[:8] != MAGIC:
        raise TraceError(f"{path} is no trace file: it does not begin with TLTRACE")
    version, second = struct.unpack_from("<HH", header, 8)
    if version == 1 and second == RECORD.size:
        if content != 0:
            raise TraceError(f"{path} is a trace and not the secrets of one")
        yield from _records(file, path)
    elif version != 2:
        raise TraceError(f"{path}: version {version} is not known here")
    elif second != content:
        raise TraceError(f"{path} holds {('a trace', 'secrets')[second == 1]}")
    else:
        yield from _framed(file, path)


def _records(file, path):
    """Version 1."""
    while data := file.read(RECORD.size * FRAME_EVENTS):
        rest = len(data) % RECORD.size
        time, at, length, op, surface = _fields_of_records(data[: len(data) - rest])
        if len(op) and (max(op) >= len(OPS) or max(surface) >= len(SURFACES)):
            raise TraceError(f"{path}: unknown operation or surface")
        yield time, surface, op, at, length
        if rest:
            raise TraceError(f"{path} ends in the middle of a record")


def _fields_of_records(data):
    if numpy:
        names = ["time", "at", "length", "op", "surface", "zero"]
        forms = ["<u8", "<u8", "<u4", "u1", "u1", "<u2"]
        records = numpy.frombuffer(data, numpy.dtype({"names": names, "formats": forms}))
        return [records[name] for name in names[:5]]
    rows = list(RECORD.iter_unpack(data))
    return [[row[field] for row in rows] for field in range(5)]


def _framed(file, path):
    """Version 2."""
    before = 0
    while True:
        header = file.read(12)
        if len(header) < 12:
            raise Cut(f"{path} is cut after {before} events")
        count, size, total = struct.unpack("<III", header)
        if size > BODY_MAX or count > FRAME_EVENTS:
            raise TraceError(f"{path} is damaged after {before} events")
        body = file.read(size)
        if len(body) < size:
            raise Cut(f"{path} is cut after {before} events")
        if zlib.adler32(body, zlib.adler32(header[:8])) != total:
            raise TraceError(f"{path} is damaged after {before} events: the sum is another")
        if count == 0:
            if body != struct.pack("<Q", before) or file.read(1):
                raise TraceError(f"{path}: its end is damaged")
            return
        yield _decode(count, body)
        before += count


def _decode(count, body):
    first_time, scale, kinds, lag, time_width, place_width = struct.unpack_from("<QQHHBB", body)
    if not 1 <= kinds <= count or not 1 <= lag <= LAG_MAX:
        raise TraceError("a frame has a header that cannot be")
    known = list(struct.iter_unpack("<IBBH", body[24 : 24 + 8 * kinds]))
    at = 24 + 8 * kinds
    bits = next((b for b in (0, 1, 2, 4, 8) if kinds <= 1 << b), 16)
    size = (count * bits + 7) // 8
    kind = _bits(body[at : at + size], count, bits)
    times, at = _numbers(body, at + size, count, time_width)
    places, at = _numbers(body, at, count, place_width)
    if at != len(body) or max(kind) >= kinds:
        raise TraceError("a frame has columns that do not fit")
    if numpy:
        length, op, surface, _ = numpy.array(known, dtype=numpy.uint32).T[:, kind]
        op, surface = op.astype(numpy.uint8), surface.astype(numpy.uint8)
        time = numpy.uint64(first_time) + numpy.cumsum(_unfolded(times), dtype=numpy.uint64)
        steps = _unfolded(places) * numpy.uint64(scale)
        steps[lag:] += length[:-lag].astype(numpy.uint64)
        padded = numpy.zeros(-(-count // lag) * lag, dtype=numpy.uint64)
        padded[:count] = steps
        place = numpy.cumsum(padded.reshape(-1, lag), axis=0, dtype=numpy.uint64).ravel()[:count]
        return time, surface, op, place, length
    length, op, surface = ([known[k][field] for k in kind] for field in range(3))
    time, place, now = [], [], first_time
    for i in range(count):
        now = (now + _unfolded(times[i])) & U64
        time.append(now)
        begin = place[i - lag] + length[i - lag] if i >= lag else 0
        place.append((begin + _unfolded(places[i]) * scale) & U64)
    return time, surface, op, place, length


def _bits(data, count, bits):
    """`count` numbers of `bits` bits each, the first the lowest."""
    if bits == 0:
        return numpy.zeros(count, dtype=numpy.int64) if numpy else [0] * count
    if bits == 16:
        numbers = struct.unpack(f"<{count}H", data)
        return numpy.array(numbers) if numpy else numbers
    per_byte = 8 // bits
    if numpy:
        shifts = numpy.arange(per_byte) * bits
        spread = numpy.frombuffer(data, dtype=numpy.uint8)[:, None] >> shifts
        return (spread & ((1 << bits) - 1)).ravel()[:count]
    return [data[i // per_byte] >> i % per_byte * bits & (1 << bits) - 1 for i in range(count)]


def _numbers(body, at, count, width):
    """A column of numbers of 0, 1, 2 or `width` bytes, and where it ends."""
    if width == 0:
        return (numpy.zeros(count, dtype=numpy.uint64) if numpy else [0] * count), at
    if not 3 <= width <= 8:
        raise TraceError("a frame has a column that is too wide")
    size = (count + 3) // 4
    codes = _bits(body[at : at + size], count, 2)
    at += size
    lengths = (0, 1, 2, width)
    if numpy:
        of_each = numpy.array(lengths)[codes]
        ends = numpy.cumsum(of_each)
        if at + int(ends[-1]) + 8 > len(body):
            raise TraceError("a frame is too short")
        masks = numpy.array([(1 << 8 * n) - 1 for n in lengths], dtype=numpy.uint64)
        words = numpy.ndarray(int(ends[-1]) + 1, dtype="<u8", buffer=body, offset=at, strides=(1,))
        return words[ends - of_each] & masks[codes], at + int(ends[-1]) + 8
    numbers = []
    for code in codes:
        end = at + lengths[code]
        numbers.append(int.from_bytes(body[at:end], "little"))
        at = end
    return numbers, at + 8


def _unfolded(number):
    if numpy and isinstance(number, numpy.ndarray):
        one = numpy.uint64(1)
        return (number >> one) ^ (numpy.uint64(0) - (number & one))
    return number >> 1 ^ -(number & 1)


def _epochs(op, before):
    """How many syncs came before each event, and before the next frame."""
    if numpy:
        ends = before + numpy.cumsum(op == SYNC)
        return ends - (op == SYNC), int(ends[-1]) if len(ends) else before
    epochs = []
    for one in op:
        epochs.append(before)
        before += one == SYNC
    return epochs, before


def _joined(kind, parts):
    columns = list(zip(*parts)) or [()] * len(kind._fields)
    if numpy:
        return kind(*(numpy.concatenate(c) if c else numpy.zeros(0, numpy.uint64) for c in columns))
    return kind(*([value for part in column for value in part] for column in columns))


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--csv"]):
        sys.exit("usage: traceless_trace.py FILE [--csv]")
    counts, first = [0] * len(OPS), 0
    try:
        for part in frames(sys.argv[1]):
            if sys.argv[2:]:
                if not first:
                    print("event,epoch,time,surface,op,at,length")
                rows = zip(part.epoch, part.time, part.surface, part.op, part.at, part.length)
                for event, (epoch, time, surface, op, at, length) in enumerate(rows, first):
                    print(event, epoch, time, SURFACES[surface], OPS[op], at, length, sep=",")
            first += len(part.op)
            for op in part.op:
                counts[op] += 1
    except (TraceError, OSError) as error:
        sys.exit(f"traceless_trace.py: {error}")
    if not sys.argv[2:]:
        print(f"{first} events: {counts[READ]} reads, {counts[WRITE]} writes, {counts[SYNC]} syncs")


if __name__ == "__main__":
    main()
