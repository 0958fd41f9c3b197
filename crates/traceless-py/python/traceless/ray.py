"""Sweeps of the simulator on a cluster of Ray. Needs the package `ray`."""

from __future__ import annotations

import importlib
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Union

import traceless

__all__ = ["sweep"]

_Path = Union[str, "os.PathLike[str]"]

# Shards for each processor of the cluster, so that none waits long for the last ones.
_SHARDS_A_PROCESSOR = 4


def sweep(
    files: Sequence[_Path],
    out: _Path,
    *,
    level: str = "quick",
    records: int | None = None,
    shards: int | None = None,
    address: str | None = None,
) -> dict[str, Any]:
    """Simulates several experiments on a cluster of Ray, with the results of `traceless.sweep`.

    files: what to simulate. They, and what they refer to, lie at the same paths on each machine.
    out: a folder of this machine for results and reports. Runs with a result there are not made
        again. What is finished is kept if this is interrupted.
    level, records: as for `traceless.sweep`.
    shards: into how many parts to divide the runs; by default a few for each processor.
    address: the cluster, as for `ray.init`, unless Ray is there already; by default Ray is started
        on this machine.

    Workers of Ray give way to all other programs. Where others run, set RAY_worker_niceness=0 in
    the environment before Ray is started.
    """
    ray = _ray()
    paths = [os.path.abspath(file) for file in files]
    if not ray.is_initialized():
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    parts = shards or _SHARDS_A_PROCESSOR * int(ray.cluster_resources().get("CPU", 1))
    results = pathlib.Path(out, "runs")
    results.mkdir(parents=True, exist_ok=True)
    known = ray.put(_read(results))
    task = ray.remote(num_cpus=1)(_make_shard)
    pending = [task.remote(paths, level, records, f"{i}/{parts}", known) for i in range(parts)]
    try:
        while pending:
            ended, pending = ray.wait(pending)
            for name, text in ray.get(ended[0]).items():
                _write(results / name, text)
    finally:
        for shard in pending:
            ray.cancel(shard)
    return traceless.sweep(paths, out, level=level, records=records)


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError("this needs Ray: pip install 'traceless[ray]'") from error


def _make_shard(
    files: list[str], level: str, records: int | None, shard: str, known: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Makes a shard's runs, and returns the files of those that are not known."""
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder, "runs")
        results.mkdir()
        for name, text in known.items():
            (results / name).write_bytes(text)
        traceless.sweep(files, folder, level=level, records=records, shard=shard)
        return {name: text for name, text in _read(results).items() if name not in known}


def _read(results: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in results.glob("*.json")}


def _write(path: pathlib.Path, text: bytes) -> None:
    """Writes a file that others see as a whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(text)
    os.replace(part, path)
