"""The API servers of examples/host-api and its two policies: the contract that an agent in a sandbox relies on (HX rows)."""

import json
import pathlib
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from conftest import REPOSITORY, WORKSPACE, delete_gone, free_port, wait_until

EXAMPLE = REPOSITORY / "examples/host-api"
TOKEN = "host-api-token-51c7"


class Server:
    def __init__(self, role, *extra):
        self.port = free_port()
        self.process = subprocess.Popen([sys.executable, EXAMPLE / "server.py", "--role", role, "--port", str(self.port), "--token", TOKEN, *extra],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.announced = self.process.stdout.readline()

    def request(self, path, method="GET", token=TOKEN, body=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, headers=headers, data=body)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            return refusal.code, json.load(refusal)

    def end(self):
        self.process.terminate()
        self.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def builder():
    server = Server("builder")
    yield server
    server.end()


@pytest.fixture(scope="module")
def provisioner():
    server = Server("provisioner")
    yield server
    server.end()


@pytest.mark.parametrize("missing", ["--port", "--token"])
def test_port_and_token_are_required(missing):
    """HX-27, HX-28."""
    words = ["--role", "builder", "--port", "1", "--token", "t"]
    place = words.index(missing)
    del words[place:place + 2]
    result = subprocess.run([sys.executable, EXAMPLE / "server.py", *words], capture_output=True, text=True, timeout=20)
    assert result.returncode == 2 and missing in result.stderr and "usage:" in result.stderr


def test_health_needs_no_token(builder):
    """HX-30, HX-31."""
    assert builder.request("/healthz", token=None) == (200, {"status": "ok"})


@pytest.mark.parametrize("path,method", [("/tools.json", "GET"), ("/openapi.json", "GET"), ("/build", "POST"), ("/images", "GET")])
@pytest.mark.parametrize("token", [None, "wrong", TOKEN + "x"])
def test_everything_else_needs_the_token(builder, path, method, token):
    """HX-37."""
    assert builder.request(path, method, token=token, body=b"{}" if method == "POST" else None)[0] == 401


def test_tools_describe_every_call(builder, provisioner):
    """HX-33, HX-34; HX-88: both descriptions come from one table, so they name the same calls."""
    for server in (builder, provisioner):
        status, tools = server.request("/tools.json")
        assert status == 200 and isinstance(tools, list) and tools
        for tool in tools:
            assert set(tool) == {"name", "description", "endpoint", "method", "input_schema"}
            assert tool["input_schema"]["type"] == "object"
        _, document = server.request("/openapi.json")
        assert {(path, method.upper()) for path, calls in document["paths"].items() for method in calls} == {(t["endpoint"], t["method"]) for t in tools}


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_request_in_flight_finish(ending):
    """HX-35, HX-36, HX-97."""
    server = Server("builder")
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")  # from here on the server has accepted it
        connection.sendall(f"POST /build HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{".encode())
        server.process.send_signal(ending)
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", server.port)) != 0, what="the listener's end")
        connection.sendall(b"}")
        assert b"HTTP/1.1 200" in connection.makefile("rb").read()
    server.process.communicate(timeout=10)
    assert server.process.returncode == 0


def test_it_listens_on_loopback_unless_told_otherwise(builder):
    """HX-100, HX-101."""
    assert "listens on 127.0.0.1 " in builder.announced
    listening = [line.split()[1] for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert f"0100007F:{builder.port:04X}" in listening and f"00000000:{builder.port:04X}" not in listening
    everywhere = Server("builder", "--bind-address", "0.0.0.0")
    try:
        assert everywhere.announced.startswith("builder listens on 0.0.0.0 ")
    finally:
        everywhere.end()


CALLS = [("builder", "POST", "/build"), ("builder", "POST", "/push"), ("builder", "GET", "/images"), ("builder", "GET", "/openapi.json"),
         ("builder", "GET", "/tools.json"), ("provisioner", "POST", "/repo/provision"), ("provisioner", "GET", "/repo/status/7"),
         ("provisioner", "GET", "/openapi.json"), ("provisioner", "GET", "/tools.json")]
NEEDED = {"/build", "/repo/provision", "/repo/status/7"}


@pytest.mark.parametrize("kind", ["full-access", "restricted"])
def test_the_example_policies_open_exactly_their_calls(gateway, client, builder, provisioner, tmp_path, kind):
    """HX-05, HX-06, HX-07, HX-08, HX-22, HX-23, HX-24, HX-62, HX-103: no address stands in the policies, and loopback servers are reached by the alias."""
    servers = {"builder": builder, "provisioner": provisioner}
    text = (EXAMPLE / f"{kind}.yaml").read_text()
    assert text.count("- host: ") == text.count("- host: host.openshell.internal\n") == 2 and "allowed_ips" not in text
    policy = tmp_path / "policy.yaml"
    policy.write_text(text.replace("9090", str(builder.port)).replace("9091", str(provisioner.port)))
    name = f"hx-{kind}"
    gateway.cli("provider", "create", "--name", name, "--type", "generic", "--credential", f"API_TOKEN={TOKEN}")
    try:
        gateway.cli("sandbox", "create", "--name", name, "--policy", str(policy), "--provider", name, "--detach")
        client.wait_ready(name, workspace=WORKSPACE, timeout_seconds=30)
        for role, method, path in [*CALLS, ("builder", "GET", "/other"), ("builder", "GET", "/build"), ("builder", "GET", "/healthz")]:
            url = f"http://host.openshell.internal:{servers[role].port}{path}"
            data = " -d '{}'" if method == "POST" else ""
            script = f'curl -sS -o /dev/null -w "%{{http_code}}" -X {method}{data} -H "Authorization: Bearer $API_TOKEN" {url}'
            result = client.exec(name, ["bash", "-c", script], workspace=WORKSPACE)
            opened = (role, method, path) in CALLS and (kind == "full-access" or path in NEEDED)
            assert result.stdout == ("200" if opened else "403"), f"{kind}: {method} {url}: {result}"
    finally:
        delete_gone(client, name)
        gateway.cli("provider", "delete", name)
