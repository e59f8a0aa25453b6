"""The gateway alone: start, small calls, durable writes, memory, end."""

import signal
import statistics
import time

from report import quantile
from world import milliseconds, policy, pss_anonymous

START = "gateway start to healthy"
HEALTH, HEALTH_RATE = "Health p50, one connection", "Health rate, one connection"
GET, GET_RATE = "GetSandbox p50, one connection", "GetSandbox rate, one connection"
WRITES, WRITES_FLAT = "durable provider writes, 16 callers", "provider writes after 100,000 records, share of the first rate"
IDLE = "gateway idle, private memory"
END = "SIGTERM of the gateway with 5 sandboxes"
REFUSED = "gateway memory after 10,000 refused creations, growth"
NAMES = (START, HEALTH, HEALTH_RATE, GET, GET_RATE, WRITES, WRITES_FLAT, IDLE, REFUSED, END)


def start(report, world):
    gateway = world.new_gateway("start")
    values = []
    for _ in range(report.runs(15, 3)):
        begin = time.perf_counter()
        gateway.start_process()
        while not gateway.answers():
            time.sleep(0.0005)
        world.grpc("health", 1, 1, gateway=gateway)
        values.append((time.perf_counter() - begin) * 1000)
        gateway.end()
    # The client process that asks Health costs time of its own: taken off, as measured against a gateway that runs.
    gateway.start()
    time.sleep(0.3)
    client = statistics.median(milliseconds(lambda: world.grpc("health", 1, 1, gateway=gateway)) for _ in range(len(values)))
    if report.wanted(IDLE):
        time.sleep(2)
        report.add(IDLE, pss_anonymous(gateway.process.pid), "MiB")
    gateway.end()
    if report.wanted(START):
        report.add(START, statistics.median(values) - client, "ms", goal=60)


def small_calls(report, world):
    count = report.runs(20_000, 1000)
    if report.wanted(HEALTH, HEALTH_RATE):
        world.grpc("health", 500, 1)
        report.add(HEALTH, world.grpc("health", count // 4, 1)["p50_us"] / 1000, "ms", goal=0.15)
        report.add(HEALTH_RATE, world.grpc("health", count, 64)["rate"], "1/s", goal=10_000, higher_is_better=True)
    if report.wanted(GET, GET_RATE):
        name = world.sandbox()
        world.grpc("get", 500, 1, name)
        report.add(GET, world.grpc("get", count // 4, 1, name)["p50_us"] / 1000, "ms", goal=0.15)
        report.add(GET_RATE, world.grpc("get", count, 64, name)["rate"], "1/s", goal=10_000, higher_is_better=True)


def writes(report, world):
    """Each write is on the disk when it is answered. The second figure is the rate that is left when many records are stored."""
    gateway = world.new_gateway("writes")
    gateway.start()
    try:
        world.grpc("provider", 50, 16, "warm", gateway)
        first = world.grpc("provider", report.runs(3000, 200), 16, "first", gateway)["rate"]
        report.add(WRITES, first, "1/s", goal=1000, higher_is_better=True)
        if report.wanted(WRITES_FLAT):
            world.grpc("provider", report.runs(100_000, 2000), 64, "many", gateway)
            last = world.grpc("provider", report.runs(3000, 200), 16, "last", gateway)["rate"]
            report.add(WRITES_FLAT, last / first, "share", goal=0.9, higher_is_better=True)
    finally:
        gateway.end()


def refusals(report, world):
    """M1 of the reported faults: each refusal once leaked a megabyte. The first thousand fill what is kept between calls."""
    name, pid = world.sandbox(), world.gateway.process.pid
    world.grpc("refused", report.runs(1000, 200), 16, name)
    before = pss_anonymous(pid)
    world.grpc("refused", report.runs(10_000, 1000), 16, name)
    report.add(REFUSED, pss_anonymous(pid) - before, "MiB", goal=1)


def end(report, world):
    values = []
    for run in range(report.runs(5, 1)):
        gateway = world.new_gateway(f"end{run}")
        gateway.start()
        with gateway.client() as client:
            for i in range(5):
                world.create(f"box{i}", policy(), client=client)
        begin = time.perf_counter()
        gateway.process.send_signal(signal.SIGTERM)
        gateway.process.wait(60)
        values.append(time.perf_counter() - begin)
    report.add(END, quantile(values, 0.5), "s", goal=1)


def run(report, world, build):
    if report.wanted(START, IDLE):
        start(report, world)
    if report.wanted(HEALTH, HEALTH_RATE, GET, GET_RATE):
        small_calls(report, world)
    if report.wanted(WRITES, WRITES_FLAT):
        writes(report, world)
    if report.wanted(REFUSED):
        refusals(report, world)
    if report.wanted(END):
        end(report, world)
