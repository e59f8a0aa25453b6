#!/usr/bin/env bash
# Follows docs/quickstart.md as a newcomer would: runs its shell blocks in order, in one shell, in a state directory of its own.
# After a block ```sh may stand a block ```text: each of its lines must occur in what the commands printed (" ... " stands for anything).
# Without one the block must end with status 0. The block ```sh build is taken as done. Usage: run_quickstart_page.sh BUILD_DIR [--plain-user]
# With --plain-user, root follows it as `nobody`, in a copy that such a user can reach.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${1:?usage: run_quickstart_page.sh BUILD_DIR [--plain-user]}" && pwd)
if [[ ${2:-} == --plain-user ]]; then
  ((EUID == 0)) || exec "$0" "$build"  # a plain user already
  copy=$(mktemp -d /tmp/oqu-XXXXXX)
  trap 'rm -rf "$copy"' EXIT
  mkdir -p "$copy/tests/docs" "$copy/docs" "$copy/build/bin" "$copy/home"
  cp "$0" "$copy/tests/docs/" && cp "$root/docs/quickstart.md" "$copy/docs/" && cp "$build"/bin/openshell* "$copy/build/bin/" && cp -r "$build/bundle" "$copy/build/"
  chown -R nobody "$copy" && chmod 755 "$copy"
  setpriv --reuid=nobody --regid=nogroup --clear-groups env -i PATH=/usr/bin:/bin HOME="$copy/home" bash "$copy/tests/docs/$(basename "$0")" "$copy/build"
  exit
fi
page=$root/docs/quickstart.md
scratch=$(mktemp -d /tmp/oq-XXXXXX)
chmod 711 "$scratch"

finish() {
  local job
  for job in $(jobs -p) ${watchdog:-}; do kill "$job" 2>/dev/null; done
  wait
  rm -rf "$scratch"
}
trap finish EXIT

# Blocks as files: 01.sh, 01.text, 02.sh ...
python3 - "$page" "$scratch" <<'PY'
import pathlib, re, sys
page, scratch = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2])
number = 0
for kind, body in re.findall(r"^```(\S[^\n]*)\n(.*?)^```$", page, re.M | re.S):
    if kind == "sh":
        number += 1
        (scratch / f"{number:02}.sh").write_text(body)
    elif kind == "text":
        (scratch / f"{number:02}.text").write_text(body)
print(f"{number} blocks of {sys.argv[1]}")
PY

mkdir "$scratch/work" "$scratch/run" "$scratch/state"
ln -s "$build" "$scratch/work/build"
cd "$scratch/work" || exit 1
export HOME=$scratch OPENSHELL_STATE_DIR=$scratch/state OPENSHELL_RUN_DIR=$scratch/run OPENSHELL_LOCAL_TLS_DIR=$scratch/state/tls NO_COLOR=1
unset XDG_CONFIG_HOME XDG_STATE_HOME OPENSHELL_GATEWAY OPENSHELL_GATEWAY_ENDPOINT OPENSHELL_WORKSPACE OPENSHELL_SANDBOX_POLICY OPENSHELL_GATEWAY_CONFIG
started=$SECONDS
limit=${OPENSHELL_PAGE_SECONDS:-300}
exec 3>&1
trap '{ echo "FAIL: block $(basename "$block") was not over when the page had taken $limit s"; show "$block" unknown; } >&3; exit 1' TERM
# It ends with its sleep, and holds nothing open that somebody reads to the end.
(trap 'kill "$pause"; exit' TERM; sleep "$limit" & pause=$!; wait "$pause"; kill -TERM $$) >/dev/null 2>&1 3>&- & watchdog=$!
disown  # the page itself waits for what it started

show() {
  printf '\n--- commands\n'; cat "$1.sh"
  printf -- '--- printed, last status %s\n' "$2"; cat "$1.out"
}

for block in "$scratch"/[0-9][0-9].sh; do
  block=${block%.sh}
  # shellcheck disable=SC1090
  source "$block.sh" >"$block.out" 2>&1 </dev/null
  status=$?
  if [[ ! -e $block.text ]]; then
    if ((status != 0)); then echo "FAIL: block $(basename "$block") ended with status $status"; show "$block" $status; exit 1; fi
    continue
  fi
  while IFS= read -r line; do
    pattern=$(sed 's/[][\.*^$(){}+?|]/\\&/g; s/ \\\.\\\.\\\. /.*/g; s/  */ +/g' <<<"$line")
    if ! grep -qE -- "$pattern" "$block.out"; then echo "FAIL: block $(basename "$block") did not print: $line"; show "$block" $status; exit 1; fi
  done <"$block.text"
done
echo "the page holds: $(ls "$scratch"/*.sh | wc -l) blocks in $((SECONDS - started)) s"
