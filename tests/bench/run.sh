#!/usr/bin/env bash
# Measures BUILD_DIR against the rivals of the same machine in the same run and writes BUILD_DIR/bench/report.json.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${1:?usage: run.sh BUILD_DIR}
"$here/../e2e/run.sh" "$build" --collect-only -q >/dev/null   # makes the virtual environment
OPENSHELL_BUILD_DIR=$build PYTHONPATH=$here/../e2e exec "$build/e2e-venv/bin/python" "$here/bench.py" "$build/bench/report.json"
