#!/usr/bin/env python3
"""Asks the `opa` program what every expression of expressions/*.txt gives and writes the answers to expected/*.jsonl.

Without `opa` (on PATH, or named by $OPA) it says so and ends with 77, which ctest counts as skipped. With --check it writes nothing
and fails where an answer differs from what is checked in.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOM = pathlib.Path(__file__).parent


def program():
    named = os.environ.get("OPA")
    found = named or shutil.which("opa") or shutil.which("opa", path=str(pathlib.Path.home() / "go/bin"))
    if not found:
        print("SKIPPED: there is no opa program; go install github.com/open-policy-agent/opa@v1.22.4", file=sys.stderr)
        sys.exit(77)
    return found


def ask_one(opa, expression):
    """The answer to one expression: its value, {} where it is undefined, or its error. None where opa itself breaks down."""
    run = subprocess.run([opa, "eval", "--strict-builtin-errors", "-f", "json", expression], capture_output=True, text=True)
    try:
        answer = json.loads(run.stdout)
    except ValueError:
        return None
    if "errors" in answer:
        first = answer["errors"][0]
        return {"error": {"code": first.get("code", ""), "message": first["message"]}}
    if "result" not in answer:
        return {}
    return {"value": answer["result"][0]["expressions"][0]["value"]}


def ask_many(opa, expressions):
    """Values of all that have one, at one go; an error of compilation makes it two halves."""
    rules = "\n".join(f"r{i} := x if x := ({e})" for i, e in enumerate(expressions))
    with tempfile.NamedTemporaryFile("w", suffix=".rego") as module:
        module.write("package cases\nimport rego.v1\n" + rules + "\n")
        module.flush()
        run = subprocess.run([opa, "eval", "-f", "json", "-d", module.name, "data.cases"], capture_output=True, text=True)
    try:
        answer = json.loads(run.stdout)
        values = answer["result"][0]["expressions"][0]["value"]
    except (ValueError, KeyError):
        if len(expressions) == 1:
            return [ask_one(opa, expressions[0])]
        half = len(expressions) // 2
        return ask_many(opa, expressions[:half]) + ask_many(opa, expressions[half:])
    return [{"value": values[f"r{i}"]} if f"r{i}" in values else ask_one(opa, e) for i, e in enumerate(expressions)]


def main():
    opa = program()
    check = "--check" in sys.argv
    different = 0
    (ROOM / "expected").mkdir(exist_ok=True)
    for source in sorted((ROOM / "expressions").glob("*.txt")):
        expressions = [line for line in source.read_text().splitlines() if line and not line.startswith("#")]
        lines = []
        for begin in range(0, len(expressions), 100):
            part = expressions[begin:begin + 100]
            for expression, answer in zip(part, ask_many(opa, part)):
                if answer is not None:
                    lines.append(json.dumps({"query": expression, **answer}, sort_keys=True, ensure_ascii=True))
        target = ROOM / "expected" / (source.stem + ".jsonl")
        text = "\n".join(lines) + "\n"
        if check:
            if target.read_text() != text:
                different += 1
                print(f"{target.name}: opa answers differently", file=sys.stderr)
        else:
            target.write_text(text)
            print(f"{target.name}: {len(lines)} cases")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
