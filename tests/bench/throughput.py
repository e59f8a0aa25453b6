"""Bytes a second of one connection: raw through the relay, and TLS that is opened and closed again."""

from world import ALIAS, native

RAW, RAW_SQUID = "raw relay throughput", "raw relay throughput, beside squid"
TLS_DIRECT, TLS_SQUID = "TLS-inspected throughput, beside direct", "TLS-inspected throughput, beside squid"
NAMES = (RAW, RAW_SQUID, TLS_DIRECT, TLS_SQUID)
MIB = 1 << 20


def run(report, world, build):
    world.sandbox()
    if report.wanted(RAW, RAW_SQUID):
        size = report.runs(2048, 64) * MIB
        direct = native("bulk", host="127.0.0.1", port=world.upstream.raw, bytes=size)["mib_per_s"]
        ours = world.inside("bulk", host=ALIAS, port=world.upstream.raw, bytes=size)["mib_per_s"]
        report.add(RAW, ours, "MiB/s", goal=round(0.7 * direct), rival=direct, rival_name="direct", higher_is_better=True)
        if report.wanted(RAW_SQUID):  # squid copies what it does not look into as the body of a plain HTTP answer
            proxy = world.proxies(build).get("squid")
            url = f"http://localhost:{world.upstream.http}/bytes/{64 * MIB}"
            theirs = native("download", url=url, proxy=proxy.address, count=report.runs(16, 1))["mib_per_s"] if proxy else None
            report.add(RAW_SQUID, ours, "MiB/s", rival=theirs, rival_name="squid" if theirs else None, higher_is_better=True)
    if report.wanted(TLS_DIRECT, TLS_SQUID):
        size, count = 64 * MIB, report.runs(16, 1)
        url = f"https://{{}}:{world.upstream.https}/bytes/{size}"
        direct = native("download", url=url.format("localhost"), ca=world.upstream.ca, count=count)["mib_per_s"]
        ours = world.inside("download", url=url.format(ALIAS), count=count)["mib_per_s"]
        report.add(TLS_DIRECT, ours, "MiB/s", goal=round(0.45 * direct), rival=direct, rival_name="direct", higher_is_better=True)
        if report.wanted(TLS_SQUID):
            proxy = world.proxies(build).get("squid")
            theirs = native("download", url=url.format("localhost"), proxy=proxy.address, ca=proxy.ca, count=count)["mib_per_s"] if proxy else None
            report.add(TLS_SQUID, ours, "MiB/s", goal=round(2 * theirs) if theirs else None, rival=theirs, rival_name="squid" if theirs else None, higher_is_better=True)
