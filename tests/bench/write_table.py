#!/usr/bin/env python3
"""Puts the figures of a run into docs/performance.md, between its two markers. Usage: write_table.py build/bench/report.json docs/performance.md"""

import json
import pathlib
import re
import sys

BEGIN, END = "<!-- figures: written by tests/bench/write_table.py -->", "<!-- end of figures -->"


def number(value):
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def verdict(row):
    ours, goal = row["ours"], row["goal"]
    if goal is None or ours is None:
        return "-"
    met = ours >= goal if row.get("higher_is_better") else ours <= goal
    sign = "at least" if row.get("higher_is_better") else "at most"
    return f"{sign} {number(goal)}: {'met' if met else '**missed**'}"


def table(rows):
    lines = ["| figure | ours | beside | goal |", "|---|---:|---:|---|"]
    for row in rows:
        beside = f"{row['rival_name']}: {number(row['rival'])}" if row["rival"] is not None else "-"
        lines.append(f"| {row['name']} | {number(row['ours'])} {row['unit']} | {beside} | {verdict(row)} |")
    return "\n".join(lines)


def about(machine):
    text = (f"Measured {machine['time'][:16].replace('T', ' ')} UTC on {machine['cores']} cores ({machine['processor']}, Linux {machine['kernel']}), "
            f"load {machine['load_before']:.2f} before and {machine['load_after']:.2f} after the run.")
    if machine["quick"]:
        text += " **A quick run: it shows that everything works, not how fast it is.**"
    if machine["load_before"] > 0.5:
        text += " **Other programs were running: these are no figures of an idle machine.**"
    for skipped in machine["skipped"]:
        text += f"\nNot measured beside {skipped}."
    return text


def main(report, page):
    report, page = pathlib.Path(report), pathlib.Path(page)
    machine = json.loads(report.with_name("machine.json").read_text())
    if machine["only"]:
        sys.exit(f"{report} is of a run with --only: the page shows whole runs")
    text = page.read_text()
    figures = f"{BEGIN}\n\n{about(machine)}\n\n{table(json.loads(report.read_text()))}\n\n{END}"
    changed, count = re.subn(re.escape(BEGIN) + ".*" + re.escape(END), lambda match: figures, text, flags=re.S)
    if count != 1:
        sys.exit(f"{page} does not hold the two markers once")
    page.write_text(changed)


if __name__ == "__main__":
    main(*sys.argv[1:])
