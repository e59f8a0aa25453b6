"""The figures of the thin line, each beside a rival where there is one. Usage: bench.py REPORT; OPENSHELL_BUILD_DIR names the build."""

import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from conftest import WORKSPACE, Gateway, delete_gone, wait_until

RUNS = 20


def milliseconds(action):
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


class Report:
    def __init__(self):
        self.rows = []

    def add(self, name, values, rival_name=None, rival_values=None, goal=None, unit="ms"):
        ours = round(statistics.median(values), 3)
        rival = round(statistics.median(rival_values), 3) if rival_values else None
        self.rows.append({"name": name, "ours": ours, "rival": rival, "rival_name": rival_name, "unit": unit, "goal": goal})
        print(f"{name:52} {ours:10.3f} {unit}   {rival_name or '-'}: {rival if rival is not None else '-'}   goal: {goal if goal is not None else '-'}", flush=True)


def bubblewrap():
    if not shutil.which("bwrap"):
        print("SKIPPED: bwrap is not installed, no rival for create", flush=True)
        return None
    command = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin", "true"]
    return [milliseconds(lambda: subprocess.run(command, check=True)) for _ in range(RUNS)]


def create_to_ready(client):
    def one():
        client.create(workspace=WORKSPACE, name="bench")
        wait_until(lambda: client.exec("bench", ["true"], workspace=WORKSPACE).exit_code == 0 if ready(client) else False, 30)

    values = []
    for _ in range(RUNS):
        values.append(milliseconds(one))
        delete_gone(client, "bench")
    return values


def ready(client):
    return client.get("bench", workspace=WORKSPACE).phase == 2


def main(report_path):
    report = Report()
    root = pathlib.Path(tempfile.mkdtemp(prefix="openshell-bench-"))
    root.chmod(0o711)
    gateway = Gateway(root)
    try:
        report.add("gateway start to first TCP answer", [milliseconds(gateway.start)], goal=60)
        gateway.cli("gateway", "add", gateway.endpoint, "--local", "--name", "bench")
        with gateway.client() as client:
            client.health()
            report.add("Health over one connection, published client", [milliseconds(client.health) for _ in range(500)], goal=0.15)
            report.add("create to exec-ready", create_to_ready(client), "bwrap --unshare-all", bubblewrap(), goal=60)
            client.create(workspace=WORKSPACE, name="bench")
            client.wait_ready("bench", workspace=WORKSPACE)
            execs = [milliseconds(lambda: client.exec("bench", ["true"], workspace=WORKSPACE, no_login_shell=True)) for _ in range(100)]
            report.add("exec round trip (true)", execs, goal=4)
            delete_gone(client, "bench")
    finally:
        gateway.end()
        shutil.rmtree(root, ignore_errors=True)
    path = pathlib.Path(report_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report.rows, indent=2) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main(sys.argv[1])
