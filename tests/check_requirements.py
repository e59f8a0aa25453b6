#!/usr/bin/env python3
"""Fails when tests/requirements.tsv names a test that does not exist, or an id whose test does not name it: in its name, its body, or the lines
above it; and when fewer ids are shown than once were.

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


ID = re.compile(r"\b[A-Z][A-Z0-9]*-\d+\b")
ABOVE = 3  # lines of comment above a test
LEAST = 600  # ids that tests show


def ids_in(text):
    return set(ID.findall(text.replace("_", "-")))


def ids_of_tests():
    """What each test names, by `Suite.Test` and `file.py::test`; an id in the docstring of a pytest file counts for all of its tests."""
    found = {}
    for path in pathlib.Path("tests").rglob("*.cpp"):
        lines = path.read_text(errors="replace").splitlines()
        starts = [(number, re.match(r"(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", line)) for number, line in enumerate(lines)]
        starts = [(number, match) for number, match in starts if match]
        for (number, match), following in zip(starts, [*(number for number, _ in starts[1:]), len(lines)]):
            key = f"{match[1]}.{match[2]}"
            found[key] = found.get(key, set()) | ids_in("\n".join(lines[max(0, number - ABOVE):following]))
    for path in pathlib.Path("tests/e2e").glob("test_*.py"):
        text = path.read_text()
        whole = ids_in(text.split('"""')[1]) if text.startswith('"""') else set()
        for block in re.split(r"^(?=(?:@pytest|def ))", text, flags=re.M):
            for name in re.findall(r"^\s*def (test_\w+)", block, re.M):
                found[f"{path.name}::{name}"] = whole | ids_in(block)
    return found


def main(build):
    named = ids_of_tests()
    tests = known_tests(build)
    problems = []
    rows = [line.split("\t") for line in pathlib.Path("tests/requirements.tsv").read_text().splitlines() if line and not line.startswith("#")]
    for number, row in enumerate(rows, 1):
        if len(row) != 3 or not all(row) or not re.fullmatch(r"[A-Z][A-Z0-9]+-\d{2,}", row[0]):  # ACT-3 is no id: ACT-03 is
            problems.append(f"row {number}: want id, statement and test, have {row}")
            continue
        identity, _, test = row
        if test not in tests:
            problems.append(f"{identity}: there is no test {test}")
        # ctest writes Prefix/Suite.Test/Parameter
        plain = test if "::" in test else re.sub(r"^(?:\w+/)?(\w+\.\w+).*$", r"\1", test)
        if identity not in named.get(plain, set()):
            problems.append(f"{identity}: {test} does not name it")
    shown = len({row[0] for row in rows})
    if shown < LEAST:
        problems.append(f"{shown} ids are shown, {LEAST} were before")
    for problem in problems:
        print(f"tests/requirements.tsv: {problem}", file=sys.stderr)
    print(f"requirements: {shown} ids shown by {len({row[-1] for row in rows})} tests")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
