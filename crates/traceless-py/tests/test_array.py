"""Arrays: in memory and in files, with all kinds of buffers, and what is refused."""

import array as stdlib_array
import threading
import time

import numpy as np
import pytest

import traceless

KINDS = [
    {},
    {"scheme": "path"},
    {"scheme": "linear"},
    {"oblivious": True},
]


def block(seed, length=64):
    return bytes((seed * 7 + i) % 256 for i in range(length))


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("in_file", [False, True])
def test_is_an_array(options, in_file, home, key):
    place = {"file": home / "array", "key": key} if in_file else {}
    with traceless.Array(300, block_len=64, **options, **place) as array:
        assert (len(array), array.blocks, array.block_len) == (300, 300, 64)
        assert array.hides == "reads and writes"
        model = [bytes(64)] * 300
        assert array[17] == model[17]
        for step in range(200):
            addr = step * 37 % 300
            array[addr] = model[addr] = block(step)
            other = step * 11 % 300
            assert array.read(other) == model[other]
        assert array.read_many(range(300)).tobytes() == b"".join(model)
        if not in_file:
            return
    with traceless.Array.open(home / "array", 300, 64, key=key, **options) as array:
        assert list(array) == model
        assert array[-1] == model[-1]


@pytest.mark.parametrize(
    "wrap",
    [
        bytes,
        bytearray,
        memoryview,
        lambda b: np.frombuffer(b, np.uint8),
        lambda b: np.frombuffer(b, np.uint8).reshape(8, 8),
        lambda b: np.frombuffer(b, np.float64),
        lambda b: stdlib_array.array("I", b),
        lambda b: memoryview(bytearray(b"x" + b))[1:],
    ],
)
def test_takes_every_buffer(wrap):
    array = traceless.Array(10)
    array.write(3, wrap(block(1)))
    assert array.read(3) == block(1)
    array[4] = wrap(block(2))
    array.write_many([5], wrap(block(3)))
    assert array[4:6].tobytes() == block(2) + block(3)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: bytearray(n),
        lambda n: memoryview(bytearray(n)),
        lambda n: np.zeros(n, np.uint8),
        lambda n: np.zeros((n // 8, 8), np.uint8),
        lambda n: np.zeros(n // 4, np.uint32),
        lambda n: np.zeros(2 * n, np.uint8)[n:],
    ],
)
def test_reads_into_every_buffer(make):
    array = traceless.Array(10, contents=block(1) + block(2))
    into = make(64)
    array.read_into(1, into)
    assert bytes(memoryview(into).cast("B")) == block(2)
    into = make(128)
    array.read_many_into(np.array([1, 0], np.uint64), into)
    assert bytes(memoryview(into).cast("B")) == block(2) + block(1)


def test_reads_into_the_middle_of_a_buffer():
    array = traceless.Array(10, contents=block(1))
    whole = bytearray(192)
    array.read_into(0, memoryview(whole)[64:128])
    assert whole == bytes(64) + block(1) + bytes(64)


def test_buffers_that_cannot_be():
    array = traceless.Array(10)
    for buffer in [bytes(64), memoryview(bytes(64)), np.frombuffer(bytes(64), np.uint8)]:
        with pytest.raises(traceless.UsageError, match="cannot be written"):
            array.read_into(0, buffer)
    gaps = np.zeros(128, np.uint8)[::2]
    with pytest.raises(traceless.UsageError, match="gaps"):
        array.read_into(0, gaps)
    with pytest.raises(traceless.UsageError, match="gaps"):
        array.write(0, gaps)
    with pytest.raises(TypeError):
        array.write(0, "text")
    for wrong in [b"", bytes(63), bytes(65), np.zeros(63, np.uint8)]:
        with pytest.raises(traceless.UsageError, match="wrong length: 64 bytes are needed"):
            array.write(0, wrong)
    with pytest.raises(traceless.UsageError, match="128 bytes are needed, 64 were given"):
        array.write_many([0, 1], bytes(64))
    with pytest.raises(traceless.UsageError, match="wrong length"):
        array.read_into(0, bytearray(65))


def test_slices():
    array = traceless.Array(20, block_len=8)
    array[2:5] = np.arange(24, dtype=np.uint8).reshape(3, 8)
    rows = array[2:5]
    assert rows.shape == (3, 8) and rows.dtype == np.uint8
    assert (rows == np.arange(24).reshape(3, 8)).all()
    assert array[4:1:-1].tobytes() == rows[::-1].tobytes()
    assert array[30:].shape == (0, 8)
    assert array.read_many([]).shape == (0, 8)


def test_an_update_is_one_access(home, key):
    counts = []
    for nth, act in enumerate(
        [
            lambda array: array.read(3),
            lambda array: array.update(3, lambda old: bytes([old[0] + 1]) * 64),
            lambda array: array.update(4, lambda old: None),
        ]
    ):
        trace = home / f"{nth}.trace"
        array = traceless.Array(5000, file=home / str(nth), key=key, trace=trace)
        for _ in range(50):
            act(array)
        if nth == 1:
            assert array[3] == bytes([50]) * 64
        array.close()
        counts.append(len(traceless.read_trace(trace).op))
    assert max(counts) - min(counts) < max(counts) / 10, counts


def test_failing_updates_change_nothing():
    array = traceless.Array(10, contents=block(1))
    with pytest.raises(ZeroDivisionError):
        array.update(0, lambda old: 1 / 0)
    with pytest.raises(traceless.UsageError, match="64 bytes are needed, 3 were given"):
        array.update(0, lambda old: b"abc")
    with pytest.raises(traceless.UsageError, match="may not use its array"):
        array.update(0, lambda old: array[0])
    assert array[0] == block(1)


def test_what_is_out_of_range():
    array = traceless.Array(10)
    for addr in [10, -11, 1 << 40]:
        with pytest.raises(traceless.RangeError, match="is out of range: there are 10"):
            array[addr]
    for call in [lambda: array.read(10), lambda: array.read_many([3, 10]),
                 lambda: array.write(10, bytes(64))]:
        with pytest.raises(IndexError, match="block 10 is out of range"):
            call()
    with pytest.raises(OverflowError):
        array.read(-1)


def test_what_cannot_be_made(home, key):
    for options, message in [
        ({"block_len": 0}, "impossible geometry"),
        ({"scheme": "ring"}, "there is no scheme `ring`"),
        ({"scheme": "path", "oblivious": True}, "leave `scheme` out"),
        ({"file": home / "a"}, "give its `key`"),
        ({"key": key}, "goes with a `file`"),
        ({"trace": home / "t"}, "give a `file`"),
        ({"contents": bytes(65)}, "no whole blocks"),
        ({"contents": bytes(64 * 11)}, "out of range"),
    ]:
        with pytest.raises(traceless.UsageError, match=message):
            traceless.Array(10, **options)
    with pytest.raises(traceless.WrongKeyError, match="32 bytes, 31 were given"):
        traceless.Array(10, file=home / "a", key=bytes(31))
    assert not (home / "a").exists()


def test_files_that_are_not_what_they_should_be(home, key):
    path = home / "array"
    array = traceless.Array(1000, file=path, key=key)
    with pytest.raises(traceless.BusyError, match="in use by another process"):
        traceless.Array.open(path, 1000, key=key)
    with pytest.raises(traceless.FileError, match="exists already"):
        traceless.Array(1000, file=path, key=key)
    for addr in range(1000):
        array[addr] = block(addr)
    array.close()
    with pytest.raises(traceless.WrongKeyError, match="nothing was saved there, or under another"):
        traceless.Array.open(path, 1000, key=bytes(32))
    with pytest.raises(traceless.Error):
        traceless.Array.open(path, 1000, block_len=128, key=key)
    with pytest.raises(traceless.FileError, match="missing: cannot open"):
        traceless.Array.open(home / "missing", 1000, key=key)
    with pytest.raises(OSError):
        traceless.Array.open(home, 1000, key=key)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(traceless.DamageError, match="it was cut short"):
        traceless.Array.open(path, 1000, key=key)
    # The tree lies behind the vault; unused parts of a file are not read.
    changed = bytearray(whole)
    for at in range(len(whole) // 4, len(whole) // 3):
        changed[at] ^= 1
    path.write_bytes(changed)
    damaged = traceless.Array.open(path, 1000, key=key)
    with pytest.raises(traceless.DamageError, match="of the tree area was changed"):
        for addr in range(1000):
            assert damaged[addr] == block(addr)
    with pytest.raises(traceless.DamageError, match="an earlier access found damage"):
        damaged[0]
    del damaged
    path.write_bytes(whole)
    assert traceless.Array.open(path, 1000, key=key)[999] == block(999)


def test_the_end(home, key):
    with traceless.Array(10, file=home / "array", key=key) as array:
        assert not array.closed
        array.sync()
    assert array.closed and "closed" in repr(array)
    array.close()
    for call in [lambda: array[0], array.sync, lambda: array.write(0, bytes(64))]:
        with pytest.raises(ValueError, match="the array is closed"):
            call()


def test_synced_writes_outlive_the_process(home, key):
    import subprocess
    import sys

    program = """if True:
        import os, sys, traceless
        array = traceless.Array(1000, file=sys.argv[1], key=bytes.fromhex(sys.argv[2]))
        array[7] = b"s" * 64
        array.sync()
        array[7] = b"u" * 64
        os._exit(0)
    """
    path = home / "array"
    subprocess.run([sys.executable, "-c", program, str(path), key.hex()], check=True)
    with traceless.Array.open(path, 1000, key=key) as array:
        assert array[7] == b"s" * 64


def test_the_interpreter_runs_meanwhile():
    """A thread of Python counts while another is within one call."""
    array = traceless.Array(1 << 14, block_len=1024, oblivious=True)
    addrs, counted, done = list(range(4096)), 0, threading.Event()
    worker = threading.Thread(target=lambda: (array.read_many(addrs), done.set()))
    begin = time.monotonic()
    worker.start()
    while not done.is_set():
        counted += 1
        time.sleep(0.001)
    elapsed = time.monotonic() - begin
    worker.join()
    assert elapsed > 0.02, "the call is too short to show anything"
    assert counted > 5, f"{counted} looks in {elapsed} s"


def test_threads_share_an_array():
    array = traceless.Array(64, block_len=8)

    def one_more(old):
        return (int.from_bytes(old, "little") + 1).to_bytes(8, "little")

    def add(addr):
        for _ in range(500):
            array.update(addr % 4, one_more)

    threads = [threading.Thread(target=add, args=(nth,)) for nth in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int.from_bytes(array[addr], "little") for addr in range(4)] == [1000] * 4
