"""Verifies what a server that was killed has kept, then writes until the next one is killed.

nbd_writer.py SOCKET STATE BLOCKS SEED        prints "verified", then writes
nbd_writer.py SOCKET STATE BLOCKS verify      only verifies

STATE is a file that remembers which contents each block may have: the last that a flush
acknowledged, or any written since. Exit code 1 if a block holds anything else.
"""

import os
import pickle
import random
import struct
import sys
import threading

from nbd import BLOCK_LEN, Client

WRITERS = 3
BLOCKS_PER_REQUEST_MAX = 8
REQUESTS_PER_FLUSH = 40
STAMP = struct.Struct("<QQ")


def stamped(block, number):
    """A block that says at every 16 bytes which one it is, and of which write."""
    return STAMP.pack(block, number) * (BLOCK_LEN // STAMP.size)


def number_in(block, data):
    """The number of the write that a block was made by; 0 if it was never written."""
    _, number = STAMP.unpack_from(data)
    if number == 0 and not any(data):
        return 0
    if data != stamped(block, number):
        sys.exit(f"block {block} is mixed, or another one: it begins with {data[:32].hex()}")
    return number


class State:
    """What each block may hold."""

    def __init__(self, blocks):
        self.last_number = 0
        self.durable = [0] * blocks
        self.pending = [[] for _ in range(blocks)]

    @staticmethod
    def load(path, blocks):
        if not os.path.exists(path):
            return State(blocks)
        with open(path, "rb") as file:
            return pickle.load(file)

    def save(self, path):
        with open(path, "wb") as file:
            pickle.dump(self, file)


def verify(state, client):
    found = client.read(0, len(state.durable) * BLOCK_LEN)
    for block, pending in enumerate(state.pending):
        number = number_in(block, found[block * BLOCK_LEN : (block + 1) * BLOCK_LEN])
        if number != state.durable[block] and number not in pending:
            sys.exit(
                f"block {block} holds write {number}; {state.durable[block]} was acknowledged "
                f"by a flush, and then came {pending}"
            )
        # What was read now may not change back.
        state.durable[block] = number
        state.pending[block] = []


def write(state, path, rng, blocks, lock):
    """Writes to a range of blocks until the server is gone."""
    unflushed = []
    client = Client(path)
    try:
        while True:
            count = rng.randint(1, BLOCKS_PER_REQUEST_MAX)
            first = rng.randrange(blocks.start, blocks.stop - count)
            with lock:
                state.last_number += 1
                number = state.last_number
            written = [(first + i, number) for i in range(count)]
            for block, _ in written:
                state.pending[block].append(number)
            forced = rng.randrange(REQUESTS_PER_FLUSH) == 0
            data = b"".join(stamped(*each) for each in written)
            client.write(first * BLOCK_LEN, data, forced)
            unflushed += written
            if forced:
                # Of this request alone.
                acknowledge(state, written)
            if rng.randrange(REQUESTS_PER_FLUSH) == 0:
                client.flush()
                acknowledge(state, unflushed)
                unflushed = []
    except OSError:
        return


def acknowledge(state, written):
    """Of each block, no contents older than these are allowed any more."""
    for block, number in written:
        if number > state.durable[block]:
            state.durable[block] = number
            state.pending[block] = [n for n in state.pending[block] if n > number]


def main():
    path, kept, blocks, seed = sys.argv[1:]
    state = State.load(kept, int(blocks))
    client = Client(path)
    verify(state, client)
    print("verified", flush=True)
    client.close()
    if seed == "verify":
        return
    before = state.last_number
    lock = threading.Lock()
    share = int(blocks) // WRITERS
    threads = [
        threading.Thread(
            target=write,
            args=(
                state,
                path,
                random.Random(f"{seed} {i}"),
                range(i * share, (i + 1) * share),
                lock,
            ),
        )
        for i in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state.save(kept)
    print(f"{state.last_number - before} requests until it was killed")


if __name__ == "__main__":
    main()
