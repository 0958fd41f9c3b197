"""Sweeps on a cluster of Ray, with two workers on this machine."""

import os
import pathlib

import pytest

import traceless
import traceless.ray

ray = pytest.importorskip("ray")

EXPERIMENTS = pathlib.Path(os.environ["TRACELESS_ROOT"], "experiments")
FIGURES = [EXPERIMENTS / "ir-oram" / "fig12.toml", EXPERIMENTS / "ir-oram" / "fig11.toml"]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in pathlib.Path(folder).rglob("*") if path.is_file()
    }


def test_results_are_those_of_this_machine(home):
    theirs = traceless.ray.sweep(FIGURES, home / "ray", records=300, shards=5)
    mine = traceless.sweep(FIGURES, home / "local", records=300, jobs=2)
    assert theirs == mine and theirs["schema"] == "traceless.sim.sweep.v1"
    assert contents(home / "ray") == contents(home / "local")


def test_what_is_there_is_not_made_again(home):
    traceless.sweep(FIGURES[:1], home / "out", records=300)
    before = {path: path.stat().st_mtime_ns for path in (home / "out" / "runs").iterdir()}
    traceless.ray.sweep(FIGURES, home / "out", records=300)
    after = {path: path.stat().st_mtime_ns for path in (home / "out" / "runs").iterdir()}
    assert len(after) > len(before) and before.items() <= after.items()


def test_errors_of_workers(home):
    with pytest.raises(traceless.FileError, match="missing.toml"):
        traceless.ray.sweep([home / "missing.toml"], home / "out")
