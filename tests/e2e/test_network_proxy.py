"""The policy proxy by itself: openshell-supervisor --role=network-proxy, curl as its client, real servers on an address of this host."""

import http.server
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import threading

import pytest

from conftest import BIN, wait_until

SUPERVISOR = BIN / "openshell-supervisor"


def own_address():
    """An address of this host that is not loopback, which no policy opens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return None


ADDRESS = own_address()
pytestmark = pytest.mark.skipif(ADDRESS is None or ADDRESS.startswith("127."), reason="this host has no address but loopback")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{self.command} {self.path} {self.headers.get('Authorization', '-')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / "key.pem", "-out", folder / "cert.pem",
                    "-days", "2", "-subj", "/CN=outside", "-addext", f"subjectAltName=IP:{ADDRESS}"], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def servers(certificate):
    plain = http.server.ThreadingHTTPServer((ADDRESS, 0), Handler)
    secure = http.server.ThreadingHTTPServer((ADDRESS, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    for server in (plain, secure):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield plain.server_address[1], secure.server_address[1]
    for server in (plain, secure):
        server.shutdown()


class Proxy:
    def __init__(self, *arguments, environment=None):
        self.process = subprocess.Popen([SUPERVISOR, "--role=network-proxy", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        self.line = self.process.stdout.readline()
        self.address = self.line.split()[2].rstrip(";") if self.line else None
        self.bundle = self.line.split()[-1] if self.line else None

    def curl(self, *words):
        ran = subprocess.run(["curl", "-s", "-m", "10", "-x", f"http://{self.address}", "-w", "\n%{http_code} %{http_connect}", *words], capture_output=True, text=True)
        body, codes = ran.stdout.rsplit("\n", 1)
        return body, codes

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=10)
        return self.process.returncode, err


def policy(path, plain, secure, more=""):
    path.write_text(f"""version: 1
network_policies:
  api:
    endpoints:
      - host: "{ADDRESS}"
        ports: [{plain}, {secure}]
        protocol: rest
        enforcement: enforce
        rules: [{{allow: {{method: GET, path: "/ok"}}}}]
    binaries: [/usr/bin/nobody-has-this]
{more}""")
    return path


@pytest.fixture
def data(tmp_path, servers):
    return policy(tmp_path / "data.yaml", *servers)


@pytest.fixture
def proxy(data, certificate):
    started = Proxy("--listen=127.0.0.1:0", f"--policy-data={data}", f"--additional-ca-bundle={certificate / 'cert.pem'}")
    yield started
    if started.process.poll() is None:
        started.end()


def test_requests_and_tunnels_are_judged_without_a_sandbox(proxy, servers):
    """NP-01, NP-02, NP-03, NP-04, NP-05, NP-08, NP-10, NP-11: the binaries of a rule count for nothing here, its endpoints and requests do."""
    plain, secure = servers
    assert proxy.curl(f"http://{ADDRESS}:{plain}/ok") == ("GET /ok -", "200 000")
    assert proxy.curl(f"http://{ADDRESS}:{plain}/other")[1] == "403 000"
    assert proxy.curl("-X", "POST", f"http://{ADDRESS}:{plain}/ok")[1] == "403 000"
    assert proxy.curl("-p", f"http://{ADDRESS}:{plain}/ok") == ("GET /ok -", "200 200")
    assert proxy.curl("--cacert", proxy.bundle, f"https://{ADDRESS}:{secure}/ok") == ("GET /ok -", "200 200")
    body, codes = proxy.curl("--cacert", proxy.bundle, f"https://{ADDRESS}:{secure}/push")
    assert codes == "403 200" and '"error":"policy_denied"' in body
    assert proxy.curl("https://other.test/")[1] == "000 403"


def test_rules_of_ones_own_decide(data, servers, tmp_path):
    """NP-07: the built-in rules as a file give the same verdicts; others give theirs; a file with a fault does not start."""
    url = f"http://{ADDRESS}:{servers[0]}"
    rules = pathlib.Path(__file__).parents[2] / "policy" / "rego" / "sandbox-policy.rego"
    words = ["--listen=127.0.0.1:0", f"--policy-data={data}"]
    same = Proxy(*words, f"--policy-rules={rules}")
    assert same.curl(f"{url}/ok")[1] == "200 000" and same.curl(f"{url}/other")[1] == "403 000" and same.curl("http://other.test/")[1] == "403 000"
    own = tmp_path / "own.rego"
    own.write_text(rules.read_text().replace("default allow_request := false", 'default allow_request := false\n\nallow_request if input.request.path == "/special"'))
    other = Proxy(*words, f"--policy-rules={own}")
    assert other.curl(f"{url}/special") == ("GET /special -", "200 000") and other.curl(f"{url}/other")[1] == "403 000"
    for proxy in (same, other):
        assert proxy.end()[0] == 0
    own.write_text("package openshell.sandbox\n\nallow_request := http.send({})\negress_authorization := {}\n")
    ran = subprocess.run([SUPERVISOR, "--role=network-proxy", *words, f"--policy-rules={own}"], capture_output=True, text=True, timeout=20)
    assert ran.returncode == 1 and f"{own}:3" in ran.stderr, ran.stderr


def test_destinations_are_checked_as_in_a_sandbox(tmp_path, servers):
    """NP-09: no rule opens loopback or a metadata service."""
    data = policy(tmp_path / "data.yaml", *servers, more=f"""  wide:
    endpoints: [{{host: 127.0.0.1, port: {servers[0]}}}, {{host: 169.254.169.254, port: 80}}]
    binaries: [/usr/bin/curl]
""")
    started = Proxy("--listen=127.0.0.1:0", f"--policy-data={data}")
    assert "127.0.0.1" in started.line
    for where in (f"127.0.0.1:{servers[0]}", "169.254.169.254"):
        body, codes = started.curl(f"http://{where}/")
        assert codes == "403 000" and ("ssrf_denied" in body or "policy_denied" in body), body
    assert started.end()[0] == 0


def test_no_credential_is_put_in(proxy, servers):
    """NP-15: a placeholder is refused, and nothing goes out with it."""
    body, codes = proxy.curl("-H", "Authorization: Bearer openshell:resolve:env:v1_API_TOKEN", f"http://{ADDRESS}:{servers[0]}/ok")
    assert codes.startswith(("500", "403", "502")) and "GET /ok" not in body, (body, codes)


def test_a_new_policy_is_read_on_sighup_and_a_faulty_one_is_not_taken(proxy, data, servers):
    """NP-08."""
    plain, secure = servers
    url = f"http://{ADDRESS}:{plain}"
    data.write_text(data.read_text().replace('"/ok"', '"/new"'))
    proxy.process.send_signal(signal.SIGHUP)
    wait_until(lambda: proxy.curl(f"{url}/new")[1] == "200 000", what="the new policy")
    assert proxy.curl(f"{url}/ok")[1] == "403 000"
    data.write_text(data.read_text() + "netwrok_policies: {}\n")
    proxy.process.send_signal(signal.SIGHUP)
    assert proxy.curl(f"{url}/new")[1] == "200 000"
    code, err = proxy.end()
    assert code == 0 and "netwrok_policies" in err and "generation 2 stays" in err


def test_only_public_certificates_are_written(proxy, tmp_path, data):
    """NP-17, NP-18, NP-19, NP-20; and the directory that nobody named goes with the process."""
    folder = pathlib.Path(proxy.bundle).parent
    assert str(proxy.process.pid) in folder.name
    assert {one.name for one in folder.iterdir()} == {"openshell-ca.pem", "ca-bundle.pem"}
    for one in folder.iterdir():
        assert "PRIVATE KEY" not in one.read_text() and one.stat().st_mode & 0o777 == 0o644
    assert (folder / "openshell-ca.pem").read_text() in (folder / "ca-bundle.pem").read_text()
    second = Proxy("--listen=127.0.0.1:0", f"--policy-data={data}")
    assert pathlib.Path(second.bundle).parent != folder
    assert second.end(signal.SIGINT)[0] == 0
    assert not pathlib.Path(second.bundle).parent.exists()
    named = Proxy("--listen=127.0.0.1:0", f"--policy-data={data}", f"--tls-dir={tmp_path / 'tls'}")
    assert named.end()[0] == 0
    assert (tmp_path / "tls" / "ca-bundle.pem").exists()


def test_it_has_no_child_and_no_gateway(proxy):
    """NP-12, NP-13, NP-14, NP-16: no child process, and no socket but its listener."""
    pid = proxy.process.pid
    assert pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
    held = subprocess.run(["ss", "-Htunxlap"], capture_output=True, text=True).stdout
    assert len([line for line in held.splitlines() if f"pid={pid}," in line and "127.0.0.1:" in line]) == 1
    assert not [line for line in held.splitlines() if f"pid={pid}," in line and "127.0.0.1:" not in line]


@pytest.mark.parametrize("words,why", [
    (["--listen=0.0.0.0:3128"], "loopback-only"),
    ([f"--listen={ADDRESS}:3128"], "loopback-only"),
    (["--listen=localhost:3128"], "is not ADDRESS:PORT"),
    (["--sandbox-id=x"], "does not use sandbox identity"),
    (["--ssh-socket-path=/tmp/x"], "does not use sandbox identity"),
    (["--workdir=/"], "does not launch or manage a workload"),
    (["--", "true"], "does not launch or manage a workload"),
    (["--policy-data=/nowhere.yaml"], "cannot be read"),
    (["--nonsense=1"], "is not a flag"),
])
def test_what_it_refuses(data, words, why):
    """NP-06, NP-16."""
    ran = subprocess.run([SUPERVISOR, "--role=network-proxy", f"--policy-data={data}", *words], capture_output=True, text=True, timeout=20)
    assert ran.returncode == 1 and why in ran.stderr, ran.stderr


def test_a_policy_with_a_fault_does_not_start(data):
    data.write_text(data.read_text().replace("protocol: rest", "protocol: rset"))
    ran = subprocess.run([SUPERVISOR, "--role=network-proxy", f"--policy-data={data}"], capture_output=True, text=True, timeout=20)
    assert ran.returncode == 1 and f"{data}:" in ran.stderr and "rset" in ran.stderr
