#!/usr/bin/env bash
# The main job, shown line by line: a gateway, a sandbox under policy, what it may do and what it may not, and why.
# Usage: quickstart.sh BUILD_DIR [--policy FILE] | --stop. Called by `./dev quickstart` and `./dev stop`; safe to repeat.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

name=quickstart
port=${OPENSHELL_QUICKSTART_PORT:-17679}
if ((EUID == 0)); then
  state=/var/lib/openshell-quickstart run=/run/openshell-quickstart
else
  state=${XDG_STATE_HOME:-$HOME/.local/state}/openshell-quickstart run=${XDG_RUNTIME_DIR:-/tmp/os-$EUID}/osq  # short: socket paths have 107 bytes
fi
work=$run/host-api            # certificates, tokens and pids of the example's own servers
export OPENSHELL_STATE_DIR=$state OPENSHELL_RUN_DIR=$run OPENSHELL_LOCAL_TLS_DIR=$state/tls
export OPENSHELL_GATEWAY=$name NO_COLOR=1
unset OPENSHELL_GATEWAY_ENDPOINT OPENSHELL_WORKSPACE OPENSHELL_SANDBOX_POLICY OPENSHELL_GATEWAY_CONFIG

say() { printf '%s\n' "$*"; }
die() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

# ---- processes -------------------------------------------------------------------------------------------------------------------

alive() { [[ -s $1 ]] && kill -0 "$(<"$1")" 2>/dev/null; }

end_process() {
  alive "$1" || { rm -f "$1"; return 0; }
  local pid tries
  pid=$(<"$1")
  kill -TERM "$pid" 2>/dev/null || true
  for ((tries = 0; tries < 150; ++tries)); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -0 "$pid" 2>/dev/null && kill -KILL "$pid"
  rm -f "$1"
}

stop_all() {
  end_process "$work/builder.pid"
  end_process "$work/provisioner.pid"
  end_process "$run/gateway.pid"
}

if [[ ${1:-} == --stop ]]; then
  stop_all
  say "Stopped. The state stays in $state; the next ./dev quickstart uses it again."
  exit 0
fi

build=${1:?usage: quickstart.sh BUILD_DIR [--policy FILE]}
shift
policy=$here/policy.yaml
if [[ ${1:-} == --policy ]]; then policy=${2:?--policy needs a file}; fi
export PATH=$build/bin:$PATH

# ---- checks ----------------------------------------------------------------------------------------------------------------------

failures=0
started=$(date +%s.%N)

pass() { printf '  ok    %s\n' "$1"; }
fail() {
  printf '  FAIL  %s\n' "$1"
  [[ -z ${2:-} ]] || printf '%s\n' "$2" | sed 's/^/          /' | head -n 20
  failures=$((failures + 1))
}

# check TEXT EXPECTED_EXIT(0|fail|any) PATTERN COMMAND...: the command's exit and its output are both as they should be.
check() {
  local text=$1 wanted=$2 pattern=$3 output code=0
  shift 3
  output=$("$@" 2>&1 </dev/null) || code=$?
  case $wanted in
    0) ((code == 0)) || { fail "$text" "exit $code: $output"; return 0; } ;;
    fail) ((code != 0)) || { fail "$text" "exit 0, though it must fail: $output"; return 0; } ;;
  esac
  if grep -qE -- "$pattern" <<<"$output"; then pass "$text"; else fail "$text" "no match for '$pattern' in (exit $code): $output"; fi
}

inside() { openshell sandbox exec -n "$name" --no-tty -- bash -c "$1"; }

# ---- start -----------------------------------------------------------------------------------------------------------------------

wait_for() {  # wait_for TEXT COMMAND...: at most 10 s
  local text=$1 tries
  shift
  for ((tries = 0; tries < 200; ++tries)); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.05
  done
  return 1
}

make_certificate() {
  ( cd "$work"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj '/CN=quickstart host API CA' -keyout ca.key -out ca.pem
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=host.openshell.internal' -keyout server.key -out server.csr
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -out server.pem \
      -extfile <(printf 'subjectAltName=DNS:host.openshell.internal\nextendedKeyUsage=serverAuth\n')
  ) >/dev/null 2>&1 || die "openssl could not make the example's certificate in $work"
}

start_api_servers() {
  end_process "$work/builder.pid"
  end_process "$work/provisioner.pid"
  local busy
  for busy in 9090 9443 9091; do
    ! (exec 3<>/dev/tcp/127.0.0.1/"$busy") 2>/dev/null || die "port $busy is taken by another program; the example needs 9090, 9091 and 9443"
  done
  setsid python3 "$here/server.py" --role builder --port 9090 --port 9443 --tls-cert "$work/server.pem" --tls-key "$work/server.key" --token "$API_TOKEN" \
    >"$work/builder.log" 2>&1 </dev/null &
  echo $! >"$work/builder.pid"
  setsid python3 "$here/server.py" --role provisioner --port 9091 --token "$API_TOKEN" >"$work/provisioner.log" 2>&1 </dev/null &
  echo $! >"$work/provisioner.pid"
  wait_for builder curl -fsS http://127.0.0.1:9090/healthz || die "the builder does not answer; see $work/builder.log"
  wait_for provisioner curl -fsS http://127.0.0.1:9091/healthz || die "the provisioner does not answer; see $work/provisioner.log"
}

gateway_answers() { openssl s_client -connect "127.0.0.1:$port" </dev/null; }

start_gateway() {
  if alive "$run/gateway.pid" && [[ ! $build/bin/openshell-gateway -nt $run/gateway.pid ]] && gateway_answers >/dev/null 2>&1; then return; fi
  end_process "$run/gateway.pid"
  cat >"$state/gateway.toml" <<TOML
[openshell]
version = 2

[openshell.gateway]
name = "$name"
bind_address = "127.0.0.1:$port"
compute_driver = "process"

[openshell.supervisor]
denial_flush_interval_secs = 1

[openshell.supervisor.network]
additional_ca_bundle = "$work/ca.pem"
TOML
  openshell-gateway generate-certs --output-dir "$state/tls" --no-client-copy >/dev/null 2>"$state/gateway.log" || die "generate-certs failed: $(<"$state/gateway.log")"
  setsid openshell-gateway --config "$state/gateway.toml" >>"$state/gateway.log" 2>&1 </dev/null &
  echo $! >"$run/gateway.pid"
  wait_for gateway gateway_answers || die "the gateway does not answer on port $port; the end of $state/gateway.log: $(tail -n 5 "$state/gateway.log")"
}

register() {
  local config=${XDG_CONFIG_HOME:-$HOME/.config}/openshell/gateways/$name
  [[ ! -e $config/metadata.json ]] || openshell gateway remove "$name" >/dev/null 2>&1 || true
  openshell gateway add "https://127.0.0.1:$port" --local --name "$name" --keep-active >/dev/null 2>"$work/register.log" ||
    die "the gateway could not be registered: $(<"$work/register.log")"
}

((EUID == 0)) || mkdir -p -m 0700 "$(dirname "$run")"
mkdir -p "$state" "$run"
[[ -O $run ]] || die "$run belongs to somebody else"
mkdir -p -m 0711 "$work"
[[ -s $work/server.pem ]] || make_certificate
# One token for the life of the state directory: a sandbox of the user's own may have the provider attached, and then it stays.
[[ -s $state/api-token ]] || (umask 077 && head -c 24 /dev/urandom | base64 | tr '+/' '-_' >"$state/api-token")
API_TOKEN=$(<"$state/api-token")
export API_TOKEN
start_api_servers
start_gateway
register

say "OpenShell quickstart: a gateway on 127.0.0.1:$port, two API servers on this host, one sandbox named '$name'"
say ""
check "the gateway answers" 0 'Status: +Connected' openshell status
openshell sandbox delete "$name" >/dev/null 2>&1 || true
wait_for deleted bash -c "! openshell sandbox get $name" || die "an earlier sandbox '$name' could not be deleted"
openshell provider delete api-server >/dev/null 2>&1 || true
openshell provider get api-server >/dev/null 2>&1 || openshell provider create --name api-server --type generic --credential API_TOKEN >/dev/null 2>&1 || true
check "provider 'api-server' of type generic keeps the token on the gateway" 0 'API_TOKEN' openshell provider get api-server
namespaces() { { readlink /proc/[0-9]*/ns/net 2>/dev/null || true; } | sort -u; }  # processes come and go meanwhile
before=$(namespaces)
if ! created=$(openshell sandbox create --name "$name" --policy "$policy" --provider api-server --detach 2>&1 </dev/null); then
  fail "sandbox '$name' is created from $policy" "$created"
  exit 1
fi
own_namespaces=$(comm -13 <(printf '%s\n' "$before") <(namespaces))
pass "sandbox '$name' runs under $(basename "$policy")"

say ""
say "1. What the policy allows"
bearer='-H "Authorization: Bearer $API_TOKEN"'
check "inside, \$API_TOKEN is a placeholder" 0 '^openshell:resolve:' inside 'echo $API_TOKEN'
check "GET http://host.openshell.internal:9090/tools.json answers: the supervisor put the token in" 0 '"name": "build"' \
  inside "curl -sS --fail-with-body $bearer http://host.openshell.internal:9090/tools.json"
check "the same over HTTPS on 9443, inspected by the session's own CA" 0 '"name": "build"' \
  inside "curl -sS --fail-with-body $bearer https://host.openshell.internal:9443/tools.json"

say ""
say "2. What it refuses"
check "POST /push: 403, method and path are not permitted" any '403' \
  inside "curl -sS -w ' %{http_code}' -X POST $bearer -d '{}' http://host.openshell.internal:9090/push"
check "python3 on the same endpoint: the binary is not permitted" fail 'PermissionError|Permission denied|Connection refused' \
  inside 'python3 -c "import socket; socket.create_connection((\"host.openshell.internal\", 9090), 5)"'
refused='exec 3<>/dev/tcp/host.openshell.internal/9091'
check "port 9091 of the same host: not listed, EACCES" fail 'Permission denied' inside "$refused"
check "another host: not listed, EACCES" fail 'Permission denied' inside 'exec 3<>/dev/tcp/unlisted.example.com/80'
check "reading /root" fail 'Permission denied' inside 'ls /root'
check "writing /usr" fail 'Permission denied|Read-only' inside 'touch /usr/written'
check "a raw socket" fail 'PermissionError|Operation not permitted|Permission denied' \
  inside 'python3 -c "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"'
check "ptrace of the runtime" 0 '^-1 1$' \
  inside 'python3 -c "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.ptrace(16, 1, 0, 0), ctypes.get_errno())"'
check "io_uring_setup" 0 '^-1 (1|38)$' \
  inside 'python3 -c "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.syscall(425, 8, 0), ctypes.get_errno())"'

say ""
say "3. Approving what was refused, without a restart"
pending() { openshell rule get "$name" --status pending -o json; }
proposal() { pending | python3 -c 'import json, sys; print(*[c["id"] for c in json.load(sys.stdin)["chunks"] if c["proposed_rule"]["endpoints"][0]["port"] == 9091])'; }
has_proposal() { [[ -n $(proposal) ]]; }
milliseconds() { echo $((($(date +%s%N) - $1) / 1000000)); }
in_force() { if (($2 <= 1000)); then pass "$1 after $2 ms"; else fail "$1 after $2 ms: must be within 1000"; fi; }
wait_for proposal has_proposal || true
check "the refused 9091 stands as a pending proposal, for that one program" 0 'host.openshell.internal:9091 \[L4\]' openshell rule get "$name" --status pending
chunk=$(proposal)
at=$(date +%s%N)
check "rule approve" 0 'approved. Policy version' openshell rule approve "$name" --chunk-id "$chunk" --wait --timeout 10
in_force "the approved rule is acknowledged as loaded" "$(milliseconds "$at")"
check "the very command that was refused now succeeds" 0 '^connected$' inside "$refused && echo connected"
wider=$work/wider.yaml
sed 's/ports: \[9090, 9443\]/ports: [9090, 9443, 9091]/' "$policy" >"$wider"
at=$(date +%s%N)
check "policy set: 9091 is open to curl instead" 0 'version|revision' openshell policy set "$name" --policy "$wider" --wait --timeout 10
in_force "the new policy is acknowledged as loaded" "$(milliseconds "$at")"
check "policy list shows the new revision as Loaded" 0 'Loaded' openshell policy list "$name"
check "curl 9091/tools.json answers" 0 '"name": "provision"' \
  inside "curl -sS --fail-with-body $bearer http://host.openshell.internal:9091/tools.json"
check "and bash is refused again" fail 'Permission denied' inside "$refused"

say ""
say "4. Looking at it, and the end"
check "sandbox exec passes stdout and the exit code" any '^out$' inside 'echo out; exit 3'
check "logs show the refused connection" 0 '9091' openshell logs "$name"
check "sandbox list" 0 "^$name .*Ready" openshell sandbox list
check "sandbox get -o json" 0 '"phase": "Ready"' openshell sandbox get "$name" -o json
identity=$(openshell sandbox get "$name" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])' 2>/dev/null || echo unknown)
check "sandbox delete" 0 'Deleted sandbox|deletion accepted' openshell sandbox delete "$name"

# Nothing of it is left: no process that names it or lives in its network namespace, no directory, no cgroup, no mount.
leftovers() {
  local process
  for process in /proc/[0-9]*; do
    { tr '\0' ' ' <"$process/cmdline"; } 2>/dev/null | grep -qF "$identity" && echo "process ${process#/proc/}: $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)"
    [[ -n $own_namespaces ]] && grep -qxF "$(readlink "$process/ns/net" 2>/dev/null)" <<<"$own_namespaces" && echo "process ${process#/proc/} in its network namespace"
  done
  find "$state" "$run" -name "*$identity*" 2>/dev/null
  find /sys/fs/cgroup -maxdepth 6 -type d -name "*$identity*" 2>/dev/null
  grep -F "$identity" /proc/self/mountinfo
  return 0
}
[[ -n $own_namespaces ]] || fail "the sandbox has no network namespace of its own"
for ((tries = 0; tries < 100; ++tries)); do
  left=$(leftovers)
  [[ -z $left ]] && break
  sleep 0.1
done
if [[ -z $left ]]; then pass "nothing of it is left: no process, mount, cgroup or file"; else fail "something is left of the sandbox" "$left"; fi

say ""
printf '%s in %.1f s. ' "$( ((failures)) && echo "$failures FAILED" || echo "Everything as it should be")" "$(awk "BEGIN {print $(date +%s.%N) - $started}")"
say "The gateway goes on running; ./dev stop ends it."
if ((failures == 0)); then
  say "Next: openshell --gateway $name sandbox create --name mine --policy $here/policy.yaml --provider api-server"
  say "      openshell --gateway $name sandbox exec -n mine -- bash -c 'id; ls -la'      (the programs are in $build/bin)"
fi
((failures == 0))
