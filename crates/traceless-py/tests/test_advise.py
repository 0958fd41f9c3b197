"""Advice: that of `traceless advise`."""

import json
import os
import subprocess

import pytest

import traceless

TRACELESS = os.environ["TRACELESS"]


def command(watcher, options):
    words = [TRACELESS, "advise", "--watcher", watcher, "--json"]
    for name, value in options.items():
        value = {True: "yes", False: "no"}.get(value, value) if name == "hide_reads" else value
        words += ["--" + name.replace("_", "-"), str(value)]
    said = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return json.loads(said.stdout) if said.stdout else json.loads(said.stderr)["error"]


@pytest.mark.parametrize("watcher, options", [
    ("copies", {"size": "1G"}),
    ("copies", {"size": 1 << 30, "hide_reads": True, "space_factor": 4.5}),
    ("device-writes", {"size": "64M", "writes": 80, "pattern": "scattered", "memory": "100K"}),
    ("device", {"size": "1T"}),
    ("swap", {"size": "1G", "memory": 1 << 28}),
    ("cloud", {"size": "1G", "rate": 200, "block_len": "4K"}),
    ("cloud", {"size": 10**9, "latency": 20, "hide_reads": False, "dollars": 150.5}),
    ("bus", {}),
])
def test_it_is_that_of_the_command(watcher, options):
    advice = traceless.advise(watcher, **options)
    assert advice["schema"] == "traceless.advise.v1"
    assert advice == command(watcher, options)
    assert advice["protected"] == bool(advice["commands"])


@pytest.mark.parametrize("watcher, options, words", [
    ("nobody", {}, "invalid value 'nobody' for '--watcher <NAME>'"),
    ("copies", {}, "the size is missing"),
    ("copies", {"size": "much"}, "invalid value 'much' for '--size <SIZE>'"),
    ("copies", {"size": -1}, "--size"),
    ("copies", {"size": "1G", "writes": 101}, "101 is not in 0..=100"),
    ("copies", {"size": "1G", "space_factor": 0.5}, "a factor is 1 or more"),
    ("copies", {"size": "1G", "memory": 1}, "--memory 1 is too little"),
    ("cloud", {"size": "1G", "rate": 0}, "--rate"),
    ("cloud", {"size": "1G", "dollars": 10.5}, "--dollars 10.5 are too few"),
    ("swap", {"size": "1G", "rate": 5}, "--rate does not apply"),
])
def test_errors_have_the_words_of_the_command(watcher, options, words):
    with pytest.raises(traceless.UsageError) as error:
        traceless.advise(watcher, **options)
    said = str(error.value)
    assert words in said and "--help" not in said
    if options.get("size") != -1:
        assert said in command(watcher, options)
