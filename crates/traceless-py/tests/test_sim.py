"""The simulator: the numbers of `traceless sim`."""

import json
import os
import signal
import subprocess
import threading

import pytest

import traceless

TRACELESS = os.environ["TRACELESS"]
EXPERIMENTS = os.path.join(os.environ["TRACELESS_ROOT"], "experiments")
FIGURE = os.path.join(EXPERIMENTS, "ir-oram", "fig12.toml")
MACHINE = os.path.join(EXPERIMENTS, "machines", "small.toml")

CACHE = """
title = "A cache"
paper = "none"
place = "Figure 1"
machine = { processor = { rob = 128, fetch = 4, retire = 4, depth = 10 } }
workloads = ["sequential", "uniform"]
quick = { records = 500, seeds = [1] }
full = { records = 500, seeds = [1] }
variant = [
    { name = "without" },
    { name = "with", set = { last_level = { bytes = 65536, ways = 8, latency = 10 } } },
]
metric = [{ name = "cycles", of = ["cycles"] }]
claim = [{ text = "first", metric = "cycles", variant = "with", rule = { at-least = 1.0 } }]
"""


def command(*words):
    said = subprocess.run([TRACELESS, "sim", *words, "--json"], capture_output=True)
    return json.loads(said.stdout if said.returncode == 0 else said.stderr.splitlines()[-1])


@pytest.mark.parametrize("scheme", ["dram", "path", "ir-oram"])
def test_a_machine(scheme):
    options, words = {}, []
    if scheme != "dram":
        options, words = {"config": MACHINE}, ["--config", MACHINE]
    mine = traceless.simulate("uniform", scheme, length=300, **options)
    theirs = command("trace", "uniform", "--scheme", scheme, "--length", "300", *words)
    assert mine["schema"] == "traceless.sim.trace.v1" and mine["cycles"] > 0
    for report in (mine, theirs):
        del report["records_per_second"]
    assert mine == theirs


def test_what_the_bus_shows(home):
    trace = home / "bus.trace"
    report = traceless.simulate(["sequential", "uniform"], "dram", length=200, trace=trace,
                                check=True)
    assert report["records"] == 400 and report["commands_checked"] > 0
    columns = traceless.read_trace(trace)
    assert set(columns.surface) == {traceless.SURFACES.index("dram")}


def test_an_experiment(home):
    file, out = home / "cache.toml", home / "out"
    file.write_text(CACHE)
    report = traceless.run_experiment(file, out)
    assert report["schema"] and report["verdicts"][0]["reproduced"]
    assert report == command("run", file, "--out", home / "theirs")
    rows = traceless.report_rows(report)
    assert [(row["metric"], row["variant"], row["workload"]) for row in rows] == [
        ("cycles", variant, workload)
        for variant in ("without", "with")
        for workload in ("sequential", "uniform")
    ]
    assert all(row["value"] > 0 for row in rows)
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert traceless.run_experiment(file, out, jobs=2) == report
    assert before == {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}


def test_a_figure_of_a_paper(home):
    report = traceless.run_experiment(FIGURE, home / "out", records=100, jobs=2)
    assert report["metrics"] and traceless.report_rows(report)


def test_a_sweep_and_its_shards(home):
    files = [home / "cache.toml", home / "again.toml"]
    for file in files:
        file.write_text(CACHE.replace("A cache", file.stem))
    report = traceless.sweep(files, home / "out", jobs=2)
    assert report == command("sweep", *files, "--out", home / "theirs")
    rows = traceless.report_rows(report)
    assert [row["experiment"] for row in rows] == ["cache"] * 4 + ["again"] * 4
    assert list(rows[0]) == ["experiment", "metric", "variant", "workload", "value"]
    shards = [home / f"shard-{nth}" for nth in range(3)]
    for nth, folder in enumerate(shards):
        record = traceless.sweep(files, folder, shard=f"{nth}/3")
        assert (record["schema"], record["shard"]) == ("traceless.sim.shard.v1", nth)
    assert traceless.merge_shards(files, shards, home / "merged") == report
    with pytest.raises(traceless.UsageError, match="2/3 is missing"):
        traceless.merge_shards(files, shards[:2], home / "part")
    for shard in ("3/3", "1", "-1/3"):
        with pytest.raises(traceless.UsageError, match="it is I/N"):
            traceless.sweep(files, home / "x", shard=shard)
    some = next((shards[1] / "runs").iterdir())
    some.write_text(some.read_text()[:-20])
    with pytest.raises(traceless.DamageError, match="damaged"):
        traceless.merge_shards(files, shards, home / "damaged")


def test_what_cannot_be_simulated(home):
    for call, message in [
        (lambda: traceless.simulate("uniform", "fast"), "there is no scheme `fast`; there are"),
        (lambda: traceless.simulate("nothing", "dram"), "no workload is called"),
        (lambda: traceless.simulate([], "dram"), "nothing to simulate"),
        (lambda: traceless.simulate("uniform", "dram", format="tar"), "no format `tar`"),
        (lambda: traceless.run_experiment(home / "x", home, level="half"), "no level `half`"),
    ]:
        with pytest.raises(traceless.UsageError, match=message):
            call()
    with pytest.raises(traceless.FileError, match="missing.toml"):
        traceless.run_experiment(home / "missing.toml", home / "out")
    broken = home / "broken.toml"
    broken.write_text("title = 3")
    with pytest.raises(traceless.UsageError) as error:
        traceless.run_experiment(broken, home / "out")
    assert command("run", broken, "--out", home / "out")["error"] == str(error.value)


def test_ctrl_c_ends_an_experiment(home):
    file, out = home / "cache.toml", home / "out"
    many = f"records = 200000, seeds = {list(range(50))}"
    file.write_text(CACHE.replace("records = 500, seeds = [1]", many))
    # What runs in the background may ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        traceless.run_experiment(file, out)
    assert len(list((out / "runs").iterdir())) < 200, "it made all runs"
