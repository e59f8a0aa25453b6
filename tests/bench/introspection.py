"""What it costs that every actor says what it does: 10,000 actors of which a tenth changes each second."""

import json
import subprocess

PUSHED, WATCHED = "introspection of 10,000 actors, a tenth changing each second", "introspection of 10,000 actors, with somebody who watches"
NAMES = (PUSHED, WATCHED)


def run(report, world, build):
    seconds = report.runs(20, 3)
    out = subprocess.run([str(build / "bench" / "bench_introspection"), "10000", str(seconds)], capture_output=True, text=True, timeout=60 + 4 * seconds, check=True).stdout
    found = json.loads(out)
    # What the same messages cost without anybody to report to is taken off.
    report.add(PUSHED, found["pushed_percent"] - found["bare_percent"], "% of CPU", goal=1)
    report.add(WATCHED, found["watched_percent"] - found["bare_percent"], "% of CPU")
