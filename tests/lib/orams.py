"""Writes traces of ORAMs that share no code with the library, sound ones and broken ones.

usage: orams.py SCHEME USER SEED TRACE [--secret FILE] [--fault FAULT] [--accesses N]
                [--style STYLE]

SCHEME is one of `path`, `two-trees` (two Path ORAMs of equal depth, accessed in turn), `ring` (Ring
ORAM with early reshuffles) and `square-root`. USER is `hot` (four blocks), `one`, `scan` or
`random`. STYLE changes how a scheme goes about what it does: see STYLES.
"""

import argparse
import functools
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "dist"))
import traceless_trace

READ, WRITE = traceless_trace.READ, traceless_trace.WRITE
BLOCKS, LEVELS, BLOCK_LEN = 512, 10, 64
LEAVES = 1 << (LEVELS - 1)

FAULTS = {
    "path": (
        "forgets", "counts-up", "leaf-of-block", "skips-hits", "old-leaf", "xor-1", "xor-2",
        "xor-16", "difference", "xor-same", "equal-1500", "equal-40000", "left-half", "deep-bit",
        "parity", "counter", "sum-of-two", "changed", "order",
    ),
    "two-trees": ("forgets", "old-leaf", "same-leaf"),
    "ring": ("forgets", "old-leaf", "skips-hits", "fixed-slot", "eager"),
    "square-root": ("rereads", "skips-hits", "near"),
}
STYLES = {
    "path": ("plain",),
    "two-trees": ("plain", "both-then-both"),
    "ring": ("plain", "any-order", "headers", "bucket-writes", "leaf-first"),
    "square-root": ("plain", "shelter-last", "sorts", "shelter-rewritten"),
}


class Scheme:
    def __init__(self, rng, fault, style):
        self.rng, self.fault, self.style = rng, fault, style

    def fails(self, fault, share=1.0):
        return self.fault == fault and self.rng.random() < share


class Path(Scheme):
    """Buckets of four blocks in heap order, read and written as a whole."""

    SLOTS = 4
    BUCKET_LEN = SLOTS * BLOCK_LEN

    def __init__(self, rng, fault, style, base=0):
        super().__init__(rng, fault, style)
        self.base = base
        self.position = [rng.randrange(LEAVES) for _ in range(BLOCKS)]
        self.tree, self.stash, self.leaves, self.last = {}, set(), [], None
        self.last_leaf, self.swapped = {}, False

    def bucket(self, leaf, level):
        return (1 << level) - 1 + (leaf >> (LEVELS - 1 - level))

    def event(self, op, bucket):
        return op, self.base + bucket * self.BUCKET_LEN, self.BUCKET_LEN

    def next_leaf(self, block, leaf):
        if self.fails("forgets", 0.05):
            return leaf
        if self.fails("leaf-of-block", 0.05):
            return 97 * block % LEAVES
        if self.fails("counts-up", 0.05):
            return (leaf + 1) % LEAVES
        return self.rng.randrange(LEAVES)

    def access(self, block):
        # What is asked for again at once is at hand.
        if block == self.last and self.fails("skips-hits"):
            return
        leaf = self.told_by(block, self.position[block])
        self.last, self.last_leaf[block] = block, leaf
        if len(self.leaves) >= 40 and self.fails("old-leaf", 0.02):
            leaf = self.leaves[-40]
        yield from self.read(leaf)
        self.position[block] = self.next_leaf(block, self.position[block])
        self.stash.add(block)
        yield from self.evict(leaf, self.levels(block))

    def told_by(self, block, leaf):
        """The leaf that is seen in place of a random one, where each access tells of a secret."""

        def before(ago):
            return self.leaves[-ago] if len(self.leaves) >= ago else leaf

        def with_bit(bit, to):
            return leaf & ~(1 << bit) | (to & 1) << bit

        name, _, ago = self.fault.rpartition("-")
        if name == "xor" and ago.isdigit():
            return with_bit(0, before(int(ago)) ^ block)
        if name == "equal" and self.rng.random() < 0.02:
            return before(int(ago))
        if self.fails("difference"):
            return (before(1) + with_bit(6, block)) % LEAVES
        if self.fails("xor-same"):
            return with_bit(0, self.last_leaf.get(block, leaf) ^ block)
        if self.fails("left-half"):
            return with_bit(LEVELS - 2, self.rng.random() >= 0.513)
        if self.fails("deep-bit"):
            return with_bit(4, block >> 4)
        if self.fails("parity"):
            return leaf ^ (bin(leaf & 0xAA).count("1") ^ block ^ block >> 3) % 2 << 1
        if self.fails("counter"):
            return with_bit(2, bin(len(self.leaves) & 0x16D).count("1") ^ block)
        if self.fails("sum-of-two", 0.05):
            return (before(1) + before(2)) % LEAVES
        if self.fails("changed"):
            return with_bit(0, block ^ (self.last or 0))
        return leaf

    def levels(self, block):
        """The order in which a path is written."""
        levels = list(reversed(range(LEVELS)))
        if self.fault == "order":
            self.swapped ^= block % 2 == 1
            if self.swapped:
                levels[4], levels[5] = levels[5], levels[4]
        return levels

    def read(self, leaf):
        self.leaves.append(leaf)
        for level in range(LEVELS):
            here = self.bucket(leaf, level)
            yield self.event(READ, here)
            self.stash.update(self.tree.pop(here, ()))

    def evict(self, leaf, levels):
        position = self.position
        for level in levels:
            here = self.bucket(leaf, level)
            below = LEVELS - 1 - level
            prefix = leaf >> below
            fits = [b for b in self.stash if position[b] >> below == prefix][: self.SLOTS]
            self.tree[here] = fits
            self.stash.difference_update(fits)
            yield self.event(WRITE, here)


class TwoTrees(Scheme):
    """Labels of blocks in a tree as deep as that of the blocks."""

    def __init__(self, rng, fault, style):
        super().__init__(rng, fault, style)
        inner = fault if fault != "same-leaf" else "sound"
        far = (1 << LEVELS) * Path.BUCKET_LEN
        self.trees = [Path(rng, inner, style), Path(rng, inner, style, far)]

    def access(self, block):
        labels, data = self.trees
        if self.fails("same-leaf", 0.05):
            data.position[block] = labels.position[block // 2]
        if self.style == "both-then-both":
            accesses = [list(labels.access(block // 2)), list(data.access(block))]
            yield from (event for a in accesses for event in a if event[0] == READ)
            yield from (event for a in accesses for event in a if event[0] == WRITE)
        else:
            yield from labels.access(block // 2)
            yield from data.access(block)


class Ring(Scheme):
    """Ring ORAM: four real blocks and six dummies a bucket, an eviction after three accesses."""

    REAL, DUMMIES, EVICT_AFTER = 4, 6, 3
    SLOTS = REAL + DUMMIES

    def __init__(self, rng, fault, style):
        super().__init__(rng, fault, style)
        self.position = [rng.randrange(LEAVES) for _ in range(BLOCKS)]
        self.stash, self.leaves, self.accesses, self.evictions = {}, [], 0, 0
        # Of each bucket which block each slot holds, which are unread, and how often it was read.
        self.slots = [[None] * self.SLOTS for _ in range(2 * LEAVES - 1)]
        self.unread = [set(range(self.SLOTS)) for _ in self.slots]
        self.touched = [0] * len(self.slots)

    def bucket(self, leaf, level):
        return (1 << level) - 1 + (leaf >> (LEVELS - 1 - level))

    def levels(self):
        return reversed(range(LEVELS)) if self.style == "leaf-first" else range(LEVELS)

    def place(self, bucket, slot):
        header = 1 if self.style == "headers" else 0
        return (bucket * (self.SLOTS + header) + header + slot) * BLOCK_LEN

    def header(self, op, bucket):
        if self.style == "headers":
            yield op, self.place(bucket, -1), BLOCK_LEN

    def access(self, block):
        if block in self.stash and self.fails("skips-hits", 0.02):
            return
        leaf = self.position[block]
        if len(self.leaves) >= 40 and self.fails("old-leaf", 0.02):
            leaf = self.leaves[-40]
        self.leaves.append(leaf)
        if not self.fails("forgets", 0.05):
            self.position[block] = self.rng.randrange(LEAVES)
        for level in self.levels():
            yield from self.read_slot(self.bucket(leaf, level), level, block)
        for level in self.levels():
            yield from self.header(WRITE, self.bucket(leaf, level))
        self.stash[block] = True
        self.accesses += 1
        if self.accesses % self.EVICT_AFTER == 0:
            yield from self.evict()
        limit = self.DUMMIES
        for level in self.levels():
            bucket = self.bucket(leaf, level)
            # A bucket that is reshuffled before it has to be, if it held the block.
            eager = self.fails("eager") and block % 8 == 0 and level == 5
            if self.touched[bucket] >= limit or eager:
                yield from self.take(bucket)
                yield from self.refill(bucket, level)

    def read_slot(self, bucket, level, block):
        slots, unread = self.slots[bucket], self.unread[bucket]
        yield from self.header(READ, bucket)
        if block in slots:
            slot = slots.index(block)
            slots[slot] = None
        elif self.fails("fixed-slot") and level == 3:
            slot = 0
        else:
            # A dummy that was not read before.
            slot = self.rng.choice([s for s in unread if slots[s] is None])
        unread.discard(slot)
        self.touched[bucket] += 1
        yield READ, self.place(bucket, slot), BLOCK_LEN

    def take(self, bucket):
        """Reads as many unread slots as there may be blocks, real ones first."""
        slots, unread = self.slots[bucket], self.unread[bucket]
        real = [s for s in range(self.SLOTS) if slots[s] is not None]
        dummies = [s for s in unread if slots[s] is None]
        spare = self.rng.sample(dummies, min(self.REAL - len(real), len(dummies)))
        chosen = real + spare
        yield from self.header(READ, bucket)
        if self.style == "any-order":
            self.rng.shuffle(chosen)
        else:
            chosen.sort()
        for slot in chosen:
            if slots[slot] is not None:
                self.stash[slots[slot]] = True
            yield READ, self.place(bucket, slot), BLOCK_LEN

    def refill(self, bucket, level):
        fits = [b for b in self.stash if self.bucket(self.position[b], level) == bucket]
        slots = fits[: self.REAL]
        for block in slots:
            del self.stash[block]
        slots += [None] * (self.SLOTS - len(slots))
        self.rng.shuffle(slots)
        if self.fails("fixed-slot") and level == 3:
            # The first slot is always a dummy.
            empty = slots.index(None)
            slots[0], slots[empty] = slots[empty], slots[0]
        self.slots[bucket], self.touched[bucket] = slots, 0
        self.unread[bucket] = set(range(self.SLOTS))
        if self.style == "bucket-writes":
            yield WRITE, self.place(bucket, 0), self.SLOTS * BLOCK_LEN
        else:
            yield from self.header(WRITE, bucket)
            for slot in range(self.SLOTS):
                yield WRITE, self.place(bucket, slot), BLOCK_LEN

    def evict(self):
        bits = f"{self.evictions % LEAVES:0{LEVELS - 1}b}"
        leaf = int(bits[::-1], 2)
        self.evictions += 1
        for level in self.levels():
            yield from self.take(self.bucket(leaf, level))
        for level in reversed(range(LEVELS)):
            yield from self.refill(self.bucket(leaf, level), level)


class SquareRoot(Scheme):
    """Square-root ORAM: a shelter that is scanned, and a shuffle when it is full."""

    SHELTER = 23
    ALL = BLOCKS + SHELTER

    def __init__(self, rng, fault, style):
        super().__init__(rng, fault, style)
        self.shuffle()

    def shuffle(self):
        self.where = list(range(self.ALL))
        self.rng.shuffle(self.where)
        self.shelter, self.dummies, self.last = [], 0, 0

    def cell(self, op, slot):
        return op, (self.ALL + slot) * BLOCK_LEN, BLOCK_LEN

    def access(self, block):
        hit = block in self.shelter
        if hit and self.fails("skips-hits", 0.02):
            return
        if self.style != "shelter-last":
            yield from self.scan()
        if hit and not self.fails("rereads", 0.1):
            place = self.where[BLOCKS + self.dummies]
        else:
            place = self.where[block]
        if self.fails("near", 0.1):
            place = (self.last + 1) % self.ALL
        self.dummies += 1
        self.last = place
        yield READ, place * BLOCK_LEN, BLOCK_LEN
        if self.style == "shelter-last":
            yield from self.scan()
        yield self.cell(WRITE, self.dummies - 1)
        self.shelter.append(block)
        if self.dummies == self.SHELTER:
            yield from self.reshuffled()
            self.shuffle()

    def scan(self):
        for slot in range(self.SHELTER):
            yield self.cell(READ, slot)
            if self.style == "shelter-rewritten":
                yield self.cell(WRITE, slot)

    def reshuffled(self):
        places = range(self.ALL + self.SHELTER)
        if self.style == "sorts":
            # Exchanges of neighbours, as a sorting network makes them; four rounds of it.
            for distance in (1, 2, 4, 8):
                for place in places[:-distance]:
                    for op in (READ, WRITE):
                        yield op, place * BLOCK_LEN, BLOCK_LEN
                        yield op, (place + distance) * BLOCK_LEN, BLOCK_LEN
        else:
            for op in (READ, WRITE):
                for place in places:
                    yield op, place * BLOCK_LEN, BLOCK_LEN


SCHEMES = {"path": Path, "two-trees": TwoTrees, "ring": Ring, "square-root": SquareRoot}
USERS = {
    "hot": lambda rng, _: rng.randrange(4),
    "one": lambda _, __: 7,
    "scan": lambda _, nth: nth % BLOCKS,
    "random": lambda rng, _: rng.randrange(BLOCKS),
}


@functools.cache
def record(op, at, length):
    """An event as it stands in the file."""
    return struct.pack("<QQIBBH", 0, at, length, op, 0, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scheme", choices=SCHEMES)
    parser.add_argument("user", choices=USERS)
    parser.add_argument("seed", type=int)
    parser.add_argument("trace")
    parser.add_argument("--secret")
    parser.add_argument("--fault", default="sound")
    parser.add_argument("--style", default="plain")
    parser.add_argument("--accesses", type=int, default=6000)
    args = parser.parse_args()
    if args.fault not in ("sound", *FAULTS[args.scheme]):
        parser.error(f"the faults of {args.scheme} are {', '.join(FAULTS[args.scheme])}")
    if args.style not in STYLES[args.scheme]:
        parser.error(f"the styles of {args.scheme} are {', '.join(STYLES[args.scheme])}")
    rng = random.Random(f"{args.seed} {args.user}")
    scheme = SCHEMES[args.scheme](rng, args.fault, args.style)
    seen, asked = 0, []
    with open(args.trace, "wb") as out:
        out.write(struct.pack("<8sHHI", b"TLTRACE\0", 1, 24, 0))
        for nth in range(args.accesses):
            block = USERS[args.user](rng, nth)
            asked.append((seen, READ, block * BLOCK_LEN, BLOCK_LEN))
            events = [record(*event) for event in scheme.access(block)]
            out.write(b"".join(events))
            seen += len(events)
    if args.secret:
        traceless_trace.write_secrets(args.secret, asked)


main()
