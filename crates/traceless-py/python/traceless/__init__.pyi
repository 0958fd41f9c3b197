"""Storage that does not reveal which data is used."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, TypeVar, final, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, Self, TypeAlias

_T = TypeVar("_T")
_Path: TypeAlias = str | os.PathLike[str]
# Before Python 3.12 numpy does not say that its arrays are buffers.
_Buffer: TypeAlias = Buffer | NDArray[Any]
_Addrs: TypeAlias = Sequence[int] | range | NDArray[np.integer[Any]]

__all__ = [
    "Array",
    "Blocks",
    "BusyError",
    "Columns",
    "DamageError",
    "Error",
    "FileError",
    "Gateway",
    "Map",
    "OPS",
    "READ",
    "RangeError",
    "SURFACES",
    "SYNC",
    "Secrets",
    "TraceStream",
    "UsageError",
    "Volume",
    "WRITE",
    "WrongKeyError",
    "__version__",
    "advise",
    "compare_traces",
    "merge_shards",
    "read_secrets",
    "read_trace",
    "report_rows",
    "run_experiment",
    "simulate",
    "sweep",
]

__version__: str
OPS: tuple[str, ...]
SURFACES: tuple[str, ...]
READ: int
WRITE: int
SYNC: int

class Error(Exception): ...
class DamageError(Error): ...
class WrongKeyError(Error): ...
class UsageError(Error, ValueError): ...
class RangeError(UsageError, IndexError): ...
class FileError(Error, OSError): ...
class BusyError(FileError): ...

@final
class Array:
    def __new__(
        cls,
        blocks: int,
        block_len: int = 64,
        *,
        oblivious: bool = False,
        scheme: str | None = None,
        file: _Path | None = None,
        key: _Buffer | None = None,
        contents: _Buffer | None = None,
        trace: _Path | None = None,
    ) -> Self: ...
    @classmethod
    def open(
        cls,
        file: _Path,
        blocks: int,
        block_len: int = 64,
        *,
        key: _Buffer,
        oblivious: bool = False,
        scheme: str | None = None,
        trace: _Path | None = None,
    ) -> Array: ...
    @property
    def blocks(self) -> int: ...
    @property
    def block_len(self) -> int: ...
    @property
    def hides(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def read(self, addr: int) -> bytes: ...
    def read_into(self, addr: int, buffer: _Buffer) -> None: ...
    def write(self, addr: int, block: _Buffer) -> None: ...
    def read_many(self, addrs: _Addrs) -> NDArray[np.uint8]: ...
    def read_batch(self, addrs: _Addrs) -> Blocks: ...
    def read_many_into(self, addrs: _Addrs, buffer: _Buffer) -> None: ...
    def write_many(self, addrs: _Addrs, blocks: _Buffer) -> None: ...
    def update(self, addr: int, function: Callable[[bytes], _Buffer | None]) -> bytes: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...
    @overload
    def __getitem__(self, key: int, /) -> bytes: ...
    @overload
    def __getitem__(self, key: slice, /) -> NDArray[np.uint8]: ...
    def __setitem__(self, key: int | slice, value: _Buffer, /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

@final
class Map:
    def __new__(
        cls,
        capacity: int,
        key_len: int = 32,
        value_len: int = 32,
        *,
        oblivious: bool = True,
        file: _Path | None = None,
        key: _Buffer | None = None,
        trace: _Path | None = None,
    ) -> Self: ...
    @classmethod
    def open(
        cls,
        file: _Path,
        capacity: int,
        key_len: int = 32,
        value_len: int = 32,
        *,
        key: _Buffer,
        trace: _Path | None = None,
    ) -> Map: ...
    @property
    def capacity(self) -> int: ...
    @property
    def key_len(self) -> int: ...
    @property
    def value_len(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def insert(self, key: _Buffer, value: _Buffer) -> bytes | None: ...
    @overload
    def get(self, key: _Buffer, default: None = None) -> bytes | None: ...
    @overload
    def get(self, key: _Buffer, default: _T) -> bytes | _T: ...
    def remove(self, key: _Buffer) -> bytes | None: ...
    @overload
    def pop(self, key: _Buffer) -> bytes: ...
    @overload
    def pop(self, key: _Buffer, *default: _T) -> bytes | _T: ...
    def update(self, entries: Mapping[bytes, _Buffer] | Iterable[tuple[_Buffer, _Buffer]]) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __contains__(self, key: _Buffer, /) -> bool: ...
    def __iter__(self) -> NoReturn: ...
    def __getitem__(self, key: _Buffer, /) -> bytes: ...
    def __setitem__(self, key: _Buffer, value: _Buffer, /) -> None: ...
    def __delitem__(self, key: _Buffer, /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

@final
class Gateway:
    def __new__(
        cls,
        folder: _Path,
        blocks: int,
        block_len: int = 1024,
        *,
        host: str | list[str] | None = None,
        host_cert: _Path | list[_Path] | None = None,
        client_cert: _Path | None = None,
        client_key: _Path | None = None,
        allow_simulated_tee: bool = False,
        attestation_policy: _Path | None = None,
        collateral: _Path | list[_Path] | None = None,
        made_up_root: _Path | None = None,
        verifier: _Path | None = None,
        rate: int | None = None,
        together: int = 1,
        key_file: _Path | None = None,
        anchor: _Path | None = None,
        durability: str = "power",
        copies: int | None = None,
        kernel: str = "benes",
        limit_bits: int = 32,
        arity: int = 8,
        trace: _Path | None = None,
    ) -> Self: ...
    @property
    def blocks(self) -> int: ...
    @property
    def block_len(self) -> int: ...
    @property
    def enclave(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @overload
    def get(self, name: _Buffer, default: None = None) -> bytes | None: ...
    @overload
    def get(self, name: _Buffer, default: _T) -> bytes | _T: ...
    def get_many(self, names: Iterable[_Buffer]) -> list[bytes | None]: ...
    def update(self, entries: Mapping[bytes, _Buffer] | Iterable[tuple[_Buffer, _Buffer]]) -> None: ...
    def remove(self, name: _Buffer) -> bool: ...
    def names(self) -> list[bytes]: ...
    def counts(self) -> dict[str, int]: ...
    def close(self) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, name: _Buffer, /) -> bool: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __getitem__(self, name: _Buffer, /) -> bytes: ...
    def __setitem__(self, name: _Buffer, value: _Buffer, /) -> None: ...
    def __delitem__(self, name: _Buffer, /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

@final
class Volume:
    def __new__(
        cls,
        path: _Path,
        *,
        key: _Buffer | None = None,
        key_file: _Path | None = None,
        passphrase: str | _Buffer | None = None,
        read_only: bool = False,
        anchor: _Path | None = None,
        trace: _Path | None = None,
    ) -> Self: ...
    @classmethod
    def create(
        cls,
        path: _Path,
        size: int,
        *,
        key: _Buffer | None = None,
        key_file: _Path | None = None,
        passphrase: str | _Buffer | None = None,
        scheme: str = "detwo",
        refresh: str | float | None = None,
        fanout: int | None = None,
        bucket: int | None = None,
        amortized: bool | None = None,
        map: str = "auto",
        map_memory: int = 1 << 30,
        cipher: str = "auto",
        force: bool = False,
        unfilled: bool = False,
        kdf_memory: int | None = None,
        kdf_time: int | None = None,
        anchor: _Path | None = None,
        trace: _Path | None = None,
    ) -> Volume: ...
    @property
    def size(self) -> int: ...
    @property
    def block_len(self) -> int: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def scheme(self) -> str: ...
    @property
    def cipher(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def writes(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def status(self) -> dict[str, Any]: ...
    def verify(self) -> list[dict[str, Any]]: ...
    def read(self, size: int | None = -1, /) -> bytes: ...
    def readall(self) -> bytes: ...
    def readinto(self, buffer: _Buffer, /) -> int: ...
    def write(self, data: _Buffer, /) -> int: ...
    def read_at(self, offset: int, size: int) -> bytes: ...
    def read_into(self, offset: int, buffer: _Buffer) -> None: ...
    def write_at(self, offset: int, data: _Buffer) -> None: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def readable(self) -> bool: ...
    def writable(self) -> bool: ...
    def seekable(self) -> bool: ...
    def isatty(self) -> bool: ...
    def fileno(self) -> int: ...
    def truncate(self, size: int | None = None, /) -> int: ...
    def buffered(self) -> io.BufferedRandom | io.BufferedReader: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

@final
class Blocks:
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

@final
class TraceStream:
    def __new__(cls, path: _Path, *, prefix: bool = False) -> Self: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Columns(NamedTuple):
    time: NDArray[np.uint64]
    surface: NDArray[np.uint8]
    op: NDArray[np.uint8]
    at: NDArray[np.uint64]
    length: NDArray[np.uint32]
    epoch: NDArray[np.int64]

class Secrets(NamedTuple):
    seen: NDArray[np.uint64]
    op: NDArray[np.uint8]
    at: NDArray[np.uint64]
    length: NDArray[np.uint32]

def read_trace(path: _Path, *, prefix: bool = False) -> Columns: ...
def read_secrets(path: _Path, *, prefix: bool = False) -> Secrets: ...
def compare_traces(
    a: _Path,
    b: _Path,
    *,
    secret_a: _Path | None = None,
    secret_b: _Path | None = None,
    equal: bool = False,
    reads: bool = False,
    times: bool = False,
    exact_order: bool = False,
    format: str | None = None,
    prefix: bool = False,
) -> dict[str, Any]: ...
def simulate(
    workloads: str | Sequence[str],
    scheme: str,
    *,
    length: int | None = None,
    seed: int = 1,
    config: _Path | None = None,
    format: str | None = None,
    check: bool = False,
    trace: _Path | None = None,
) -> dict[str, Any]: ...
def run_experiment(
    file: _Path,
    out: _Path,
    *,
    level: str = "quick",
    records: int | None = None,
    jobs: int = 1,
) -> dict[str, Any]: ...
def sweep(
    files: Sequence[_Path],
    out: _Path,
    *,
    level: str = "quick",
    records: int | None = None,
    jobs: int = 1,
    shard: str | None = None,
) -> dict[str, Any]: ...
def merge_shards(
    files: Sequence[_Path],
    shards: Sequence[_Path],
    out: _Path,
    *,
    level: str = "quick",
    records: int | None = None,
) -> dict[str, Any]: ...
def advise(
    watcher: str,
    size: int | str | None = None,
    *,
    hide_reads: bool = False,
    block_len: int | str | None = None,
    memory: int | str | None = None,
    space_factor: float | None = None,
    writes: int | None = None,
    pattern: str | None = None,
    rate: int | None = None,
    latency: int | None = None,
    dollars: float | None = None,
) -> dict[str, Any]: ...
def report_rows(report: dict[str, Any]) -> list[dict[str, Any]]: ...
