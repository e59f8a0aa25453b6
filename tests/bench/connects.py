"""What the broker adds to connect(): the same program natively and in the sandbox."""

from world import ALIAS, native

LOOPBACK, MEDIATED = "connect() to loopback in the sandbox, added p50", "connect() mediated and allowed, added p50"
NAMES = (LOOPBACK, MEDIATED)


def run(report, world, build):
    world.sandbox()
    count = report.runs(5000, 300)
    if report.wanted(LOOPBACK):
        outside, inside = native("connects", own=1, count=count), world.inside("connects", own=1, count=count)
        report.add(LOOPBACK, inside["p50_us"] - outside["p50_us"], "us", goal=60, rival=outside["p50_us"], rival_name="native connect(), whole")
    if report.wanted(MEDIATED):
        port = world.upstream.http
        outside = native("connects", host="127.0.0.1", port=port, count=count)
        inside = world.inside("connects", host=ALIAS, port=port, count=count)
        report.add(MEDIATED, inside["p50_us"] - outside["p50_us"], "us", goal=400, rival=outside["p50_us"], rival_name="native connect(), whole")
