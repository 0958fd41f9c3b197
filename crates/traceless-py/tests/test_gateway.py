"""Cloud stores: in one folder, and with their host in a process of its own."""

import os
import subprocess
import threading

import numpy
import pytest

import traceless

TRACELESS = os.environ["TRACELESS"]
# A small tree.
SIZES = {"blocks": 1000, "block_len": 256, "limit_bits": 8}
SIMULATED = {**SIZES, "allow_simulated_tee": True}


@pytest.fixture
def host(home):
    """A host in a process of its own: its address, and its certificate."""
    words = [TRACELESS, "host", "--listen", "127.0.0.1:0", "--store", f"file:{home / 'tree'}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert "host at" in line
        yield {"host": line.split()[2].rstrip(","), "host_cert": home / "tree" / "host.pem"}
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def use(store):
    store[b"ann"] = b"blue"
    store[b"empty"] = b""
    store[b"long"] = numpy.arange(1000, dtype=numpy.uint16)
    assert store[b"ann"] == store.get(bytearray(b"ann")) == b"blue"
    assert store[b"long"] == numpy.arange(1000, dtype=numpy.uint16).tobytes()
    assert store.get(b"bob") is None and store.get(b"bob", 7) == 7
    assert store.get_many([b"empty", b"bob", b"ann"]) == [b"", None, b"blue"]
    store.update({b"ann": b"green", b"eve": b"red"})
    store.update([(b"dan", b"grey")])
    assert list(store) == store.names() == [b"ann", b"dan", b"empty", b"eve", b"long"]
    assert store.remove(b"dan") and not store.remove(b"dan")
    del store[b"empty"]
    assert len(store) == 3 and b"ann" in store and b"dan" not in store
    for missing in (lambda: store[b"dan"], lambda: store.__delitem__(b"dan")):
        with pytest.raises(KeyError, match="dan"):
            missing()


def test_a_store_in_a_folder(home):
    with traceless.Gateway(home / "store", **SIMULATED) as store:
        assert (store.blocks, store.block_len, len(store)) == (1000, 256, 0)
        assert "simulated" in store.enclave and repr(store).endswith("1000 blocks>")
        use(store)
        with pytest.raises(traceless.BusyError, match="in use"):
            traceless.Gateway(home / "store", **SIMULATED)
    assert store.closed
    with pytest.raises(traceless.UsageError, match="the gateway is closed"):
        store[b"ann"]
    store.close()
    with traceless.Gateway(home / "store", **SIMULATED) as again:
        assert again[b"ann"] == b"green" and len(again) == 3
    with pytest.raises(traceless.Error):
        traceless.Gateway(home / "store", **{**SIMULATED, "block_len": 512})


def test_a_store_at_a_host(home, host):
    with pytest.raises(traceless.UsageError, match="protects nothing|simulated"):
        traceless.Gateway(home / "state", **SIZES, **host)
    with pytest.raises(traceless.UsageError, match="no evidence of hardware"):
        traceless.Gateway(home / "state", **SIZES, **host, attestation_policy=home / "policy")
    with traceless.Gateway(home / "state", **SIMULATED, **host) as store:
        assert store.enclave == "simulated, in a process"
        use(store)
        counts = store.counts()
        assert counts["queries"] > 0 and counts["blocks_used"] == 1 + 1 + 8
    assert os.listdir(home / "state") and not (home / "state" / "host").exists()
    older = traceless.Gateway(home / "state", **SIMULATED, **host)
    assert older[b"eve"] == b"red"
    older.close()


def test_a_newer_gateway_takes_over(home, host):
    older = traceless.Gateway(home / "state", **SIMULATED, **host)
    older[b"ann"] = b"blue"
    subprocess.run(["cp", "-r", home / "state", home / "copy"], check=True)
    with traceless.Gateway(home / "copy", **SIMULATED, **host) as newer:
        assert newer[b"ann"] == b"blue"
        with pytest.raises(traceless.BusyError, match="another gateway"):
            older[b"ann"]
        with pytest.raises(traceless.BusyError, match="another gateway"):
            len(older)


def test_the_host_sees_the_same_whatever_is_read(home):
    with traceless.Gateway(home / "store", **SIMULATED) as store:
        store.update((b"%d" % n, bytes(100)) for n in range(300))
    for user, reads in [("a", range(200)), ("b", [7] * 200)]:
        trace = home / f"{user}.trace"
        with traceless.Gateway(home / "store", **SIMULATED, trace=trace) as store:
            # Between two rounds a block is read once, so the same many queries are sent by both
            # only where each asks for what is not at the gateway.
            for n in reads:
                store.get(b"%d" % n)
            assert store.counts()["queries"] > 0
    events = traceless.read_trace(home / "a.trace")
    assert set(events.surface) == {traceless.SURFACES.index("wire")}
    assert events.op[0] == traceless.READ and set(events.length[:4]) == {events.length[0]}


def test_a_constant_rate(home):
    with traceless.Gateway(home / "store", **SIMULATED, rate=400) as store:
        store[b"ann"] = b"blue"
        threads = [threading.Thread(target=store.get, args=(b"ann",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = store.counts()
        assert counts["ticks_used"] >= 1
        while store.counts()["ticks_unused"] == 0:
            pass


@pytest.mark.parametrize("options, words", [
    ({"rate": 0}, "`rate` is from 1"),
    ({"limit_bits": 3}, "`limit_bits` is from 4"),
    ({"arity": 1}, "2 to 64 children"),
    ({"kernel": "fast"}, "no kernel `fast`"),
    ({"durability": "none"}, "no durability `none`"),
    ({"host": "127.0.0.1:1"}, "`host_cert`"),
    ({"host_cert": "x"}, "go with a `host`"),
    ({"client_cert": "x"}, "go together"),
    ({"blocks": 0}, "impossible parameters"),
    ({"allow_simulated_tee": False}, "evidence"),
    ({"attestation_policy": "x"}, "exclude each other"),
])
def test_what_cannot_be(home, options, words):
    with pytest.raises(traceless.UsageError, match=words):
        traceless.Gateway(home / "store", **{**SIMULATED, **options})


def test_what_does_not_fit(home):
    with traceless.Gateway(home / "store", **SIMULATED) as store:
        store[b"ann"] = b"blue"
        with pytest.raises(traceless.Error, match="in use: remove something"):
            store[b"all"] = bytes(256 * 1000)
        with pytest.raises(traceless.UsageError, match="a name of 1 KiB"):
            store[bytes(1025)] = b""
        with pytest.raises(TypeError):
            store["ann"]
        assert store.names() == [b"ann"]


def test_what_another_changed(home):
    with traceless.Gateway(home / "store", **SIMULATED) as store:
        store.update((b"%d" % n, os.urandom(200)) for n in range(500))
    for path in (home / "store" / "host").rglob("*"):
        if path.is_file() and path.stat().st_size > 1 << 16:
            data = bytearray(path.read_bytes())
            data[:] = os.urandom(len(data))
            path.write_bytes(data)
    with pytest.raises(traceless.Error):
        with traceless.Gateway(home / "store", **SIMULATED) as store:
            for n in range(500):
                store.get(b"%d" % n)
