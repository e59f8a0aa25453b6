"""A canary: a credential goes through everything a sandbox does, and is then looked for in everything that is left, in every form it could take.
It may be in three places: sealed in the database, in the memory of gateway and supervisor, and at the upstream that the policy names."""

import base64
import http.server
import os
import pathlib
import re
import secrets
import signal
import socketserver
import sqlite3
import threading
import urllib.parse

import openshell
import pytest
from conftest import WORKSPACE, Gateway, create_ready, delete_gone, wait_until
from openshell._proto import openshell_pb2

CANARY = f"canary/{secrets.token_hex(16)}+x"  # letters that change when a URL or JSON escapes them
SECOND = f"canary2-{secrets.token_hex(16)}"
PLACEHOLDER = b"openshell:resolve:env:"
RUNTIME = {"ld.so", "openshell-sandb"}  # PID 1 of a sandbox: started by its own loader

POLICY = """
version: 1
network_policies:
  up:
    endpoints:
      - host: host.openshell.internal
        ports: [{port}]
        protocol: rest
        enforcement: enforce
        rules:
          - allow: {{method: GET, path: "/**"}}
    binaries:
      - path: "/**"
"""


def forms(value):
    """How the value could stand somewhere: as it is, escaped, encoded, in pieces of base64 at each offset."""
    data = value.encode()
    found = {data, urllib.parse.quote(value, safe="").encode(), value.replace("/", "\\/").encode(), data.hex().encode(),
             data.decode().encode("utf-16-le")}
    for offset in range(3):  # whatever stands before it in the encoded text
        text = base64.b64encode(b"\0" * offset + data)
        found.add(text[4 if offset else 0:-4])
        found.add(base64.urlsafe_b64encode(b"\0" * offset + data)[4 if offset else 0:-4])
    return found


NEEDLES = forms(CANARY) | forms(SECOND)


def hits(data):
    return [needle for needle in NEEDLES if needle in data]


class Upstream:
    """Keeps what arrives; answers without an echo."""

    def __init__(self):
        upstream = self
        self.seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                upstream.seen.append((self.path, self.headers.get("authorization", "")))
                status = 500 if self.path.startswith("/broken") else 200
                self.send_response(status)
                self.send_header("content-length", "3")
                self.end_headers()
                self.wfile.write(b"ok\n")

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Run:
    """What a full run printed and sent, and the processes it left."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.texts = {}  # where from: bytes

    def keep(self, source, text):
        self.texts[f"{len(self.texts)}: {source}"] = text if isinstance(text, bytes) else text.encode(errors="replace")

    def cli(self, *words, check=True):
        result = self.gateway.cli(*words, check=False)
        self.keep("openshell " + " ".join(words), result.stdout + result.stderr)
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result

    def processes(self):
        """{pid: name} of the programs of this gateway: itself, its supervisors, and every process of its sandboxes with their monitors."""
        found, ours, folder = {}, os.readlink("/proc/self/ns/pid"), "/".join(self.gateway.root.parts[-2:])
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                name, status = (entry / "comm").read_text().strip(), (entry / "status").read_text()
                inside = os.readlink(entry / "ns/pid") != ours and folder in (entry / "mountinfo").read_text()
                if inside or int(entry.name) == self.gateway.process.pid or str(self.gateway.root).encode() in (entry / "cmdline").read_bytes():
                    found[int(entry.name)] = name
                parent = int(re.search(r"^PPid:\s+(\d+)", status, re.M).group(1))
                if inside and parent > 1:
                    found.setdefault(parent, (pathlib.Path("/proc") / str(parent) / "comm").read_text().strip())
            except OSError:
                continue  # ended meanwhile
        return found


def memory(pid):
    """Every readable page of a process, in pieces that overlap by more than a needle."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            place, rights = line.split()[:2]
            if not rights.startswith("r") or "[v" in line:
                continue
            begin, end = (int(part, 16) for part in place.split("-"))
            tail = b""
            while begin < end:
                try:
                    mem.seek(begin)
                    piece = mem.read(min(1 << 22, end - begin))
                except (OSError, ValueError, OverflowError):
                    break
                if not piece:
                    break
                yield tail + piece
                tail, begin = piece[-512:], begin + len(piece)


def in_memory(pid, needles):
    return any(needle in piece for piece in memory(pid) for needle in needles)


@pytest.fixture(scope="module")
def run(scratch):
    if os.geteuid() != 0:
        pytest.skip("needs root, to read the memory of other users' processes")
    folder = scratch / "canary"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder)
    gateway.file.write_text(gateway.file.read_text().replace("[openshell.gateway]", '[openshell.gateway]\nlog_level = "trace"'))
    upstream, made = Upstream(), Run(gateway)
    made.upstream = upstream
    try:
        yield from whole_life(gateway, made, upstream, folder)
    finally:
        gateway.end()
        upstream.server.shutdown()


def whole_life(gateway, made, upstream, folder):
    gateway.start()
    made.cli("gateway", "add", gateway.endpoint, "--local", "--name", "canary")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY.format(port=upstream.port))
    gateway.environment["API_TOKEN"] = CANARY
    made.cli("provider", "create", "--name", "service", "--type", "generic", "--credential", "API_TOKEN")
    del gateway.environment["API_TOKEN"]
    with gateway.client() as client:
        live_a_life(made, client, policy, upstream)
        yield made
    with gateway.client() as client:
        delete_gone(client, "bird")


def watch(client, made):
    request = openshell_pb2.WatchSandboxRequest(sandbox="bird", follow_status=True, follow_logs=True, follow_events=True, log_tail_lines=100)
    request.workspace_scope.workspace = WORKSPACE
    call = client._stub.WatchSandbox(request, timeout=300)

    def read():
        try:
            for event in call:
                made.keep("watch", event.SerializeToString())
        except Exception as error:  # noqa: BLE001 - the end of the stream is as good as any
            made.keep("end of watch", repr(error))

    threading.Thread(target=read, daemon=True).start()
    return call


def live_a_life(made, client, policy, upstream):
    """Everything a user does: allowed and refused requests, errors, wrong input, a changed policy, restarts, dumps."""
    made.cli("sandbox", "create", "--name", "bird", "--policy", str(policy), "--provider", "service", "--detach")
    client.wait_ready("bird", workspace=WORKSPACE, timeout_seconds=60)
    made.stream = watch(client, made)

    def inside(script, **options):
        result = client.exec("bird", ["sh", "-c", script], workspace=WORKSPACE, timeout_seconds=60, **options)
        made.keep(f"exec {script}", f"{result.exit_code} {result.stdout}{result.stderr}")
        return result

    base = f"http://host.openshell.internal:{upstream.port}"
    inside(f'curl -sS -v -H "Authorization: Bearer $API_TOKEN" {base}/hello')
    wait_until(lambda: ("/hello", f"Bearer {CANARY}") in upstream.seen, what="the credential at its upstream")
    for script in (f'curl -sS -H "Authorization: Bearer $API_TOKEN" {base}/broken', f'curl -sS -X POST -d "$API_TOKEN" {base}/post',
                   f'curl -sS "{base}/hello?key=$API_TOKEN"', f'curl -sS -H "X-Key: $API_TOKEN" {base}/hello',
                   f'curl -sS -u "user:$API_TOKEN" {base}/basic', f'curl -sS -H "Authorization: Bearer openshell:resolve:env:v99_OTHER" {base}/hello',
                   'curl -sS --max-time 5 -H "Authorization: Bearer $API_TOKEN" http://elsewhere.example/', "env", "cat /proc/self/environ | tr '\\0' '\\n'",
                   "ls -laR /.openshell /run /sandbox /tmp 2>&1", "cat /proc/1/environ /proc/1/maps /proc/1/mem 2>&1 | strings | head -c 100000",
                   "ulimit -c unlimited 2>&1; cd /sandbox; sh -c 'kill -ABRT $$'; ls -la /sandbox"):
        inside(script)
    client.exec("bird", ["sh", "-c", "(while :; do sleep 1; done) >/dev/null 2>&1 &"], workspace=WORKSPACE)
    mistakes(made, client, policy)
    for words in (("provider", "list"), ("provider", "get", "service", "-o", "json"), ("sandbox", "get", "bird", "-o", "json"), ("sandbox", "list", "-o", "yaml"),
                  ("logs", "bird"), ("policy", "get", "bird", "--full"), ("sandbox", "provider", "list", "bird"), ("status", "-o", "json"), ("settings", "get", "bird")):
        made.cli(*words, check=False)
    client.stop("bird", workspace=WORKSPACE)
    client.wait_stopped("bird", workspace=WORKSPACE, timeout_seconds=60)
    client.start("bird", workspace=WORKSPACE)
    client.wait_ready("bird", workspace=WORKSPACE, timeout_seconds=60)
    watch(client, made)
    inside(f'curl -sS -H "Authorization: Bearer $API_TOKEN" {base}/again')
    wait_until(lambda: ("/again", f"Bearer {CANARY}") in upstream.seen, what="the credential after a restart")
    client.exec("bird", ["sh", "-c", "(while :; do sleep 1; done) >/dev/null 2>&1 &"], workspace=WORKSPACE)
    wait_until(lambda: "/again" in made.gateway.cli("logs", "bird", check=False).stdout, what="the last request's line at the gateway")


def mistakes(made, client, policy):
    """Wrong requests that carry a secret: the error must not quote it."""
    made.gateway.environment["SECOND"] = SECOND
    for words in (("provider", "create", "--name", "service", "--type", "generic", "--credential", f"API_TOKEN={SECOND}"),
                  ("provider", "create", "--name", "n" * 300, "--type", "generic", "--credential", f"API_TOKEN={SECOND}"),
                  ("provider", "create", "--name", "bad-key", "--type", "generic", "--credential", f"1bad={SECOND}"),
                  ("provider", "create", "--name", "bad-type", "--type", "no-such-type", "--credential", f"API_TOKEN={SECOND}"),
                  ("provider", "create", "--name", "nowhere", "--type", "generic", "--credential", "SECOND", "--workspace", "nowhere")):
        result = made.gateway.cli(*words, check=False)
        made.keep("mistake", result.stdout + result.stderr)
        assert result.returncode != 0
    del made.gateway.environment["SECOND"]
    request = openshell_pb2.CreateProviderRequest()
    request.workspace_scope.workspace = WORKSPACE
    request.provider.metadata.name = "long"
    request.provider.type = "generic"
    request.provider.credentials["API_TOKEN"] = SECOND + "x" * 9000
    with pytest.raises(openshell.GatewayError) as refused:
        client._stub.CreateProvider(request)
    made.keep("error", str(refused.value) + repr(refused.value.trailing_metadata()) + str(refused.value.raw_status))


def test_the_canary_was_really_used(run):
    """HX-49, HX-51, CR-05: the agent holds a placeholder, curl with it works unchanged, the upstream gets the real value."""
    used = [path for path, authorization in run.upstream.seen if CANARY in authorization]
    assert "/hello" in used and "/again" in used
    assert any(source.endswith(": watch") for source in run.texts), "the watch stream gave events"
    assert any(PLACEHOLDER in text for text in run.texts.values()), "the agent saw a placeholder"


def test_not_in_what_clients_see(run):
    """CR-74: output of commands, answers, errors with their details, watch streams."""
    found = {source: hits(text) for source, text in run.texts.items() if hits(text)}
    assert not found, found


def test_not_in_any_file_that_the_run_left(run):
    """CR-76, CR-77 at level trace, CR-01: logs, state, sockets' folders, the sandbox's own tree, journals, core files. The credential's row is sealed, so the rule has no exception."""
    found, looked, cores = [], 0, []
    for folder in (run.gateway.root, pathlib.Path("/tmp"), pathlib.Path("/var/crash"), pathlib.Path("/var/lib/systemd/coredump")):
        for path in folder.rglob("*") if folder == run.gateway.root else folder.glob("core*"):
            try:
                if not path.is_file() or path.is_symlink():
                    continue
                data = path.read_bytes()
            except OSError:
                continue
            looked += 1
            if hits(data):
                found.append(str(path))
            if data[:4] == b"\x7fELF" and len(data) > 18 and data[16:18] == b"\x04\x00":
                cores.append(str(path))
    assert looked > 10 and not found, found
    assert not [core for core in cores if core.startswith(str(run.gateway.root))], cores


def test_not_in_the_database_but_sealed(run):
    copy = run.gateway.root / "copy.db"
    source = sqlite3.connect(f"file:{run.gateway.state}/gateway/openshell.db?mode=ro", uri=True)
    with sqlite3.connect(copy) as target:
        source.backup(target)
    kinds = set()
    for table, in target.execute("select name from sqlite_master where type='table'").fetchall():
        for row in target.execute(f'select * from "{table}"'):
            data = b"\0".join(each if isinstance(each, bytes) else str(each).encode() for each in row)
            kinds |= {each for each in row if isinstance(each, str) and each.startswith("credential.")}
            assert not hits(data), f"{table}: {[each if not isinstance(each, bytes) else '...' for each in row]}"
    assert kinds == {"credential.gateway-encrypted"}, "the value is there, in its own row"
    target.close()
    copy.unlink()


def test_not_in_environment_arguments_or_memory_of_runtime_and_workload(run):
    """HX-50: RT-02, CR-07."""
    processes = run.processes()
    names = set(processes.values())
    assert any(name.startswith("openshell-super") for name in names) and RUNTIME & names, names
    checked = []
    for pid, name in processes.items():
        try:
            surface = pathlib.Path(f"/proc/{pid}/environ").read_bytes() + pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue  # a helper that ended meanwhile
        assert not hits(surface), f"{name} ({pid}) has it in its environment or arguments"
        if pid == run.gateway.process.pid or name.startswith("openshell-super"):
            continue
        assert not in_memory(pid, NEEDLES), f"{name} ({pid}) has it in memory"
        checked.append(name)
    assert "sh" in checked or "sleep" in checked, checked
    assert RUNTIME & set(checked) and any(name.startswith("openshell-mon") for name in checked), checked


def test_the_search_of_memory_would_have_found_it(run):
    """The supervisor has to have it; a search that does not find it there proves nothing."""
    supervisors = [pid for pid, name in run.processes().items() if name.startswith("openshell-super")]
    assert any(in_memory(pid, {CANARY.encode()}) for pid in supervisors)


def test_who_holds_it_leaves_no_core_file(run):
    """A core of gateway or supervisor would hold it. Their limit is one byte, which stops cores to files and to collecting programs alike."""
    holders = [pid for pid, name in run.processes().items() if name.startswith("openshell-super")] + [run.gateway.process.pid]
    for pid in holders:
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"^Max core file size\s+[01]\s+[01]\s", limits, re.M), limits
    victim = holders[0]
    where = pathlib.Path(os.readlink(f"/proc/{victim}/cwd"))
    before = set(where.glob("core*"))
    os.kill(victim, signal.SIGABRT)

    def ended():
        try:
            return not pathlib.Path(f"/proc/{victim}/maps").read_text()  # empty: a zombie
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_until(ended, what="its end")
    assert set(where.glob("core*")) == before


def test_after_deletion_nothing_of_it_is_left_either(run):
    with run.gateway.client() as client:
        delete_gone(client, "bird")
        run.cli("provider", "delete", "service")
        create_ready(client, "after")
        delete_gone(client, "after")
    run.gateway.end()
    for path in (run.gateway.state / "gateway").rglob("*"):
        if path.is_file():
            assert not hits(path.read_bytes()), path
    run.gateway.start()
    assert "service" not in run.cli("provider", "list").stdout
