"""Faults that users of systems of this kind have reported, end to end: B02, B10, B29 and B31 (with the gateway down)."""

import http.server
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

import grpc
import openshell
import pytest
from conftest import WORKSPACE, Gateway, create_ready, delete_gone, wait_until
from openshell._proto import openshell_pb2
from program_servers import ADDRESS, Names, Neighbour, make_certificate
from test_limits import runtime_of


class Recorder(http.server.BaseHTTPRequestHandler):
    """Answers everything with 200 and remembers what arrived: method, target as it was sent, Host, Authorization."""

    protocol_version = "HTTP/1.1"
    seen = []

    def answer(self):
        Recorder.seen.append((self.command, self.requestline.split(" ")[1], self.headers.get("host", ""), self.headers.get("authorization")))
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    do_GET = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # a connection that was opened and reset


def serve(address, certificate=None):
    server = Quiet((address, 0), Recorder)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


# ---- B02: a broad rule and a provider's rule


BROAD = """
version: 1
network_policies:
  internet:
    endpoints:
      - {{host: "{host}", port: {port}, tls: skip, allowed_ips: ["{address}/32"]{more}}}
    binaries: [{{path: "/**"}}]
"""
MINIMAL = "version: 1\nnetwork_policies:\n  none:\n    endpoints: [{host: nobody.test, port: 9}]\n    binaries: [/usr/bin/true]\n"
PROFILE = """
id: pay
display_name: Payments
credentials:
  - {{name: token, env_vars: [PAY_TOKEN], required: true, auth_style: bearer, header_name: authorization}}
endpoints:
  - {{host: api.pay.test, port: {port}, protocol: rest, access: read-only, enforcement: enforce}}
binaries: ["**/curl"]
"""


class Payments:
    def __init__(self, gateway, port):
        self.gateway, self.port = gateway, port
        self.broad = gateway.root / "broad.yaml"
        self.broad.write_text(BROAD.format(host="**.pay.test", port=port, address=ADDRESS, more=""))
        self.helped = gateway.root / "helped.yaml"
        self.helped.write_text(BROAD.format(host="**.pay.test", port=port, address=ADDRESS, more=", allow_uninspected_credentials: true"))
        self.same = gateway.root / "same.yaml"
        self.same.write_text(BROAD.format(host="api.pay.test", port=port, address=ADDRESS, more=", allow_uninspected_credentials: true"))
        self.minimal = gateway.root / "minimal.yaml"
        self.minimal.write_text(MINIMAL)
        profile = gateway.root / "pay.yaml"
        profile.write_text(PROFILE.format(port=port))
        gateway.cli("profile", "import", "-f", str(profile))
        gateway.cli("provider", "create", "--name", "pay", "--type", "pay", "--credential", "PAY_TOKEN=real-payment-token")

    def create(self, name, policy):
        self.gateway.cli("sandbox", "create", "--name", name, "--policy", str(policy), "--detach")

    def attach(self, name, check=True):
        return self.gateway.cli("sandbox", "provider", "attach", name, "pay", "--wait", check=check)

    def set(self, name, policy, check=True):
        return self.gateway.cli("policy", "set", name, "--policy", str(policy), "--wait", "--timeout", "20", check=check)

    def curl(self, name, host, method="GET"):
        script = f'curl -ksS -m 10 -o /dev/null -w "%{{http_code}}" -X {method} -H "Authorization: Bearer $PAY_TOKEN" https://{host}:{self.port}/v1'
        return self.gateway.cli("sandbox", "exec", "-n", name, "--no-tty", "--", "sh", "-c", script, check=False).stdout


@pytest.fixture(scope="module")
def payments(scratch):
    if os.geteuid() != 0:
        pytest.skip("needs root, to add an address to the host")
    folder = scratch / "pay"
    folder.mkdir(mode=0o711)
    names = Names("pay.test")
    with Neighbour():
        ca, certificate, key = make_certificate(folder, ("api.pay.test", "shop.pay.test"))
        server = serve(ADDRESS, (certificate, key))
        gateway = Gateway(folder)
        gateway.file.write_text(gateway.file.read_text() + f'\n[openshell.supervisor.network]\nresolver = ["{names.address}"]\nadditional_ca_bundle = "{ca}"\n')
        gateway.start()
        gateway.cli("gateway", "add", gateway.endpoint, "--local", "--name", "pay")
        yield Payments(gateway, server.server_address[1])
        gateway.end()
        server.shutdown()
    names.end()


@pytest.mark.parametrize("order", ["policy first", "provider first"])
def test_B02_the_refusal_names_both_rules_and_the_change_and_the_change_helps(payments, order):
    """Who may go everywhere unseen could carry the provider's credential past it; that is refused in so many words. Once the broad rule says it
    is meant, both work: the more specific endpoint decides for its host (inspected, read-only, with the credential), the rest stays broad."""
    name = order.replace(" ", "-")[:15]
    if order == "policy first":
        payments.create(name, payments.broad)
        refused = payments.attach(name, check=False)
    else:
        payments.create(name, payments.minimal)
        payments.attach(name)
        refused = payments.set(name, payments.broad, check=False)
    try:
        assert refused.returncode == 1
        for word in ("**.pay.test", "'internet'", "api.pay.test", "'_provider_pay'", "allow_uninspected_credentials: true", "L7 inspection"):
            assert word in refused.stderr, refused.stderr
        if order == "policy first":
            assert payments.curl(name, "shop.pay.test", "PUT") == "200", "what ran goes on"
            payments.set(name, payments.helped)
            payments.attach(name)
        else:
            assert payments.curl(name, "api.pay.test") == "200", "what ran goes on"
            payments.set(name, payments.helped)
        wait_until(lambda: payments.curl(name, "api.pay.test") == "200", 20, "the provider's endpoint")
        assert Recorder.seen[-1][3] == "Bearer real-payment-token"
        assert payments.curl(name, "api.pay.test", "PUT") == "403", "read-only, as the provider's rule says"
        before = len(Recorder.seen)
        assert payments.curl(name, "shop.pay.test", "PUT") == "200", "the broad rule: nobody looks inside"
        method, _, host, authorization = Recorder.seen[-1]
        assert len(Recorder.seen) == before + 1 and method == "PUT" and host.startswith("shop.pay.test")
        assert "real-payment-token" not in authorization, "and nothing is put in"
    finally:
        payments.gateway.cli("sandbox", "delete", name)


def test_B02_what_no_order_can_decide_is_refused_with_both_rules_and_the_running_policy_stays(payments):
    payments.create("disagree", payments.minimal)
    payments.create("other-way", payments.same)
    try:
        payments.attach("disagree")
        wait_until(lambda: payments.curl("disagree", "api.pay.test") == "200", 20, "the provider's endpoint")
        refused = payments.set("disagree", payments.same, check=False)
        late = payments.attach("other-way", check=False)
        for each in (refused, late):
            assert each.returncode == 1
            for word in ("internet", "_provider_pay", "skip", "api.pay.test"):
                assert word in each.stderr, each.stderr
        assert payments.curl("disagree", "api.pay.test") == "200" and payments.curl("disagree", "api.pay.test", "PUT") == "403"
        assert payments.curl("other-way", "api.pay.test", "PUT") == "200", "its own rule goes on"
    finally:
        for name in ("disagree", "other-way"):
            payments.gateway.cli("sandbox", "delete", name, check=False)


# ---- B10: dot segments, by a program that sends them as they are


DOTS = [
    ("/public/a", "200", "/public/a"), ("/public/../secret", "403", None), ("/public/%2e%2e/secret", "403", None), ("/public//../secret", "403", None),
    ("/public/%252e%252e/secret", "200", "/public/%252e%252e/secret"), ("/public/../../secret", "400", None), ("/../secret", "400", None),
    ("/public/x/../b", "200", "/public/b"), ("/public/./c", "200", "/public/c"), ("/public/..%2fsecret", "400", None),
]


def test_B10_a_path_is_judged_and_sent_in_one_form(gateway, client):
    server = serve("127.0.0.1")
    port = server.server_address[1]
    policy = gateway.root / "dots.yaml"
    policy.write_text(f"""
version: 1
network_policies:
  public:
    endpoints:
      - host: host.openshell.internal
        port: {port}
        protocol: rest
        enforcement: enforce
        rules: [{{allow: {{method: GET, path: "/public/**"}}}}]
    binaries: [/usr/bin/curl]
""")
    gateway.cli("sandbox", "create", "--name", "dots", "--policy", str(policy), "--detach")
    client.wait_ready("dots", workspace=WORKSPACE, timeout_seconds=30)
    try:
        for target, status, arrives in DOTS:
            for form in ("origin", "absolute"):
                before = len(Recorder.seen)
                url = f"http://host.openshell.internal:{port}"
                words = ["curl", "-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "--path-as-is", url + target]
                if form == "absolute":
                    words += ["--request-target", url + target]
                answer = client.exec("dots", words, workspace=WORKSPACE)
                assert answer.stdout == status, (target, form, answer)
                arrived = [seen[1] for seen in Recorder.seen[before:]]
                assert arrived == ([arrives] if arrives else []), (target, form)
    finally:
        delete_gone(client, "dots")
        server.shutdown()


# ---- B29: a main command that ends at once


@pytest.mark.parametrize("words,phase,code", [(["true"], "Completed", 0), (["sh", "-c", "exit 3"], "Error", 3), (["sleep", "infinity"], "Ready", None)])
def test_B29_exec_upload_policy_and_logs_work_whatever_became_of_the_main_process(gateway, client, tmp_path, words, phase, code):
    detach = ["--detach"] if code is None else ["--no-tty"]
    made = gateway.cli("sandbox", "create", "--name", "short", *detach, "--", *words, check=False)
    try:
        assert made.returncode == (code or 0), made.stderr
        if code is not None:
            assert "short is kept" in made.stderr and "openshell sandbox create --detach -- sleep infinity" in made.stderr
        found = json.loads(gateway.cli("sandbox", "get", "short", "-o", "json").stdout)
        assert found["phase"] == phase and found.get("exit_code") == code
        assert gateway.cli("sandbox", "exec", "short", "--", "echo", "still here").stdout == "still here\n"
        file = tmp_path / "note.txt"
        file.write_text("uploaded\n")
        gateway.cli("sandbox", "upload", "short", str(file), "/sandbox/note.txt")
        assert gateway.cli("sandbox", "exec", "short", "--", "cat", "/sandbox/note.txt").stdout == "uploaded\n"
        gateway.cli("sandbox", "download", "short", "/sandbox/note.txt", str(tmp_path / "back.txt"))
        assert (tmp_path / "back.txt").read_text() == "uploaded\n"
        policy = tmp_path / "policy.yaml"
        base = gateway.cli("sandbox", "get", "short", "--policy-only").stdout.replace("network_policies: {}\n", "")
        policy.write_text(base + "network_policies:\n  other:\n    endpoints: [{host: other.test, port: 443}]\n    binaries: [/usr/bin/curl]\n")
        changed = gateway.cli("policy", "set", "short", "--policy", str(policy), "--wait", "--timeout", "20", check=False)
        assert changed.returncode == 0 and "loaded" in changed.stderr, changed.stderr
        assert gateway.cli("logs", "short").returncode == 0
    finally:
        delete_gone(client, "short")


# ---- B31: what was removed while nobody looked


@pytest.fixture
def alone(scratch):
    folder = scratch / f"b{len(list(scratch.iterdir()))}"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder, driver_options="keep_on_shutdown = true")
    gateway.start()
    gateway.cli("gateway", "add", gateway.endpoint, "--local", "--name", folder.name)
    yield gateway
    if gateway.process.poll() is None:
        gateway.end()


def kill_everything_of(sandbox_id):
    """All processes of a sandbox, as a power cut or an engine's own clean-up would."""
    for word in (b"openshell-supervisor", b"openshell-sandbox", b"openshell-process-monitor", b""):
        for pid in runtime_of(sandbox_id, word):
            if pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


def answers_soon(client, name):
    """exec answers within seconds: with its output, or with an error; it never hangs."""
    begin = time.monotonic()
    try:
        return client.exec(name, ["echo", "alive"], workspace=WORKSPACE, timeout_seconds=20).stdout == "alive\n"
    except (grpc.RpcError, openshell.SandboxError):
        return False
    finally:
        assert time.monotonic() - begin < 25


def test_B31_a_sandbox_killed_while_the_gateway_was_down_is_noticed_and_put_back(alone):
    """What was to run is started again by the gateway; in between nothing hangs and nothing is called Ready that is not there."""
    with alone.client() as client:
        made = create_ready(client, "phantom", spec=openshell_pb2.SandboxSpec(command=["sleep", "4730"]))
        client.exec("phantom", ["sh", "-c", "echo kept > /sandbox/note"], workspace=WORKSPACE)
    alone.end(signal.SIGKILL)
    kill_everything_of(made.id)
    alone.start()
    with alone.client() as client:
        # The driver is asked once the gateway serves: what was stored may be shown until it has answered, and no longer.
        ready = lambda: client.get("phantom", workspace=WORKSPACE).status.phase == openshell_pb2.SANDBOX_PHASE_READY
        wait_until(lambda: not ready() or answers_soon(client, "phantom"), 5, "that it is noticed")
        answers_soon(client, "phantom")
        wait_until(lambda: answers_soon(client, "phantom"), 60, "the recovery")
        assert client.exec("phantom", ["cat", "/sandbox/note"], workspace=WORKSPACE).stdout == "kept\n", "the workspace is never removed"
        assert client.get("phantom", workspace=WORKSPACE).id == made.id
        client.stop("phantom", workspace=WORKSPACE)
        client.wait_stopped("phantom", workspace=WORKSPACE, timeout_seconds=30)
        delete_gone(client, "phantom")
        create_ready(client, "phantom")  # the name is free
        delete_gone(client, "phantom")


def test_B31_a_killed_sandbox_can_be_deleted_at_once_after_the_gateway_is_back(alone):
    with alone.client() as client:
        made = create_ready(client, "gone")
    alone.end(signal.SIGKILL)
    kill_everything_of(made.id)
    alone.start()
    with alone.client() as client:
        begin = time.monotonic()
        delete_gone(client, "gone")
        assert time.monotonic() - begin < 20
        assert "gone" not in alone.cli("sandbox", "list", "--names").stdout.split()
        create_ready(client, "gone")
        delete_gone(client, "gone")


# ---- a restart of the host


def test_a_restart_of_the_host_puts_back_what_was_to_run_and_nothing_else(alone):
    """FB-37: every process is gone, the runtime directory too (it lies in memory); only the state directory is left."""
    with alone.client() as client:
        running = create_ready(client, "running", spec=openshell_pb2.SandboxSpec(command=["sh", "-c", "date +%s%N >> /sandbox/starts; sleep 4731"]))
        halted = create_ready(client, "halted")
        client.stop("halted", workspace=WORKSPACE)
        client.wait_stopped("halted", workspace=WORKSPACE, timeout_seconds=30)
        done = client.create(workspace=WORKSPACE, name="done", spec=openshell_pb2.SandboxSpec(command=["true"]))
        wait_until(lambda: client.get("done", workspace=WORKSPACE).status.phase == openshell_pb2.SANDBOX_PHASE_COMPLETED, 30, "the end of a run")
    alone.end(signal.SIGKILL)
    for each in (running, halted, done):
        kill_everything_of(each.id)
    wait_until(lambda: not any(runtime_of(each.id, b"") for each in (running, halted, done)), 10, "the end of all processes")
    for left in subprocess.run(["findmnt", "-rn", "-o", "TARGET"], capture_output=True, text=True).stdout.split():
        if left.startswith(str(alone.root)):
            subprocess.run(["umount", "-l", left], check=False)
    subprocess.run(["rm", "-rf", *map(str, alone.run.iterdir())], check=True)
    alone.start()
    with alone.client() as client:
        after = client.wait_ready("running", workspace=WORKSPACE, timeout_seconds=60)
        assert after.id == running.id
        assert client.exec("running", ["sh", "-c", "wc -l < /sandbox/starts"], workspace=WORKSPACE).stdout == "2\n", "its own command, once more"
        assert client.get("halted", workspace=WORKSPACE).status.phase == openshell_pb2.SANDBOX_PHASE_STOPPED
        assert client.get("done", workspace=WORKSPACE).status.phase == openshell_pb2.SANDBOX_PHASE_COMPLETED
        client.start("halted", workspace=WORKSPACE)
        client.wait_ready("halted", workspace=WORKSPACE, timeout_seconds=30)
        for name in ("running", "halted", "done"):
            delete_gone(client, name)
