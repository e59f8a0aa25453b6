#!/usr/bin/env python3
"""Runs every case of expected/*.jsonl through `rego batch` and compares values and error codes. usage: ... REGO [--show] [GROUP...]

The expected values are the opa program's (derive.py asks it). exceptions.txt lists queries whose answer differs on purpose, with the
reason behind ` ## `; one that no longer differs is a failure too.
"""
import json
import pathlib
import subprocess
import sys

ROOM = pathlib.Path(__file__).parent


def same(ours, theirs):
    """JSON equality in which 1 and 1.0 are one number and true is none."""
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return ours == theirs or (isinstance(ours, float) and abs(ours - theirs) <= 1e-15 * abs(theirs))
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    return ours == theirs


def holds(case, answer):
    if "error" in case:
        return answer.get("error", {}).get("code") == case["error"]["code"]
    if "result" not in answer:
        return False
    if "value" not in case:
        return answer["result"] == [] or case["query"] == ""
    return len(answer["result"]) == 1 and same(answer["result"][0]["expressions"][-1]["value"], case["value"])


def main():
    rego = sys.argv[1]
    show = "--show" in sys.argv
    wanted = [a for a in sys.argv[2:] if not a.startswith("--")]
    exceptions = {}
    listed = ROOM / "exceptions.txt"
    for line in listed.read_text().splitlines() if listed.exists() else []:
        if line and not line.startswith("#"):
            query, _, why = line.partition(" ## ")
            exceptions[query] = why
    failed = total = 0
    for source in sorted((ROOM / "expected").glob("*.jsonl")):
        if wanted and source.stem not in wanted:
            continue
        cases = [json.loads(line) for line in source.read_text().splitlines() if line]
        assert cases, f"{source} holds no case"
        lines = [json.dumps({"id": i, "query": c["query"], "modules": [], "strict_builtin_errors": True}) for i, c in enumerate(cases)]
        run = subprocess.run([rego, "batch"], input="\n".join(lines) + "\n", capture_output=True, text=True)
        answers = {a["id"]: a for a in map(json.loads, run.stdout.splitlines())}
        bad = 0
        for i, case in enumerate(cases):
            total += 1
            good = holds(case, answers.get(i, {}))
            if good != (case["query"] in exceptions):
                continue
            bad += 1
            if show or bad <= 5:
                ours = answers.get(i, {})
                ours = ours.get("error", ours.get("result"))
                print(f"{source.stem}: {case['query']}\n   opa:  {json.dumps({k: v for k, v in case.items() if k != 'query'}, ensure_ascii=False)[:400]}\n   ours: {json.dumps(ours, ensure_ascii=False)[:400]}")
        print(f"{source.stem}: {len(cases) - bad} of {len(cases)}")
        failed += bad
    print(f"{total - failed} of {total} cases")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
