"""Private anonymous memory (Pss_Anon) of the two processes of a sandbox, idle and with idle connections."""

import time

from world import ALIAS, policy, pss_anonymous

SUPERVISOR, RUNTIME = "supervisor idle, private memory", "sandbox runtime idle, private memory"
GROWTH_HTTP, GROWTH_RAW = "memory per idle inspected HTTPS connection, supervisor and runtime", "memory per idle raw connection, supervisor and runtime"
NAMES = (SUPERVISOR, RUNTIME, GROWTH_HTTP, GROWTH_RAW)


def growth(report, world, name, count, **target):
    pids = world.processes_of("bench")
    both = lambda: sum(pss_anonymous(pids[which]) for which in ("supervisor", "runtime"))
    holders, used = [], []
    try:
        # The first half fills what is there once for all connections; what the second half adds is the growth.
        for _ in range(2):
            holder = world.start_inside("hold", count=count, **target)
            holders.append(holder)
            if holder.stdout.readline().strip() != "held":
                raise RuntimeError("the load client could not hold its connections")
            time.sleep(1)
            used.append(both())
    finally:
        for holder in holders:
            holder.stdin.close()
            holder.wait(20)
    report.add(name, (used[1] - used[0]) * 1024 / count, "KiB")


def run(report, world, build):
    if report.wanted(SUPERVISOR, RUNTIME):
        world.create("idle", policy())
        time.sleep(report.runs(5, 1))
        pids = world.processes_of("idle")
        report.add(SUPERVISOR, pss_anonymous(pids["supervisor"]), "MiB", goal=8)
        report.add(RUNTIME, pss_anonymous(pids["runtime"]), "MiB", goal=4)
        world.delete("idle")
    world_upstream = world.upstream
    count = report.runs(400, 50)
    if report.wanted(GROWTH_HTTP):
        world.sandbox()
        growth(report, world, GROWTH_HTTP, count, url=f"https://{ALIAS}:{world_upstream.https}/small")
    if report.wanted(GROWTH_RAW):
        world.sandbox()
        growth(report, world, GROWTH_RAW, count, host=ALIAS, port=world_upstream.raw)
