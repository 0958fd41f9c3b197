"""Looks at the rows of a bench suite's JSON on standard input.

rows.py suite ON N SUBJECT... WORKLOAD...   each of the N subjects that this build has has each row
rows.py plotted FILE                        each ratio has its bar
rows.py faster FILE                         no row is slower than in that report, one is faster
rows.py left-out WHAT                       it was left out, with a reason
rows.py floors FLOORS SUBJECT               each floor of the group write-only has its row
rows.py floors-named NAME                   this row alone: measured, or with a reason
"""

import json
import sys
import tomllib

report = json.load(sys.stdin)
verb, *words = sys.argv[1:]
rows = report["rows"]


def require(condition, what):
    if not condition:
        sys.exit(f"{what}: {json.dumps(report)[:2000]}")


def measured(row):
    """Has a number above zero, or none and a reason."""
    if row["measured"] is None:
        return bool(row["why"])
    return row["measured"] > 0 and apart(row["spread"]) and row["why"] is None


def apart(spread):
    """How far apart the rounds are; a single one is not apart from itself."""
    return spread is None or spread >= 0


def suite(on, count, *names):
    subjects, workloads = names[: int(count)], names[int(count) :]
    present = {s["name"]: s["measured"] for s in report["subjects"]}
    require(sorted(present) == sorted(subjects), "other subjects")
    require(present["plain"] and present["detwo" if "detwo" in present else "plain"], "absent")
    for subject in report["subjects"]:
        require(subject["measured"] == (subject["why"] is None), "absent without a reason")
        require(not subject["measured"] or subject["space_factor"] > 1, "the space factor")
    found = {(r["subject"], r["workload"]): r for r in rows if r["on"] == on}
    wanted = {(s, w) for s in subjects if present[s] for w in workloads}
    require(set(found) == wanted, f"{set(found) ^ wanted}")
    for (subject, workload), row in found.items():
        require(row["mb_per_s"] > 0 and row["ratio"] > 0 and apart(row["spread"]), row)
        require(subject != "plain" or row["ratio"] == 1, row)
        require((row["store"] is None) == (on != "model"), row)
        if on == "model":
            written = row["store"]["write_amplification"]
            # A short mix may happen to write nothing.
            require("mix" in workload or (written is None) == ("-read-" in workload), row)
            require(written is None or written > 0, row)
    for row in found.values():
        for published in row["paper"]:
            require(0 < published["ratio"] < 1 and published["place"], row)
    aged = found.get(("detwo-1/3", "aging-read-1m"))
    require(aged is None or aged["paper"][0]["place"] == "Table 2", "the paper's number")


def plotted(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    series = {r["subject"] for r in rows} - {"plain"}
    bars = sum(r["subject"] in series for r in rows)
    # The paper's panel has bars of its own.
    require(text.count("<rect") > bars, f"{text.count('<rect')} rectangles for {bars} bars")
    for name in series | {r["workload"] for r in rows}:
        require(f">{name}</text>" in text, f"no {name} in the plot")


def faster(path):
    with open(path, encoding="utf-8") as file:
        others = json.load(file)["rows"]
    require(len(rows) == len(others) > 0, "other rows")
    pairs = [(r["mb_per_s"], o["mb_per_s"]) for r, o in zip(rows, others)]
    require(all(new >= old for new, old in pairs), f"slower: {pairs}")
    require(any(new > old for new, old in pairs), f"as fast: {pairs}")


def left_out(what):
    reasons = [l["why"] for l in report["left_out"] if l["what"] == what]
    require(len(reasons) == 1 and "root" in reasons[0], "no reason")
    require(not rows, "rows nevertheless")


def floors(path, subject):
    with open(path, "rb") as file:
        wanted = tomllib.load(file)["row"]
    wanted = {r["name"]: r["unit"] for r in wanted if r["group"] == "write-only"}
    found = {r["name"].replace(subject, "sq", 1): r for r in rows}
    require(len(found) == len(rows), "a row twice")
    for name, unit in wanted.items():
        require(name in found, f"no row {name}")
        require(found[name]["unit"] == unit, f"the unit of {name}")
    require(all(map(measured, rows)), "a row with neither a number nor a reason")
    none = [r["name"] for r in rows if r["measured"] is None]
    large = ["map-disk-memory-1t", *(n[3:] for n in wanted if n.endswith("-40g"))]
    allowed = {f"{subject}-{name}" for name in [*large, "mix-70-30-ext4-vs-amplification"]}
    require(set(none) <= allowed, f"not measured: {none}")


def floors_named(name):
    require([r["name"] for r in rows] == [name] and measured(rows[0]), "other rows")


verbs = {
    "suite": suite,
    "plotted": plotted,
    "faster": faster,
    "left-out": left_out,
    "floors": floors,
    "floors-named": floors_named,
}
verbs[verb](*words)
