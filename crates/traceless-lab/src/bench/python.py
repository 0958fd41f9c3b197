"""Measures the package: for each line `NAME COUNT` the nanoseconds of one operation."""

import sys
import time

import numpy
import traceless

BLOCKS, BLOCK_LEN, BATCH, ENTRIES = 4096, 4096, 1000, 1000


def key(nth):
    return b"key %d" % nth


def read(count):
    for nth in range(count):
        array.read(nth * 1237 % BLOCKS)


def read_many(count):
    for _ in range(count):
        array.read_many_into(batch, buffer)


def get(count):
    for nth in range(count):
        entries.get(keys[nth % ENTRIES])


array = traceless.Array(BLOCKS, BLOCK_LEN)
for nth in range(BLOCKS):
    array.write(nth, bytes([nth % 256]) * BLOCK_LEN)
batch = numpy.arange(BATCH, dtype=numpy.uint64) * 1237 % BLOCKS
buffer = bytearray(BATCH * BLOCK_LEN)
keys = [key(nth) for nth in range(ENTRIES)]
entries = traceless.Map(ENTRIES, key_len=16, value_len=8)
for nth in range(ENTRIES):
    entries.insert(keys[nth], b"value")

operations = {"read": read, "read-many": read_many, "get": get}
for line in sys.stdin:
    name, count = line.split()
    began = time.perf_counter_ns()
    operations[name](int(count))
    print((time.perf_counter_ns() - began) / int(count), flush=True)
