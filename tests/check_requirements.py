#!/usr/bin/env python3
"""Fails when tests/requirements.tsv names a test that does not exist, or an id whose test does not name it.

Each line: requirement id, the statement in a few words, the test as `ctest -N` or pytest prints it. Usage: check_requirements.py BUILD_DIR
"""

import pathlib
import re
import subprocess
import sys


def known_tests(build):
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    tests = set(re.findall(r"^\s*Test\s+#\d+: (\S+)", listed, re.M))
    for file in pathlib.Path("tests/e2e").glob("test_*.py"):
        tests |= {f"{file.name}::{name}" for name in re.findall(r"^\s*def (test_\w+)", file.read_text(), re.M)}
    return tests


def main(build):
    sources = "\n".join(path.read_text(errors="replace") for path in pathlib.Path("tests").rglob("*") if path.suffix in {".cpp", ".py", ".hpp"})
    named = set(re.findall(r"\b[A-Z][A-Z0-9]*[-_]\d+\b", sources.replace("_", "-")))
    tests = known_tests(build)
    problems = []
    rows = [line.split("\t") for line in pathlib.Path("tests/requirements.tsv").read_text().splitlines() if line and not line.startswith("#")]
    for number, row in enumerate(rows, 1):
        if len(row) != 3 or not all(row):
            problems.append(f"row {number}: want id, statement and test, have {row}")
            continue
        identity, _, test = row
        if test not in tests:
            problems.append(f"{identity}: there is no test {test}")
        if identity not in named:
            problems.append(f"{identity}: no test names this id")
    for problem in problems:
        print(f"tests/requirements.tsv: {problem}", file=sys.stderr)
    print(f"requirements: {len({row[0] for row in rows})} ids shown by {len({row[-1] for row in rows})} tests")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
