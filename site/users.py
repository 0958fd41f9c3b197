"""The two users whose writes the first page of the site shows.

users.py bookkeeper|photographer SOCKET   writes what the user writes, over NBD
users.py print FOLDER                     prints what the disk was asked for, as JavaScript

Both write the same number of blocks, and flush as often.
"""

import pathlib
import random
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/lib"), str(ROOT / "dist")]
import nbd
import traceless_trace

BLOCKS = 512
WRITES = 480
WRITES_PER_FLUSH = 8
USERS = ("bookkeeper", "photographer")


def blocks_of(user):
    """The blocks that a user writes, in order."""
    draw = random.Random(1)
    if user == "photographer":
        # One file behind the other.
        return [16 + n for n in range(WRITES)]
    # A few pages of a database again and again, others now and then, and its log.
    hot = [draw.randrange(64, 320) for _ in range(6)]
    kinds = {
        "hot": lambda n: draw.choice(hot),
        "page": lambda n: draw.randrange(64, 320),
        "log": lambda n: 400 + n // 3 % 64,
    }
    return [kinds[draw.choice(("hot", "hot", "page", "log"))](n) for n in range(WRITES)]


def write(user, socket):
    client = nbd.Client(socket)
    for number, block in enumerate(blocks_of(user)):
        client.write(block * nbd.BLOCK_LEN, nbd.pattern(number, nbd.BLOCK_LEN))
        if number % WRITES_PER_FLUSH == WRITES_PER_FLUSH - 1:
            client.flush()
    client.close()


def writes_of(path):
    """The first sector of 512 bytes of each write to the disk, and how many it touches."""
    trace = traceless_trace.read(path)
    events = zip(trace.op, trace.at, trace.length)
    return [
        f"{int(at) // 512},{-(-(int(at) + int(length)) // 512) - int(at) // 512}"
        for op, at, length in events
        if op == traceless_trace.WRITE
    ]


def show(folder):
    traces = {}
    for name, scheme in (("encrypted", "plain"), ("traceless", "detwo")):
        paths = [pathlib.Path(folder) / f"{scheme}.{user}.trace" for user in USERS]
        traces[name] = [writes_of(path) for path in paths]
    print("// Recorded by site/raster.sh: of each write the first sector, and how many.")
    print("window.tracelessTraces = {")
    for name, users in traces.items():
        print(f"  {name}: [")
        for writes in users:
            numbers = textwrap.fill(", ".join(writes).replace(",", ", ").replace("  ", " "), 96)
            print(f"    [\n{numbers}\n    ],")
        print("  ],")
    print("};")


if __name__ == "__main__":
    if sys.argv[1] == "print":
        show(sys.argv[2])
    else:
        write(sys.argv[1], sys.argv[2])
