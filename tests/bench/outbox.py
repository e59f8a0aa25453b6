"""Statuses through the outbox, one in flight, beside the round trips of two bare CAF actors in the same run."""

import json
import statistics
import subprocess
import tempfile

NAMES = ("outbox: statuses delivered, in memory", "outbox: statuses delivered, journal synced")


def run(report, world, build):
    rows = []
    for _ in range(report.runs(5, 1)):
        with tempfile.TemporaryDirectory(dir=build) as directory:  # a real disk, not a tmpfs
            done = subprocess.run([build / "bench/bench_outbox", str(report.runs(200_000, 20_000)), f"{directory}/outbox"], capture_output=True, text=True, check=True, timeout=300)
        rows.append(json.loads(done.stdout))
    middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    for name, key in zip(NAMES, ("memory", "disk")):
        report.add(name, middle[key], "1/s", rival=middle["ping_pong"], rival_name="bare CAF round trips", higher_is_better=True)
