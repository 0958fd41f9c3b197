"""What the types of the package promise, for mypy --strict; it also runs."""

import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import traceless


def arrays() -> None:
    array: traceless.Array = traceless.Array(100, block_len=8, oblivious=True)
    array[3] = np.arange(8, dtype=np.uint8)
    block: bytes = array[3]
    rows: NDArray[np.uint8] = array[2:4]
    assert rows[1].tobytes() == block
    into = bytearray(16)
    array.read_many_into([3, 3], into)
    assert sum(len(part) for part in array) == 800
    old: bytes = array.update(3, lambda block: bytes(len(block)))
    assert old == block


def maps() -> None:
    with traceless.Map(10, key_len=8, value_len=8) as ages:
        before: bytes | None = ages.insert(b"ann", b"\x2a")
        assert before is None and b"ann" in ages
        age: bytes | int = ages.get(b"bob", 0)
        assert age == 0 and len(ages) == 1


def volumes(folder: str) -> None:
    key, trace = os.urandom(32), os.path.join(folder, "trace")
    image = os.path.join(folder, "image")
    with traceless.Volume.create(image, 1 << 20, key=key, unfilled=True) as volume:
        written: int = volume.write(b"hello")
        assert written == 5
    with traceless.Volume(image, key=key, trace=trace) as volume:
        state: dict[str, Any] = volume.status()
        assert state["scheme"] == volume.scheme
        volume.flush()
    columns = traceless.read_trace(trace)
    reads: NDArray[np.uint64] = columns.at[columns.op == traceless.READ]
    assert len(reads) >= 0
    report = traceless.compare_traces(trace, trace)
    assert report["verdict"] == "pass"


def stores(folder: str) -> None:
    with traceless.Gateway(
        os.path.join(folder, "store"), 500, 64, limit_bits=4, allow_simulated_tee=True
    ) as store:
        store.update({b"ann": b"blue"})
        colours: list[bytes | None] = store.get_many([b"ann", b"bob"])
        assert colours == [b"blue", None]
    advice: dict[str, Any] = traceless.advise("cloud", "1G", rate=100)
    assert advice["product"] == "gateway"


def failures() -> None:
    try:
        traceless.Array(10).read(10)
    except traceless.RangeError as error:
        kind: traceless.Error = error
        assert isinstance(kind, IndexError)


if __name__ == "__main__":
    arrays()
    maps()
    volumes(sys.argv[1])
    stores(sys.argv[1])
    failures()
