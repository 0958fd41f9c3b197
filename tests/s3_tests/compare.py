"""Compares results with what is expected, both ways.

compare.py RESULTS.xml EXPECTED.tsv: each result must be what is expected.
compare.py RESULTS.xml EXPECTED.tsv OTHER.tsv: the results are those of another server, which are
written to OTHER.tsv and counted beside what is expected.
"""

import sys
import xml.etree.ElementTree

results, expected, *others = sys.argv[1:]
found = {}
for case in xml.etree.ElementTree.parse(results).iter("testcase"):
    if case.find("skipped") is None:
        is_failed = case.find("failure") is not None or case.find("error") is not None
        found[case.get("name")] = "fail" if is_failed else "pass"
with open(expected) as lines:
    rows = [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]
wanted = {row[0]: row[1] for row in rows}
passed = {name for name, result in found.items() if result == "pass"}
print(f"{len(passed)} of {len(found)} pass")
if others:
    own = {name for name, result in wanted.items() if result == "pass"}
    heads = [
        "# What becomes of the tests of ceph/s3-tests at another server, MinIO.",
        f"# It passes {len(passed)} of {len(found)}, the gateway {len(own)} of {len(wanted)}, both"
        f" {len(passed & own)}.",
    ]
    with open(others[0], "w") as out:
        out.write("\n".join([*heads, *("\t".join(pair) for pair in sorted(found.items())), ""]))
    print("\n".join(heads))
    sys.exit(0)
different = sorted(
    name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)
)
for name in different:
    print(f"{name}: {found.get(name, 'not run')}, expected: {wanted.get(name, 'nothing')}")
sys.exit(bool(different))
