"""Volumes: as files, beside the command `traceless`, and what is refused."""

import io
import json
import os
import random
import subprocess
import threading

import numpy as np
import pytest

import traceless

SIZE = 1 << 20
TRACELESS = os.environ["TRACELESS"]


@pytest.fixture
def key_file(home):
    path = home / "key"
    path.write_bytes(os.urandom(32))
    return path


@pytest.fixture
def image(home, key_file):
    path = home / "image"
    traceless.Volume.create(path, SIZE, key_file=key_file, unfilled=True).close()
    return path


def command(*words, stdin=None):
    return subprocess.run([TRACELESS, "volume", *words], input=stdin, capture_output=True)


def test_is_a_raw_file(image, key_file):
    with traceless.Volume(image, key_file=key_file) as volume:
        assert isinstance(volume, io.RawIOBase)
        assert (volume.size, volume.block_len, volume.mode) == (SIZE, 4096, "rb+")
        assert volume.readable() and volume.writable() and volume.seekable()
        assert volume.write(b"hello") == 5 and volume.tell() == 5
        assert volume.seek(1) == 1 and volume.read(3) == b"ell"
        assert volume.seek(-2, io.SEEK_END) == SIZE - 2
        assert volume.write(b"abcd") == 2, "a raw file writes as far as there is room"
        assert volume.seek(-1, 1) == SIZE - 1 and volume.read() == b"b"
        assert volume.read(10) == b"" and volume.readinto(bytearray(3)) == 0
        with pytest.raises(OSError, match="the volume ends after"):
            volume.write(b"x")
        with pytest.raises(io.UnsupportedOperation):
            volume.fileno()
        with pytest.raises(io.UnsupportedOperation):
            volume.truncate(3)
        with pytest.raises(ValueError):
            volume.seek(-1)
        into = np.zeros(3, np.uint8)
        volume.seek(0)
        assert volume.readinto(into) == 3 and into.tobytes() == b"hel"
        volume.flush()
    assert volume.closed
    for call in [volume.read, volume.tell, volume.flush, volume.status]:
        with pytest.raises(ValueError, match="the volume is closed"):
            call()


def test_holds_what_was_written(image, key_file):
    rng, model = random.Random(1), bytearray(SIZE)
    with traceless.Volume(image, key_file=key_file) as volume:
        for _ in range(100):
            at, length = rng.randrange(SIZE - 20_000), rng.randrange(20_000)
            data = rng.randbytes(length)
            volume.write_at(at, data)
            model[at : at + length] = data
            at = rng.randrange(SIZE - 5000)
            assert volume.read_at(at, 5000) == model[at : at + 5000]
        into = bytearray(SIZE)
        volume.read_into(0, into)
        assert into == model
    with traceless.Volume(image, key_file=key_file, read_only=True) as volume:
        assert volume.readall() == model
        assert not volume.writable() and volume.mode == "rb"
        with pytest.raises(traceless.Error, match="opened for reading only"):
            volume.write_at(0, b"x")


def test_is_buffered(image, key_file):
    with traceless.Volume(image, key_file=key_file).buffered() as file:
        for number in range(1000):
            file.write(b"line %d\n" % number)
    with traceless.Volume(image, key_file=key_file, read_only=True).buffered() as file:
        assert [file.readline() for _ in range(1000)] == [b"line %d\n" % n for n in range(1000)]


def test_the_command_opens_what_python_made(image, key_file):
    with traceless.Volume(image, key_file=key_file) as volume:
        volume.write(b"x" * 10_000)
        mine = volume.status()
        busy = command("check", image, "--key-file", key_file)
        assert busy.returncode == 5, busy
    assert mine["in_use"] and mine["schema"] == "traceless.volume.status.v1"
    theirs = json.loads(command("status", image, "--key-file", key_file, "--json").stdout)
    assert theirs["clean"] and theirs["writes"] == 3
    assert (theirs["uuid"], theirs["cipher"]) == (volume.uuid, volume.cipher)
    checked = command("check", image, "--key-file", key_file)
    assert checked.returncode == 0, checked


def test_python_opens_what_the_command_made(home, key_file):
    made = command("create", home / "image", "--size", "1M", "--scheme", "sq", "--unfilled",
                   "--key-file", key_file)
    assert made.returncode == 0, made
    with traceless.Volume(home / "image", key_file=key_file) as volume:
        assert (volume.scheme, volume.size) == ("sq", SIZE)
        volume.write_at(5000, b"from Python")
    with traceless.Volume(home / "image", key=key_file.read_bytes()) as volume:
        assert volume.read_at(5000, 11) == b"from Python"
        assert volume.verify() == []


def test_passphrases(home):
    path = home / "image"
    cheap = {"kdf_memory": 1 << 20, "kdf_time": 1, "unfilled": True}
    traceless.Volume.create(path, SIZE, passphrase="secret", **cheap).close()
    assert traceless.Volume(path, passphrase=b"secret").status()["key_slots"][0]["kind"] == (
        "passphrase"
    )
    status = command("status", path, "--json", stdin=b"secret\n")
    assert json.loads(status.stdout)["key_slots"][0]["memory_kib"] == 1024
    with pytest.raises(traceless.WrongKeyError, match="no key slot opens with this key"):
        traceless.Volume(path, passphrase="other")
    with pytest.raises(traceless.WrongKeyError, match="the passphrase is empty"):
        traceless.Volume(path, passphrase="")


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "detwo", "refresh": 3},
        {"scheme": "detwo", "refresh": "1/3", "map": "disk"},
        {"scheme": "sq", "refresh": 2.5, "fanout": 2, "amortized": True},
        {"scheme": "ring"},
        {"scheme": "hive"},
        {"scheme": "datalair"},
        {"scheme": "plain", "cipher": "aegis-256"},
    ],
)
def test_every_scheme(options, home, key):
    with traceless.Volume.create(home / "image", SIZE, key=key, **options) as volume:
        volume.write_at(100, b"x" * 9000)
        volume.flush()
        assert volume.status()["scheme"] == options["scheme"]
    with traceless.Volume(home / "image", key=key) as volume:
        assert volume.read_at(99, 3) == b"\0xx"


def test_errors_have_the_words_and_kinds_of_the_command(image, key_file, home):
    def says_the_same(error, *words):
        said = command(*words, "--json")
        failure = json.loads(said.stderr.splitlines()[-1])
        assert failure["error"] == str(error.value)
        return failure["kind"]

    with pytest.raises(traceless.WrongKeyError) as error:
        traceless.Volume(image, key=os.urandom(32))
    (home / "other").write_bytes(os.urandom(32))
    assert says_the_same(error, "status", image, "--key-file", home / "other") == "key"
    with pytest.raises(traceless.WrongKeyError) as error:
        traceless.Volume(image, key=bytes(31))
    (home / "short").write_bytes(bytes(31))
    assert says_the_same(error, "status", image, "--key-file", home / "short") == "key"
    with pytest.raises(traceless.FileError) as error:
        traceless.Volume(key_file, key_file=key_file)
    assert says_the_same(error, "status", key_file, "--key-file", key_file) == "device"
    with traceless.Volume(image, key_file=key_file):
        with pytest.raises(traceless.BusyError) as error:
            traceless.Volume(image, key_file=key_file)
        assert says_the_same(error, "check", image, "--key-file", key_file) == "busy"
    with pytest.raises(traceless.FileError, match="exists already"):
        traceless.Volume.create(image, SIZE, key_file=key_file)


def test_damage_is_an_error_and_never_data(image, key_file):
    with traceless.Volume(image, key_file=key_file) as volume:
        for at in range(0, SIZE, 4096):
            volume.write_at(at, b"y" * 4096)
    trace = image.with_suffix(".trace")
    with traceless.Volume(image, key_file=key_file, trace=trace) as volume:
        volume.read_at(7 * 4096, 4096)
    seen = traceless.read_trace(trace)
    place = int(seen.at[(seen.op == traceless.READ) & (seen.length == 4096)][-1])
    content = bytearray(image.read_bytes())
    content[place + 100] ^= 1
    image.write_bytes(content)
    with traceless.Volume(image, key_file=key_file) as volume:
        assert [place["block"] for place in volume.verify()] == [7]
        with pytest.raises(traceless.DamageError, match=r"\(block 7\) was changed"):
            volume.read_at(7 * 4096 + 9, 10)
        assert volume.read_at(6 * 4096, 4096) == b"y" * 4096
    checked = command("check", image, "--key-file", key_file)
    assert checked.returncode == 1, checked


def test_an_anchor_notices_an_older_image(home, key):
    image, anchor = home / "image", home / "anchor"
    traceless.Volume.create(image, SIZE, key=key, anchor=anchor, unfilled=True).close()
    old = image.read_bytes()
    with traceless.Volume(image, key=key, anchor=anchor) as volume:
        volume.write(b"new")
    image.write_bytes(old)
    with pytest.raises(traceless.DamageError, match="went back"):
        traceless.Volume(image, key=key, anchor=anchor)


def test_what_cannot_be_made(home, key):
    for options, message in [
        ({}, "give one of"),
        ({"key": key, "passphrase": "x"}, "give one of"),
        ({"key": key, "scheme": "tree"}, "there is no scheme `tree`; there are detwo"),
        ({"key": key, "fanout": 3}, "`fanout` goes with a scheme of sq"),
        ({"key": key, "map": "cloud"}, "there is no map `cloud`"),
        ({"key": key, "cipher": "rot13"}, "there is no cipher"),
        ({"key": key, "refresh": "half"}, "impossible geometry"),
    ]:
        with pytest.raises(traceless.UsageError, match=message):
            traceless.Volume.create(home / "image", SIZE, **options)
    with pytest.raises(traceless.UsageError, match="must hold something"):
        traceless.Volume.create(home / "image", 0, key=key)
    assert not (home / "image").exists()
    volume = traceless.Volume.create(home / "image", SIZE, key=key, unfilled=True)
    with pytest.raises(IndexError, match="out of range"):
        volume.read_at(SIZE - 3, 4)
    with pytest.raises(traceless.RangeError, match="out of range"):
        volume.write_at(SIZE - 3, b"1234")


def test_threads_read_at_a_time(image, key_file):
    with traceless.Volume(image, key_file=key_file) as volume:
        for nth in range(SIZE // 4096):
            volume.write_at(nth * 4096, bytes([nth % 256]) * 4096)
        wrong = []

        def read(seed):
            rng = random.Random(seed)
            for _ in range(300):
                nth = rng.randrange(SIZE // 4096)
                if volume.read_at(nth * 4096, 4096) != bytes([nth % 256]) * 4096:
                    wrong.append(nth)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
