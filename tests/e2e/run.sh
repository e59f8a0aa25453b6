#!/usr/bin/env bash
# Runs the end-to-end tests of BUILD_DIR in a virtual environment of their own (kept in BUILD_DIR). Arguments after it go to pytest.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${1:?usage: run.sh BUILD_DIR [pytest arguments]}
shift
venv=$build/e2e-venv
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
export OPENSHELL_BUILD_DIR=$build
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider --rootdir "$here" "$here" "$@"
