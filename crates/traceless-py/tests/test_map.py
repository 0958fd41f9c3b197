"""Maps: as dictionaries, in memory and in files."""

import random

import pytest

import traceless


@pytest.mark.parametrize("kind", ["oblivious", "private", "file"])
def test_is_a_map(kind, home, key):
    options = {"oblivious": {}, "private": {"oblivious": False}}.get(kind)
    if options is None:
        options = {"file": home / "map", "key": key}
    made = traceless.Map(200, key_len=8, value_len=5, **options)
    model, rng = {}, random.Random(1)
    for _ in range(1500):
        name, value = rng.randbytes(rng.randrange(2)), rng.randbytes(rng.randrange(6))
        action = rng.randrange(4)
        if action == 0:
            assert made.get(name) == model.get(name)
        elif action == 1:
            assert made.remove(name) == model.pop(name, None)
        elif len(model) < 200:
            assert made.insert(name, value) == model.get(name)
            model[name] = value
        assert len(made) == len(model)
    if kind == "file":
        made.close()
        made = traceless.Map.open(home / "map", 200, 8, 5, key=key)
        assert len(made) == len(model)
    assert all(made[name] == value and name in made for name, value in model.items())
    made.close()


def test_is_used_like_a_dict():
    colours = traceless.Map(10)
    assert not colours
    colours[b"red"] = bytearray(b"\xff\0\0")
    colours.update({b"blue": b"\0\0\xff", b"black": b""})
    colours.update([(b"white", b"\xff" * 3)])
    assert (len(colours), colours[b"red"], colours[b"black"]) == (4, b"\xff\0\0", b"")
    assert b"red" in colours and b"green" not in colours
    assert colours.get(b"green") is None and colours.get(b"green", 7) == 7
    assert colours.pop(b"red") == b"\xff\0\0" and colours.pop(b"red", None) is None
    with pytest.raises(KeyError, match="red"):
        colours.pop(b"red")
    with pytest.raises(KeyError):
        colours[b"red"]
    with pytest.raises(KeyError):
        del colours[b"red"]
    del colours[b"blue"]
    assert len(colours) == 2 and colours
    with pytest.raises(TypeError, match="does not list its keys"):
        iter(colours)
    assert (colours.capacity, colours.key_len, colours.value_len) == (10, 32, 32)


def test_what_does_not_fit():
    small = traceless.Map(8, key_len=8, value_len=8)
    with pytest.raises(traceless.UsageError, match="8 bytes are needed, 9 were given"):
        small[b"123456789"] = b""
    with pytest.raises(traceless.UsageError, match="wrong length"):
        small.insert(b"1", bytes(9))
    with pytest.raises(traceless.UsageError, match="no room for another entry: it was made for 8"):
        for number in range(200):
            small[number.to_bytes(8, "little")] = b"x"
    held = len(small)
    assert held > 8
    assert all(number.to_bytes(8, "little") in small for number in range(held))
    with pytest.raises(TypeError):
        small["text"] = b""


def test_files(home, key):
    path = home / "map"
    with traceless.Map(100, file=path, key=key, trace=home / "trace") as made:
        made[b"ann"] = b"blue"
        with pytest.raises(traceless.BusyError):
            traceless.Map.open(path, 100, key=key)
        made.sync()
    assert made.closed
    with pytest.raises(ValueError, match="the map is closed"):
        made[b"ann"]
    assert len(traceless.read_trace(home / "trace").op) > 10
    with pytest.raises(traceless.WrongKeyError):
        traceless.Map.open(path, 100, key=bytes(32))
    with pytest.raises(traceless.FileError, match="exists already"):
        traceless.Map(100, file=path, key=key)
    with traceless.Map.open(path, 100, key=key) as opened:
        assert opened[b"ann"] == b"blue" and len(opened) == 1


def test_equal_numbers_of_operations_leave_equally_long_traces(home, key):
    traces = []
    for user, act in [
        ("reader", lambda made, nth: made.get(b"same")),
        ("writer", lambda made, nth: made.insert(nth.to_bytes(2, "little"), b"value")),
    ]:
        trace = home / f"{user}.trace"
        with traceless.Map(2000, 8, 8, file=home / user, key=key, trace=trace) as made:
            for nth in range(100):
                act(made, nth)
        traces.append(trace)
    lengths = [len(traceless.read_trace(trace).op) for trace in traces]
    assert abs(lengths[0] - lengths[1]) < max(lengths) / 10, lengths
