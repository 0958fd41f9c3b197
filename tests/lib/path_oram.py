"""Writes the trace of a Path ORAM that shares no code with the library.

usage: path_oram.py TRACE USER SEED [sound | forgets | returns-early | counts-up]

USER is `hot` (four blocks) or `random` (all of them). A fault happens once in twenty accesses.
"""

import random
import struct
import sys

BLOCKS, LEVELS, SLOTS, BUCKET_LEN, ACCESSES = 512, 10, 4, 4096, 6000
READ, WRITE = 0, 1


def bucket(leaf, level):
    return (1 << level) - 1 + (leaf >> (LEVELS - 1 - level))


def trace(user, seed, fault):
    rng = random.Random(seed)
    leaves = 1 << (LEVELS - 1)
    position = [rng.randrange(leaves) for _ in range(BLOCKS)]
    tree, stash = {}, {}
    for access in range(ACCESSES):
        block = rng.randrange(4 if user == "hot" else BLOCKS)
        if fault == "returns-early" and block in stash:
            continue
        leaf = position[block]
        fails = fault != "sound" and rng.randrange(20) == 0
        position[block] = rng.randrange(leaves)
        if fails and fault == "forgets":
            position[block] = leaf
        if fails and fault == "counts-up":
            position[block] = (leaf + 1) % leaves
        for level in range(LEVELS):
            yield READ, bucket(leaf, level)
            stash.update(dict.fromkeys(tree.pop(bucket(leaf, level), ())))
        stash[block] = None
        for level in reversed(range(LEVELS)):
            here = bucket(leaf, level)
            fits = [b for b in stash if bucket(position[b], level) == here][:SLOTS]
            for b in fits:
                del stash[b]
            tree[here] = fits
            yield WRITE, here


def main():
    path, user, seed = sys.argv[1:4]
    fault = sys.argv[4] if len(sys.argv) > 4 else "sound"
    with open(path, "wb") as out:
        out.write(struct.pack("<8sHHI", b"TLTRACE\0", 1, 24, 0))
        for op, at in trace(user, seed, fault):
            out.write(struct.pack("<QQIBBH", 0, at * BUCKET_LEN, BUCKET_LEN, op, 0, 0))


main()
