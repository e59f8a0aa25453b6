"""What inspection adds to one HTTP and one HTTPS request, beside proxies that open TLS, and how many a second 64 clients get.
"Added" is the latency through it less the latency of the same request straight to the same server, measured in the same run."""

import changes
from openshell._proto import sandbox_pb2
from world import ALIAS, fixed_endpoints, inspected, native, policy

KINDS = {"HTTP keep-alive": ("http", 0), "HTTPS keep-alive": ("https", 0), "HTTP fresh": ("http", 1), "HTTPS fresh": ("https", 1)}
RATES = {"HTTP": "http", "HTTPS": "https"}
NAMES = tuple(f"{kind} request, added {share}, beside {rival}" for rival in ("squid", "mitmproxy") for kind in KINDS for share in ("p50", "p99")) + tuple(
    f"{kind} requests of 64 clients, beside {rival}" for rival in ("squid", "mitmproxy") for kind in RATES)


RULES = "HTTP keep-alive request under 1,000 rules, times that under one"
NAMES += (RULES,)


def url_of(world, scheme, host):
    return f"{scheme}://{host}:{getattr(world.upstream, scheme)}/small"


def latencies(report, world, proxies):
    for kind, (scheme, fresh) in KINDS.items():
        names = [name for name in NAMES if name.startswith(f"{kind} request,")]
        if not report.wanted(*names):
            continue
        options = {"count": report.runs(1500 if fresh else 5000, 150), "warmup": report.runs(200, 30), "fresh": fresh}
        direct = native("requests", url=url_of(world, scheme, "localhost"), ca=world.upstream.ca, **options)
        ours = world.inside("requests", url=url_of(world, scheme, ALIAS), **options)
        for rival in ("squid", "mitmproxy"):
            proxy = proxies.get(rival)
            if rival == "mitmproxy":  # an order of magnitude slower: fewer runs show as much
                options["count"] //= 5
            theirs = native("requests", url=url_of(world, scheme, "localhost"), proxy=proxy.address, ca=proxy.ca, **options) if proxy else None
            for share in ("p50", "p99"):
                name, field = f"{kind} request, added {share}, beside {rival}", f"{share}_us"
                if not report.wanted(name):
                    continue
                added = (theirs[field] - direct[field]) / 1000 if theirs else None
                goal = None
                if rival == "squid" and share == "p50" and added is not None:
                    goal = float(f"{added / 3 if kind == 'HTTPS fresh' else added:.3g}") if kind != "HTTP fresh" else None
                report.add(name, (ours[field] - direct[field]) / 1000, "ms", goal=goal, rival=added, rival_name=rival if theirs else None)


def rates(report, world, proxies):
    for kind, scheme in RATES.items():
        names = [f"{kind} requests of 64 clients, beside {rival}" for rival in ("squid", "mitmproxy")]
        if not report.wanted(*names):
            continue
        options = {"threads": 64, "warmup": 5, "fresh": 0}
        ours = world.inside("requests", url=url_of(world, scheme, ALIAS), count=report.runs(40_000, 2000), **options)["rate"]
        for rival, name in zip(("squid", "mitmproxy"), names):
            proxy = proxies.get(rival)
            count = report.runs(40_000 if rival == "squid" else 5000, 1000)
            theirs = native("requests", url=url_of(world, scheme, "localhost"), proxy=proxy.address, ca=proxy.ca, count=count, **options)["rate"] if proxy else None
            goal = round(2 * theirs) if proxy and rival == "squid" else None
            report.add(name, ours, "1/s", goal=goal, rival=theirs, rival_name=rival if proxy else None, higher_is_better=True)


def many_rules(report, world):
    """M8 of the reported faults: the cost of a request grew with the number of rules. The rule that allows is the last one."""
    options = {"url": url_of(world, "http", ALIAS), "count": report.runs(5000, 300), "warmup": 100}
    one, many = policy(inspected(world.upstream.http)), policy(inspected(world.upstream.http))
    rules = many.network_policies["bench"].endpoints[0].rules
    del rules[:]
    for number in range(999):
        rules.add().allow.MergeFrom(sandbox_pb2.L7Allow(method="POST", path=f"/api/v{number}/**"))
    rules.add().allow.MergeFrom(sandbox_pb2.L7Allow(method="GET", path="/**"))
    took = []
    for message in (one, many):
        changes.wait_loaded(world, changes.set_policy(world, message))
        took.append(world.inside("requests", **options)["p50_us"])
    report.add(RULES, took[1] / took[0], "times", goal=1.2)
    changes.set_policy(world, policy(*fixed_endpoints(world)))


def run(report, world, build):
    world.sandbox()
    if report.wanted(RULES):
        many_rules(report, world)
    if not report.wanted(*(name for name in NAMES if name != RULES)):
        return
    proxies = world.proxies(build)
    latencies(report, world, proxies)
    rates(report, world, proxies)
