"""Reads traces (docs/trace-format.md), without a line of the code that writes or compares them.

trace.py writes TRACE        prints the offset and length of each write, one a line
trace.py ticks TRACE PERIOD  the same, each after the tick, PERIOD nanoseconds apart, that its time
                             is nearest to
trace.py main-area IMAGE     prints where the main area of a detwo volume begins
trace.py compare A B         exit code 1 if the disk saw different writes between two syncs
trace.py follows IMAGE TRACE [FIRST]
                             exit code 1 if the disk saw anything but what docs/format.md says of
                             a detwo volume whose first write is number FIRST, else 0; prints how
                             many writes there were
"""

import itertools
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "dist"))
import traceless_trace
from traceless_trace import SYNC, WRITE

AREAS_AT = 196608
SUPERBLOCKS_AT = 65536
STRIPE_HEADER_LEN = 4096


def events(path):
    """The operation, offset and length of each event."""
    for part in traceless_trace.frames(path):
        for op, at, length in zip(part.op, part.at, part.length):
            yield int(op), int(at), int(length)


def ticks(path, period):
    """The tick, offset and length of each write. The first event is at tick 0."""
    begun = None
    for part in traceless_trace.frames(path):
        for time, op, at, length in zip(part.time, part.op, part.at, part.length):
            begun = int(time) if begun is None else begun
            if op == WRITE:
                yield (int(time) - begun + period // 2) // period, int(at), int(length)


def periods(path):
    """The stretches written between each two syncs."""
    written = []
    for op, at, length in events(path):
        if op == WRITE:
            written.append((at, at + length))
        elif op == SYNC:
            yield written
            written = []
    yield written


def joined(stretches):
    """The same bytes in as few stretches as possible, in order."""
    out = []
    for begin, end in sorted(stretches):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def compare(a, b):
    for number, pair in enumerate(itertools.zip_longest(periods(a), periods(b))):
        one, other = [None if period is None else joined(period) for period in pair]
        if one != other:
            return f"different after {number} syncs: {one} and {other}"[:300]
    return None


class Ring:
    """An area: which of its slots come next, and which were written."""

    def __init__(self, first, slots, per_stripe, body_len, following):
        self.first, self.slots = first, slots
        self.per_stripe, self.body_len = per_stripe, body_len
        self.stripe_len = STRIPE_HEADER_LEN + per_stripe * body_len
        rest = slots % per_stripe
        self.end = first + slots // per_stripe * self.stripe_len
        self.end += STRIPE_HEADER_LEN + rest * body_len if rest else 0
        self.end += -self.end % 4096
        self.following = following

    def take(self, at, end, bodies, stripes):
        """Notes the slots, and the stripes whose headers, lie in the bytes from at to end."""
        while at < end:
            stripe, within = divmod(at - self.first, self.stripe_len)
            if within < STRIPE_HEADER_LEN:
                stripes.add(stripe)
                step = STRIPE_HEADER_LEN - within
            else:
                slot, offset = divmod(within - STRIPE_HEADER_LEN, self.body_len)
                bodies.add(stripe * self.per_stripe + slot)
                step = self.body_len - offset
            at += step

    def advance(self, bodies, stripes):
        """Checks that these are the slots that follow, with their headers, and passes them."""
        due = [(self.following + i) % self.slots for i in range(len(bodies))]
        if bodies != set(due):
            return f"slots {sorted(bodies)[:5]}... where {due[:5]}... follow"
        if not stripes <= {slot // self.per_stripe for slot in due}:
            return f"headers of stripes {sorted(stripes)[:5]}... with other slots"
        self.following += len(bodies)
        return None


def geometry(image, first_write):
    """The two areas of a volume without map tiers, and its refresh ratio, from its header."""
    with open(image, "rb") as file:
        record = file.read(4096)[80:144]
    fields = struct.unpack("<HHIQIIIIQII", record[:48])
    kind, _, _, blocks, body_len, p, q, tiers, unsynced, _, discards = fields
    if (kind, tiers) != (2, 0):
        sys.exit(f"{image} is no detwo volume with its map in memory")
    # docs/format.md, section 7.
    blocks += discards * -(-blocks // (8 * body_len))
    holding_slots = -(-blocks * q // p) + unsynced + 64
    main_slots = blocks + -(-(unsynced + 1) * p // q) + 128
    holding = Ring(AREAS_AT, holding_slots, 64, body_len, first_write)
    main = Ring(holding.end, main_slots, 128, body_len, blocks + first_write * p // q)
    return holding, main, blocks, p, q


def follows(image, trace, first_write):
    """What is wrong, or None; and how many writes there were."""
    holding, main, blocks, p, q = geometry(image, first_write)
    for number, period in enumerate(periods(trace)):
        found = {holding: (set(), set()), main: (set(), set())}
        for at, end in period:
            if SUPERBLOCKS_AT <= at and end <= AREAS_AT:
                continue
            ring = holding if at < holding.end else main
            if not ring.first <= at <= end <= ring.end:
                return f"after {number} syncs: a write from {at} to {end}", 0
            ring.take(at, end, *found[ring])
        for ring, (bodies, stripes) in found.items():
            wrong = ring.advance(bodies, stripes)
            if wrong:
                return f"after {number} syncs: {wrong}", 0
        if main.following != blocks + holding.following * p // q:
            return f"after {number} syncs: {main.following} for {holding.following} writes", 0
    return None, holding.following - first_write


def main():
    verb, *words = sys.argv[1:]
    if verb == "writes":
        for op, at, length in events(words[0]):
            if op == WRITE:
                print(at, length)
        return None
    if verb == "ticks":
        for write in ticks(words[0], int(words[1])):
            print(*write)
        return None
    if verb == "main-area":
        print(geometry(words[0], 0)[1].first)
        return None
    if verb == "compare":
        return compare(*words)
    if verb == "follows":
        image, trace, first_write = (*words, "0")[:3]
        wrong, writes = follows(image, trace, int(first_write))
        if wrong is None:
            print(writes)
        return wrong
    return __doc__


if __name__ == "__main__":
    sys.exit(main())
