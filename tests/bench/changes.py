"""How fast a decision of a person reaches the sandbox, and a refusal the person who watches."""

import statistics
import threading
import time

from openshell._proto import openshell_pb2
from report import quantile
from world import ALIAS, WORKSPACE, endpoint, inspected, policy

ENFORCED = {share: f"policy change -> enforced {share}" for share in ("p50", "p99")}
ACKNOWLEDGED = {share: f"policy change -> acknowledged {share}" for share in ("p50", "p99")}
DENIAL = "denial -> watching client p50"
NAMES = (*ENFORCED.values(), *ACKNOWLEDGED.values(), DENIAL)
LOADED = openshell_pb2.POLICY_STATUS_LOADED


class Outcomes:
    """Lines of the load client in the sandbox, which tries the port every 2 ms: when the outcome of connect() changed, on the wall clock."""

    def __init__(self, world, port, seconds):
        self.process = world.start_inside("flips", host=ALIAS, port=port, seconds=seconds)
        self.changed = threading.Condition()
        self.seen = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            before, after, error = map(int, line.split())
            with self.changed:
                self.seen.append((before / 1e9, after / 1e9, error == 0))
                self.changed.notify_all()

    def wait_for(self, allowed, since, seconds=15):
        with self.changed:
            if not self.changed.wait_for(lambda: self.seen and self.seen[-1][2] == allowed and self.seen[-1][1] >= since, seconds):
                raise RuntimeError(f"the outcome did not become {'allowed' if allowed else 'refused'} within {seconds} s: {self.seen[-3:]}")
            return self.seen[-1][1]

    def end(self):
        self.process.kill()
        self.process.wait(10)


def set_policy(world, message):
    return world.client._stub.UpdateConfig(openshell_pb2.UpdateConfigRequest(workspace_scope={"workspace": WORKSPACE}, sandbox="bench", policy=message)).version


def wait_loaded(world, version):
    request = openshell_pb2.GetSandboxPolicyStatusRequest(workspace_scope={"workspace": WORKSPACE}, sandbox="bench", version=version)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if world.client._stub.GetSandboxPolicyStatus(request).revision.status == LOADED:
            return time.time()
        time.sleep(0.001)
    raise RuntimeError(f"revision {version} was not acknowledged within 15 s")


def policy_changes(report, world):
    """The port is opened and closed in turn; both directions count."""
    fixed = [inspected(world.upstream.http), inspected(world.upstream.https)]
    closed, opened = policy(*fixed), policy(*fixed, endpoint(world.upstream.raw))
    wait_loaded(world, set_policy(world, closed))
    outcomes = Outcomes(world, world.upstream.raw, 120)
    enforced, acknowledged = [], []
    try:
        outcomes.wait_for(False, 0)
        for run in range(report.runs(60, 6)):
            allowed = run % 2 == 0
            begin = time.time()
            version = set_policy(world, opened if allowed else closed)
            acknowledged.append((wait_loaded(world, version) - begin) * 1000)
            enforced.append((outcomes.wait_for(allowed, begin) - begin) * 1000)
            time.sleep(0.05)
    finally:
        outcomes.end()
        set_policy(world, opened)
    for names, values, goal in ((ENFORCED, enforced, 100), (ACKNOWLEDGED, acknowledged, 250)):
        report.add(names["p50"], statistics.median(values), "ms", goal=goal)
        report.add(names["p99"], quantile(values, 0.99), "ms", goal=goal)


def denials(report, world):
    """From the moment connect() was called to the arrival of its log line at a client of WatchSandbox."""
    arrived = threading.Condition()
    times = {}
    request = openshell_pb2.WatchSandboxRequest(workspace_scope={"workspace": WORKSPACE}, sandbox="bench", follow_logs=True, log_tail_lines=0)
    stream = world.client._stub.WatchSandbox(request)

    def read():
        try:
            for event in stream:
                now, text = time.time(), str(event)
                with arrived:
                    times.setdefault("first", now)
                    for port in ports:
                        if f":{port}" in text and "DENIED" in text:
                            times.setdefault(port, now)
                    arrived.notify_all()
        except Exception as error:
            times["error"] = error

    ports = list(range(20_001, 20_001 + report.runs(30, 5)))
    threading.Thread(target=read, daemon=True).start()
    time.sleep(0.5)
    values = []
    for port in ports:
        outcomes = Outcomes(world, port, 1)
        outcomes.wait_for(False, 0)
        begin = outcomes.seen[0][0]
        with arrived:
            if not arrived.wait_for(lambda: port in times, 10):
                raise RuntimeError(f"no log line of the refused connection to port {port} arrived within 10 s: {times}")
        values.append((times[port] - begin) * 1000)
        outcomes.end()
    stream.cancel()
    report.add(DENIAL, statistics.median(values), "ms", goal=200)


def run(report, world, build):
    world.sandbox()
    if report.wanted(*ENFORCED.values(), *ACKNOWLEDGED.values()):
        policy_changes(report, world)
    if report.wanted(DENIAL):
        denials(report, world)
