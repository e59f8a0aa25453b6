"""What a program, a person and a log learn from a refusal."""

import json
import pathlib
import re
import uuid

import pytest
from conftest import WORKSPACE, delete_gone, wait_until
from test_reported_faults import Recorder, serve

POLICY = """
version: 1
network_policies:
  api:
    endpoints:
      - host: host.openshell.internal
        port: {port}
        protocol: rest
        enforcement: enforce
        rules: [{{allow: {{method: GET, path: /v1/items}}}}]
    binaries: [/usr/bin/curl]
"""


@pytest.fixture
def server():
    made = serve("127.0.0.1")
    yield made.server_address[1]
    made.shutdown()


@pytest.fixture
def box(gateway, client, server):
    policy = pathlib.Path(gateway.root) / "denials.yaml"
    policy.write_text(POLICY.format(port=server))
    gateway.cli("sandbox", "create", "--name", "denials", "--policy", str(policy), "--detach")
    client.wait_ready("denials", workspace=WORKSPACE, timeout_seconds=30)
    yield "denials"
    delete_gone(client, "denials")


def curl(client, port, method, path):
    words = ["curl", "-sS", "-m", "10", "-w", "\n%{http_code}", "-X", method, f"http://host.openshell.internal:{port}{path}"]
    body, status = client.exec("denials", words, workspace=WORKSPACE).stdout.rsplit("\n", 1)
    return int(status), body


def test_a_refusal_says_enough_to_write_the_narrowest_rule(gateway, client, box, server):
    """PP-11, PP-12: the 403 is structured; a rule of its fields admits exactly what was refused."""
    status, body = curl(client, server, "PUT", "/v1/items/7?secret=value")
    told = json.loads(body)
    assert status == 403 and told["error"] == "policy_denied" and told["layer"] == "l7"
    assert (told["method"], told["path"], told["host"], told["port"]) == ("PUT", "/v1/items/7", "host.openshell.internal", server)
    assert told["binary"] == "/usr/bin/curl" and uuid.UUID(told["denial_id"]).version == 4
    assert "secret=value" not in gateway.cli("logs", box).stdout
    wait_until(lambda: told["denial_id"] in gateway.cli("logs", box).stdout, what="the id in the log")
    before = len(Recorder.seen)
    gateway.cli("policy", "update", box, "--rule-name", told["policy"], "--binary", told["binary"], "--add-allow",
                f"{told['host']}:{told['port']}:{told['method']}:{told['path']}", "--wait", "--timeout", "20")
    wait_until(lambda: curl(client, server, "PUT", "/v1/items/7")[0] == 200, what="the new rule")
    assert curl(client, server, "PUT", "/v1/items/8")[0] == 403 and curl(client, server, "DELETE", "/v1/items/7")[0] == 403
    assert [seen[:2] for seen in Recorder.seen[before:]] == [("PUT", "/v1/items/7")]


def test_a_refused_connection_tells_host_and_port_and_an_id(gateway, client, box, server):
    """PP-10: nothing of a request, though one was on its way."""
    client.exec(box, ["curl", "-sS", "-m", "5", "http://host.openshell.internal:9/private/path?secret=value"], workspace=WORKSPACE)

    def line():
        return next((one for one in gateway.cli("logs", box).stdout.splitlines() if "DENIED" in one and "host.openshell.internal:9" in one), None)

    found = wait_until(line, what="the line of the refusal")
    assert "NET:OPEN" in found and "/private/path" not in found and "secret" not in found
    assert re.search(r"denial_id[:=][0-9a-f-]{36}", found), found
