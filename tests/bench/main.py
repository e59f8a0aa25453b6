"""./dev bench: every theme in turn, then build/bench/report.json. Arguments: BUILD_DIR [--quick] [--only NAME]... [--list]."""

import argparse
import pathlib
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from report import Report
from world import World

import changes
import connects
import control_plane
import creation
import introspection
import memory
import outbox
import policy_engine
import rego_engines
import requests_through
import throughput

THEMES = (policy_engine, rego_engines, control_plane, creation, changes, connects, requests_through, throughput, memory, introspection, outbox)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="few runs: shows that it works, not how fast it is")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only figures whose name holds NAME")
    parser.add_argument("--list", action="store_true", help="the names, nothing is measured")
    arguments = parser.parse_args()
    names = [name for theme in THEMES for name in theme.NAMES]
    if arguments.list:
        print("\n".join(names))
        return 0
    report = Report(arguments.only, arguments.quick)
    if not report.wanted(*names):
        parser.error(f"no figure's name holds {arguments.only}; --list shows them")
    print(f"{report.machine['cores']} cores, {report.machine['processor']}, Linux {report.machine['kernel']}, load {report.machine['load_before']:.2f}", flush=True)
    if report.machine["load_before"] > 0.5:
        print("NOTE: the machine is not idle; figures of this run are no figures of an idle one", flush=True)
    start = time.monotonic()
    world = World(report)
    try:
        for theme in THEMES:
            if report.wanted(*theme.NAMES):
                try:
                    theme.run(report, world, arguments.build)
                except Exception as error:  # one theme that breaks must not take the others' figures along
                    traceback.print_exc()
                    report.fail(theme.__name__, str(error)[:300])
    finally:
        world.end()
    path = arguments.build / "bench" / "report.json"
    report.write(path)
    print(f"{len(report.rows)} figures, {len(report.skipped)} rivals skipped, {len(report.failed)} themes failed, {time.monotonic() - start:.0f} s; written to {path}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
