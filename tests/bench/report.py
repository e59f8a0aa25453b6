"""What a run says: rows of the report, the machine it ran on, and what was skipped."""

import json
import os
import pathlib
import platform
import time


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def machine():
    return {"cores": os.cpu_count(), "processor": processor(), "kernel": platform.release(), "load_before": os.getloadavg()[0],
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


class Report:
    """Rows as the issue wants them, printed as they come. `wanted` decides by name what runs at all."""

    def __init__(self, only=(), quick=False):
        self.only, self.quick = only, quick
        self.rows, self.skipped, self.failed = [], [], []
        self.machine = machine()

    def wanted(self, *names):
        return not self.only or any(word in name for word in self.only for name in names)

    def runs(self, full, quick):
        return quick if self.quick else full

    def add(self, name, ours, unit, goal=None, rival=None, rival_name=None, higher_is_better=False):
        rounded = [None if value is None else float(f"{value:.4g}") for value in (ours, rival)]
        row = {"name": name, "ours": rounded[0], "rival": rounded[1], "rival_name": rival_name, "unit": unit, "goal": goal}
        if higher_is_better:
            row["higher_is_better"] = True
        self.rows.append(row)
        met = "" if goal is None or ours is None else ("   met" if (ours >= goal if higher_is_better else ours <= goal) else "   MISSED")
        beside = f"   {rival_name}: {rounded[1]}" if rival is not None else ""
        print(f"{name:66} {rounded[0]!s:>9} {unit:9}{beside:44}   goal: {'-' if goal is None else goal}{met}", flush=True)

    def skip(self, what, why):
        self.skipped.append(f"{what}: {why}")
        print(f"SKIPPED {what}: {why}", flush=True)

    def fail(self, theme, why):
        self.failed.append(f"{theme}: {why}")
        print(f"FAILED {theme}: {why}", flush=True)

    def write(self, path):
        """The list alone in PATH; what it was measured on beside it, in machine.json."""
        self.machine["load_after"] = os.getloadavg()[0]
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.rows, indent=2) + "\n")
        about = {**self.machine, "quick": self.quick, "only": list(self.only), "skipped": self.skipped, "failed": self.failed}
        path.with_name("machine.json").write_text(json.dumps(about, indent=2) + "\n")
