"""Compares results with what is expected, both ways.

compare.py RESULTS.xml EXPECTED.tsv
"""

import sys
import xml.etree.ElementTree

results, expected = sys.argv[1:]
found = {}
for case in xml.etree.ElementTree.parse(results).iter("testcase"):
    if case.find("skipped") is None:
        is_failed = case.find("failure") is not None or case.find("error") is not None
        found[case.get("name")] = "fail" if is_failed else "pass"
with open(expected) as lines:
    rows = [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]
wanted = {row[0]: row[1] for row in rows}
different = sorted(
    name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)
)
for name in different:
    print(f"{name}: {found.get(name, 'not run')}, expected: {wanted.get(name, 'nothing')}")
passed = sum(result == "pass" for result in found.values())
print(f"{passed} of {len(found)} pass")
sys.exit(bool(different))
