#!/usr/bin/env python3
"""Does traceless-attest decide right about evidence of real processors?

usage: tests/evidence/run.py FOLDER [PROGRAM]

corpus.tsv names pieces of evidence that were published: where each is, its SHA-256, a time at which
its collateral is valid, and what must be decided, with words of the reason. None of them is in this
repository. FOLDER has those that were collected:

  files/NAME.bin       evidence, recognised by its SHA-256
  collateral/NAME/     what makers of processors signed, as --collateral takes it

Each piece is judged by a policy that accepts its own measurement and all that Intel may say of its
processor. Exit code 0 if all that are there, and at least 40, are decided as the table says.
"""

import csv
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

LEAST = 40
# Where no certificate is known that would have to be valid: 2026-01-01.
ANY_TIME = 1_767_225_600
ROOT = pathlib.Path(__file__).resolve().parents[2]
STATES = [
    "UpToDate", "SWHardeningNeeded", "ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded",
    "OutOfDate", "OutOfDateConfigurationNeeded", "TDRelaunchAdvised",
    "TDRelaunchAdvisedConfigurationNeeded",
]


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    # Refused, or a file that cannot be used. A crash is neither.
    if done.returncode not in (0, 1, 4):
        sys.exit(f"{arguments}: exit code {done.returncode}: {done.stderr}")
    return done.stdout, done.stderr


def policy(claims, advisories):
    """A policy that accepts this program on any processor that nothing is known against."""
    lines = ["[[accept]]", f'tee = "{claims["tee"]}"', f'measurement = ["{claims["measurement"]}"]']
    if claims["tee"] == "snp":
        lines += ["tcb-min = {}", "allow-migration = true", "privilege-level-max = 3"]
    else:
        lines += [f"tcb = {json.dumps(STATES)}", f"advisories = {json.dumps(advisories)}"]
    if claims["tee"] == "tdx":
        lines.append("registers = {}")
    return "\n".join(lines) + "\n"


def judge(program, evidence, collateral, at, scratch):
    """The verdict and the reason, by a policy with all advisories that apply."""
    shown, failed = run(program, "show", evidence, "--json")
    if not shown:
        return "refused", failed.strip()
    claims, advisories = json.loads(shown)["claims"], []
    file = scratch / "policy.toml"
    for _ in range(2):
        file.write_text(policy(claims, advisories))
        more = ["--collateral", collateral] if collateral.exists() else []
        fixed = ["--policy", file, "--at", at, "--json"]
        printed, failed = run(program, "verify", evidence, *fixed, *more)
        if not printed:
            return "refused", failed.strip()
        report = json.loads(printed)
        found = (report["evidence"][0]["claims"] or {}).get("tcb", {})
        if found.get("advisories", []) == advisories or report["verdict"] == "accepted":
            break
        advisories = found["advisories"]
    return report["verdict"], report["refusal"] or ""


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    program = sys.argv[2] if len(sys.argv) == 3 else ROOT / "target/release/traceless-attest"
    files = {hashlib.sha256(file.read_bytes()).hexdigest(): file
             for file in sorted(folder.glob("files/*.bin"))}
    right, wrong, missing = 0, 0, 0
    table = (ROOT / "tests/evidence/corpus.tsv").read_text().splitlines()
    with tempfile.TemporaryDirectory() as scratch:
        for row in csv.DictReader(table, delimiter="\t"):
            file = files.get(row["sha256"])
            if file is None:
                missing += 1
                continue
            place = folder / "collateral" / file.stem
            at = row["at"] or ANY_TIME
            verdict, reason = judge(program, file, place, at, pathlib.Path(scratch))
            is_named = row["reason"] in reason and bool(row["reason"]) == (verdict == "refused")
            if verdict == row["verdict"] and is_named:
                right += 1
            else:
                wrong += 1
                print(f"{file.stem}: {verdict}: {reason}")
                print(f"  expected {row['verdict']}: {row['reason']}")
    print(f"{right} decided right, {wrong} wrong; {missing} of the table are not there")
    sys.exit(0 if wrong == 0 and right >= LEAST else 1)


if __name__ == "__main__":
    main()
