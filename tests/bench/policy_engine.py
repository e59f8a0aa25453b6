"""The compiled policy by itself: decisions and building, by the number of rules (bench_policy)."""

import json
import subprocess

L4, REST, BUILD, WHOLE, CURVE = ("policy: L4 decision, 1,000 rules", "policy: REST decision, 1,000 rules", "policy: building 10,000 rules",
                                 "policy: 10,000 rules from bytes to decisions", "policy: decision by rules")
NAMES = (L4, REST, BUILD, WHOLE, CURVE)


def run(report, world, build):
    command = [str(build / "bench" / "bench_policy")] + (["--quick"] if report.quick else [])
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    decisions = [row for row in rows if row["what"] == "decisions"]
    builds = [row for row in rows if row["what"] == "building"]
    for row in decisions:
        if row["rules"] != 1000:
            continue
        if report.wanted(L4):
            report.add(f"{L4}, {row['shape']}", row["l4_ns"] / 1000, "us", goal=1)
        if report.wanted(REST):
            report.add(f"{REST}, {row['shape']}", row["rest_ns"] / 1000, "us", goal=3)
    largest = max(builds, key=lambda row: row["rules"])
    if report.wanted(BUILD) and largest["rules"] == 10000:
        report.add(BUILD, largest["compile_ms"], "ms", goal=100)
    if report.wanted(WHOLE) and largest["rules"] == 10000:
        report.add(WHOLE, largest["whole_ms"], "ms")
    if report.wanted(CURVE):
        for row in decisions:
            if row["rules"] != 1000:
                report.add(f"{CURVE}: {row['rules']:,} rules, {row['shape']}, L4", row["l4_ns"] / 1000, "us")
                report.add(f"{CURVE}: {row['rules']:,} rules, {row['shape']}, REST", row["rest_ns"] / 1000, "us")
