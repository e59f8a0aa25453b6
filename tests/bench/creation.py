"""From CreateSandbox to a program that ran in it, beside what starts a program in namespaces or in a container."""

import concurrent.futures
import statistics
import subprocess
import time

import rivals
from report import quantile
from world import WORKSPACE, milliseconds, policy, pss_anonymous

P50, P99 = "create -> exec-ready p50", "create -> exec-ready p99"
DOCKER_P50, DOCKER_P99 = "create -> exec-ready p50, beside docker", "create -> exec-ready p99, beside docker"
EXEC = "exec round trip p50"
BURST, BURST_MEMORY = "50 sandboxes created at once, all ready", "memory of each of 50 sandboxes, all its processes"
NAMES = (P50, P99, DOCKER_P50, DOCKER_P99, EXEC, BURST, BURST_MEMORY)
READY = 2


def exec_true(client, name):
    result = client.exec(name, ["true"], workspace=WORKSPACE, no_login_shell=True)
    if result.exit_code != 0:
        raise RuntimeError(f"exec of true ended with {result.exit_code}: {result.stderr}")


def create_ready_exec(world, name):
    """Ready is polled every 2 ms; the figure ends with the answer of the first exec."""
    world.create(name, policy(), wait=False)
    while world.client.get(name, workspace=WORKSPACE).phase != READY:
        time.sleep(0.002)
    exec_true(world.client, name)


def repeat(command, runs):
    for _ in range(3):
        subprocess.run(command, check=True, capture_output=True)
    return [milliseconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(runs)]


def single(report, world):
    runs = report.runs(50, 3)
    values = []
    for run in range(-2, runs):
        name = f"create{run + 2}"
        took = milliseconds(lambda: create_ready_exec(world, name))
        world.delete(name)
        if run >= 0:
            values.append(took)
    command = rivals.bubblewrap(report)
    bwrap = repeat(command, runs) if command else []
    beside = {"rival_name": "bwrap --unshare-all true" if bwrap else None}
    report.add(P50, statistics.median(values), "ms", goal=60, rival=statistics.median(bwrap) if bwrap else None, **beside)
    report.add(P99, quantile(values, 0.99), "ms", goal=150, rival=quantile(bwrap, 0.99) if bwrap else None, **beside)
    if report.wanted(DOCKER_P50, DOCKER_P99):
        docker = rivals.Docker(report, world.root)
        try:
            if docker.command:
                theirs = repeat(docker.command, runs)
                report.add(DOCKER_P50, statistics.median(values), "ms", goal=60, rival=statistics.median(theirs), rival_name="docker run --network=none")
                report.add(DOCKER_P99, quantile(values, 0.99), "ms", goal=150, rival=quantile(theirs, 0.99), rival_name="docker run --network=none")
        finally:
            docker.end()


def round_trips(report, world):
    name = world.sandbox()
    for _ in range(20):
        exec_true(world.client, name)
    values = [milliseconds(lambda: exec_true(world.client, name)) for _ in range(report.runs(300, 30))]
    report.add(EXEC, statistics.median(values), "ms", goal=4)


def burst(report, world):
    count = report.runs(50, 8)
    names = [f"burst{i}" for i in range(count)]
    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda name: world.create(name, policy(), wait=False), names))
    waiting = set(names)
    while waiting:
        ready = {box.name for box in world.client.list_all(workspace=WORKSPACE) if box.phase == READY}
        waiting -= ready
        if time.perf_counter() - begin > 120:
            raise RuntimeError(f"{len(waiting)} of {count} sandboxes are not ready after 120 s")
        time.sleep(0.02)
    took = time.perf_counter() - begin
    report.add(BURST if count == 50 else f"{BURST} (only {count})", took, "s", goal=5)
    time.sleep(2)
    used = [sum(pss_anonymous(pid) for pid in world.processes_of(name).values()) for name in names[:: max(1, count // 10)]]
    report.add(BURST_MEMORY, statistics.mean(used), "MiB")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(world.delete, names))


def run(report, world, build):
    if report.wanted(P50, P99, DOCKER_P50):
        single(report, world)
    if report.wanted(EXEC):
        round_trips(report, world)
    if report.wanted(BURST, BURST_MEMORY):
        burst(report, world)
