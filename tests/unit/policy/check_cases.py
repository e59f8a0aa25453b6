#!/usr/bin/env python3
"""Every test that CASES.md names exists in the tree. Usage: check_cases.py SOURCE_DIR"""

import pathlib
import re
import sys

tests = pathlib.Path(sys.argv[1]) / "tests"
known = set()
for file in tests.rglob("*.cpp"):
    known |= {f"{suite}.{name}" for suite, name in re.findall(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", file.read_text(), re.M)}
for file in (tests / "e2e").rglob("*.py"):
    known |= set(re.findall(r"^\s*def (test_\w+)", file.read_text(), re.M))
named = re.findall(r"[\w]+\.\w+|test_\w+", "\n".join(line.rsplit("|", 2)[1] for line in (tests / "unit/policy/CASES.md").read_text().splitlines() if line.startswith("| ")))
missing = [name for name in named if name not in known]
if missing or len(named) < 100:
    sys.exit(f"{len(named)} tests are named; CASES.md names tests that are not there: {', '.join(missing)}")
print(f"{len(named)} tests are named and are there")
