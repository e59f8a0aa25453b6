#!/usr/bin/env python3
"""Runs cases/*.jsonl through `rego batch` and compares with expected/*.jsonl, the answers of the opa program. usage: calls_test.py REGO [--show]

Results and error codes have to be the same. Error texts are compared too; those that are worded otherwise are counted, and may not become
more than MESSAGES_MAY_DIFFER. exceptions.txt lists the ids of cases that answer otherwise, with the reason; one that no longer does is a failure.
"""
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MESSAGES_MAY_DIFFER = 100
PLACE = re.compile(r"^\d+:\d+: ")


def read(path):
    return [json.loads(line) for line in path.read_text().strip("\n").split("\n")]


def main():
    rego = sys.argv[1]
    exceptions = {}
    for line in (HERE / "exceptions.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            case, _, why = line.partition(" ## ")
            exceptions[case] = why
    total = wrong = worded = 0
    for source in sorted((HERE / "cases").glob("*.jsonl")):
        cases = read(source)
        run = subprocess.run([rego, "batch"], input=source.read_text(), capture_output=True, text=True)
        answers = [json.loads(line) for line in run.stdout.strip("\n").split("\n") if line]
        if run.returncode or len(answers) != len(cases):
            print(f"{source.name}: rego ended with {run.returncode} after {len(answers)} of {len(cases)} answers; next: {json.dumps(cases[min(len(answers), len(cases) - 1)])}")
            wrong += 1
        for case, want, got in zip(cases, read(HERE / "expected" / source.name), answers):
            total += 1
            message = want.get("error", {}).pop("message", None)
            own = PLACE.sub("", got.get("error", {}).pop("message", "")) or None
            same = want == got
            if same == (want["id"] in exceptions):
                wrong += 1
                print(f"{want['id']}: {case['query']} with {json.dumps(case.get('input'))}\n   opa  {json.dumps(want)} {message}\n   ours {json.dumps(got)} {own}" if not same
                      else f"{want['id']} is in exceptions.txt and answers as opa does")
            elif same and message != own:
                worded += 1
                if "--show" in sys.argv:
                    print(f"{want['id']}: {message}\n   {own}")
    print(f"{total} cases, {wrong} wrong, {len(exceptions)} exceptions, {worded} errors in other words")
    return 1 if wrong or not total or worded > MESSAGES_MAY_DIFFER else 0


if __name__ == "__main__":
    sys.exit(main())
