"""Measures the package: for each line `NAME COUNT` the nanoseconds of one operation."""

import itertools
import sys
import time

import numpy
import traceless

BLOCKS, BLOCK_LEN, BATCH = 4096, 4096, 1000
FEW_BLOCKS, FEW_ENTRIES = 4, 8


def key(nth):
    return b"key %d" % nth


def read(count):
    for nth in range(count):
        few.read(nth % FEW_BLOCKS)


def read_many(count):
    for _ in range(count):
        array.read_many_into(batch, buffer)


def get(count):
    for key in itertools.islice(itertools.cycle(keys), count):
        entries.get(key)


few, array = traceless.Array(FEW_BLOCKS, BLOCK_LEN), traceless.Array(BLOCKS, BLOCK_LEN)
for written in few, array:
    for nth in range(len(written)):
        written.write(nth, bytes([nth % 256]) * BLOCK_LEN)
batch = numpy.arange(BATCH, dtype=numpy.uint64) * 1237 % BLOCKS
buffer = bytearray(BATCH * BLOCK_LEN)
keys = [key(nth) for nth in range(FEW_ENTRIES)]
entries = traceless.Map(FEW_ENTRIES, key_len=16, value_len=8)
for nth in range(FEW_ENTRIES):
    entries.insert(keys[nth], b"value")

operations = {"read": read, "read-many": read_many, "get": get}
for line in sys.stdin:
    name, count = line.split()
    began = time.perf_counter_ns()
    operations[name](int(count))
    print((time.perf_counter_ns() - began) / int(count), flush=True)
