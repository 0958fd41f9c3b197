"""The auditor: the verdicts of `traceless audit compare`, and its words."""

import json
import math
import os
import subprocess

import pytest

import traceless

TRACELESS = os.environ["TRACELESS"]


def users(home, key, scheme):
    """Traces of three users that write as often, each to other places."""
    traces = []
    for user, place in [("a", lambda n: n), ("b", lambda n: 7), ("c", lambda n: n * 7919)]:
        trace = home / f"{scheme}-{user}.trace"
        image = home / f"{scheme}-{user}"
        with traceless.Volume.create(
            image, 1 << 22, key=key, scheme=scheme, unfilled=True, cipher="aes-256-gcm"
        ):
            pass
        with traceless.Volume(image, key=key, trace=trace) as volume:
            for nth in range(300):
                volume.write_at(place(nth) % 1024 * 4096, os.urandom(4096))
                if nth % 100 == 99:
                    volume.flush()
        traces.append(trace)
    return traces


def command(*words):
    said = subprocess.run([TRACELESS, "audit", "compare", *words, "--json"], capture_output=True)
    return said.returncode, json.loads(said.stdout or said.stderr)


def is_same(one, other):
    """Whether reports are equal. The C library of the command may round a p-value otherwise."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other


def test_a_volume_hides_its_users(home, key):
    a, b, c = users(home, key, "detwo")
    for other in (b, c):
        report = traceless.compare_traces(a, other)
        assert (report["verdict"], report["equal"]) == ("pass", True)
        assert report["schema"] == "traceless.audit.compare.v1"
        code, printed = command(a, other)
        assert code == 0 and is_same(printed, report)


def test_plain_encryption_does_not(home, key):
    a, b, c = users(home, key, "plain")
    for other in (b, c):
        report = traceless.compare_traces(a, other)
        assert (report["verdict"], report["judged_by"]) == ("leak", "equality")
        assert report["first_difference"]["in_a"] != report["first_difference"]["in_b"]
        code, printed = command(a, other)
        assert code == 1 and is_same(printed, report)


def test_arrays_are_judged_by_statistics(home, key):
    traces = []
    for user, place in [("hot", lambda n: 3), ("wide", lambda n: n * 7919 % 4096)]:
        trace = home / f"{user}.trace"
        array = traceless.Array(4096, file=home / user, key=key, trace=trace)
        for nth in range(3000):
            array.read(place(nth))
        del array
        traces.append(trace)
    cut = traceless.compare_traces(*traces, prefix=True)
    assert cut["verdict"] in ("pass", "unknown", "leak") and "claims" in cut
    code, report = command(*traces, "--prefix")
    assert is_same(report, cut) and code == {"pass": 0, "leak": 1, "unknown": 3}[cut["verdict"]]


def test_options(home, key):
    a, b, _ = users(home, key, "detwo")
    for option in ("reads", "times", "exact_order", "equal"):
        assert traceless.compare_traces(a, a, **{option: True})["verdict"] == "pass"
        flag = "--" + option.replace("_", "-")
        code, report = command(a, b, flag)
        assert is_same(report, traceless.compare_traces(a, b, **{option: True}))
    text = home / "text"
    text.write_text("1 8,0 W 8 8\n2 8,0 FF 0 0\n3 8,0 R 8 8\n")
    assert traceless.compare_traces(text, text, format="bpftrace")["counts_a"]["writes"] == 1
    with pytest.raises(traceless.UsageError, match="no format `dtrace`; there are trace, blkparse"):
        traceless.compare_traces(a, b, format="dtrace")
    with pytest.raises(traceless.UsageError, match="judged by statistics"):
        traceless.compare_traces(a, b, secret_a=a, equal=True)


def test_files_that_are_no_traces(home, key):
    a, _, _ = users(home, key, "detwo")
    bad = home / "bad"
    for content, kind in [(b"", traceless.FileError), (a.read_bytes()[:-3], traceless.DamageError)]:
        bad.write_bytes(content)
        with pytest.raises(kind) as error:
            traceless.compare_traces(a, bad)
        code, failure = command(a, bad)
        assert (code, failure["error"]) == (4, str(error.value))
    with pytest.raises(OSError, match="missing"):
        traceless.compare_traces(a, home / "missing")
