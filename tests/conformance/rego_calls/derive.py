#!/usr/bin/env python3
"""Derives the cases of this folder and what the opa program answers to them.

  derive.py write   writes cases/*.jsonl (lines for `rego batch`) from arguments.py and expected/*.jsonl from the answers of opa
  derive.py check   asks opa anew and compares with the checked-in answers; exit code 1 where one differs

Needs the program `opa` on PATH, in ~/go/bin or named by OPA; without it, says so and ends with 77.
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys

import arguments

HERE = pathlib.Path(__file__).resolve().parent
VERSION = "1.22.4"
WRONG = {"null": None, "number": 7, "string": "x", "array": [], "object": {}}


def kind(value):
    return {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}.get(type(value), "set")


def has_set(value):
    if isinstance(value, arguments.Set):
        return True
    return any(map(has_set, value.values() if isinstance(value, dict) else value if isinstance(value, list) else []))


def literal(value):
    if isinstance(value, arguments.Set):
        return "{" + ", ".join(map(literal, value)) + "}" if value else "set()"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {literal(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def call(name, values):
    case = {}
    parts = []
    for i, value in enumerate(values):
        parts.append(literal(value) if has_set(value) else f"input[{i}]")
    case["query"] = f"x := {name}({', '.join(parts)})"
    if any(part.startswith("input[") for part in parts):
        case["input"] = [None if has_set(value) else value for value in values]
    return case


def misuses(name, values):
    """The first arguments again, each in turn of a kind that is another."""
    if any(map(has_set, values)):
        return
    for i, value in enumerate(values):
        for wrong in ("null", "number", "string", "array", "object"):
            if kind(value) != wrong and (wrong in ("null", "number") or (wrong, kind(value)) in {("string", "number"), ("array", "string"), ("object", "array")}):
                yield call(name, values[:i] + [WRONG[wrong]] + values[i + 1:])


def cases_of(group):
    made = []
    for name, lists in arguments.GROUPS.get(group, {}).items():
        texts = set()
        made_here = [call(name, values) for values in lists] + list(misuses(name, lists[0]))
        for case in made_here:
            text = json.dumps(case)
            if text not in texts:
                texts.add(text)
                made.append((name, case))
    made += [("query", {"query": text, "input": [1, {"a": 2}]}) for text in arguments.QUERIES.get(group, [])]
    extra = HERE / "tokens.json"
    if group == "jwt" and extra.exists():
        for entry in json.loads(extra.read_text()):
            made.append((entry["name"], call(entry["name"], entry["arguments"])))
    counts = {}
    out = []
    for name, case in made:
        counts[name] = counts.get(name, 0) + 1
        out.append({"id": f"{name}/{counts[name]}", "modules": [], **case, "strict_builtin_errors": True})
    return out


def find_opa():
    for path in (os.environ.get("OPA"), shutil.which("opa"), os.path.expanduser("~/go/bin/opa")):
        if path and os.access(path, os.X_OK):
            return path
    print("SKIPPED: the program opa is not here (go install github.com/open-policy-agent/opa@v" + VERSION + ", or set OPA): nothing was compared", file=sys.stderr)
    sys.exit(77)


def ask(opa, case):
    command = [opa, "eval", "--format", "json", "--strict-builtin-errors", case["query"]]
    text = None
    if "input" in case:
        command.insert(2, "--stdin-input")
        text = json.dumps(case["input"])
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    answer = json.loads(done.stdout)
    if "errors" in answer:
        first = answer["errors"][0]
        return {"id": case["id"], "error": {"code": first.get("code", "?"), "message": first["message"]}}
    rows = []
    for row in answer.get("result", []):
        rows.append({"bindings": row.get("bindings", {}), "expressions": [{"value": e["value"]} for e in row["expressions"]]})
    return {"id": case["id"], "result": rows}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def groups():
    return sorted(set(arguments.GROUPS) | {"jwt"})


def write(path, values):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(v, sort_keys=True) + "\n" for v in values))


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    opa = find_opa()
    differ = count = 0
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for group in groups():
            cases = cases_of(group)
            answers = list(pool.map(lambda case: ask(opa, case), cases))
            count += len(cases)
            if sys.argv[1] == "write":
                write(HERE / "cases" / f"{group}.jsonl", cases)
                write(HERE / "expected" / f"{group}.jsonl", answers)
                continue
            for old, new in zip(lines(HERE / "expected" / f"{group}.jsonl"), answers, strict=True):
                if old != new:
                    differ += 1
                    print(f"{old['id']}: checked in {json.dumps(old)}, opa says {json.dumps(new)}")
    print(f"{count} cases, {differ} differ")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
