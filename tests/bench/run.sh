#!/usr/bin/env bash
# Measures BUILD_DIR against the rivals of the same machine in the same run and writes BUILD_DIR/bench/report.json.
# Usage: run.sh BUILD_DIR [--quick] [--only NAME]... [--list]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${1:?usage: run.sh BUILD_DIR [--quick] [--only NAME]... [--list]}
shift
"$here/../e2e/run.sh" "$build" --collect-only -q >/dev/null   # makes the virtual environment of the published client
mkdir -p "$build/bench"
mitm=$build/bench/mitmproxy   # of its own: its libraries would displace the client's
if [[ ! -x $mitm/bin/mitmdump ]]; then
  { python3 -m venv --clear "$mitm" && "$mitm/bin/pip" install -q --disable-pip-version-check mitmproxy; } >"$build/bench/mitmproxy.log" 2>&1 ||
    echo "mitmproxy could not be installed, see $build/bench/mitmproxy.log" >&2
fi
OPENSHELL_BUILD_DIR=$build PYTHONPATH=$here/../e2e exec "$build/e2e-venv/bin/python" "$here/main.py" "$build" "$@"
