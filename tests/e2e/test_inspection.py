"""GraphQL, JSON-RPC and MCP as a workload meets them: curl in a sandbox, a server on the host that counts what reaches it."""

import http.server
import json
import threading

import pytest
from conftest import WORKSPACE, delete_gone

VERSION = "MCP-Protocol-Version: 2025-11-25"


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bodies = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        Upstream.bodies.append(body)
        answer = json.dumps({"got": body}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def world(gateway, client):
    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream) for _ in range(3)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    graphql, rpc, mcp = (server.server_address[1] for server in servers)
    policy = gateway.root / "inspection-policy.yaml"
    policy.write_text(f"""
version: 1
network_policies:
  graph:
    endpoints:
      - host: host.openshell.internal
        port: {graphql}
        protocol: graphql
        path: /graphql
        enforcement: enforce
        rules:
          - allow: {{operation_type: query}}
          - allow: {{operation_type: mutation, fields: [like]}}
    binaries: [{{path: "**/curl"}}]
  rpc:
    endpoints:
      - {{host: host.openshell.internal, port: {rpc}, protocol: json-rpc, enforcement: enforce, rules: [{{allow: {{method: reports.list}}}}]}}
    binaries: [{{path: "**/curl"}}]
  tools:
    endpoints:
      - host: host.openshell.internal
        port: {mcp}
        protocol: mcp
        enforcement: enforce
        rules:
          - allow: {{method: tools/list}}
          - allow: {{method: tools/call, tool: search}}
    binaries: [{{path: "**/curl"}}]
""")
    name = "inspection"
    gateway.cli("sandbox", "create", "--name", name, "--policy", str(policy), "--detach")
    client.wait_ready(name, workspace=WORKSPACE, timeout_seconds=30)

    def post(port, path, body, *headers):
        """Status and body of a POST that curl makes inside."""
        words = ["curl", "-sS", "-m", "20", "-w", "\n%{http_code}", "-H", "Content-Type: application/json"]
        for header in headers:
            words += ["-H", header]
        words += ["--data-binary", "@-", f"http://host.openshell.internal:{port}{path}"]
        text = json.dumps(body) if not isinstance(body, str) else body
        out = client.exec(name, words, workspace=WORKSPACE, stdin=text.encode()).stdout
        text, status = out.rsplit("\n", 1)
        return int(status), text

    yield {"graphql": graphql, "rpc": rpc, "mcp": mcp, "post": post}
    delete_gone(client, name)
    for server in servers:
        server.shutdown()


def rpc(method, params=None):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


def test_graphql_operations(world):  # L7-04
    post = lambda body: world["post"](world["graphql"], "/graphql", body)
    Upstream.bodies.clear()
    assert post({"query": "query { viewer }"})[0] == 200
    assert post({"query": "mutation { like }"})[0] == 200
    status, answer = post({"query": "mutation { like: deleteAll }"})
    assert status == 403 and "GraphQL operation" in json.loads(answer)["detail"]
    assert post([{"query": "{a}"}, {"query": "mutation{deleteAll}"}])[0] == 403
    assert post('{"query":"{a}","query":"mutation{deleteAll}"}')[0] == 403
    assert len(Upstream.bodies) == 2 and not any("deleteAll" in body for body in Upstream.bodies)


def test_json_rpc_methods(world):  # L7-08
    post = lambda body: world["post"](world["rpc"], "/rpc", body)
    assert post(rpc("reports.list"))[0] == 200
    assert post(rpc("reports.delete"))[0] == 403
    assert post([rpc("reports.list"), rpc("reports.delete")])[0] == 403
    status, answer = post({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert status == 403 and "response frames" in json.loads(answer)["detail"]


def test_mcp_tools_and_versions(world):  # L7-05, L7-06, L7-10
    post = lambda body, *headers: world["post"](world["mcp"], "/mcp", body, *headers)
    initialize = rpc("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    assert post(initialize)[0] == 403, "no rule names initialize"
    assert post(rpc("tools/list"), VERSION)[0] == 200
    assert post(rpc("tools/call", {"name": "search"}), VERSION)[0] == 200
    status, answer = post(rpc("tools/call", {"name": "delete"}), VERSION)
    assert status == 403 and "delete" not in answer
    for body, headers, expected, code in (
        (rpc("tools/list"), (), 403, "mcp_protocol_version_not_allowed"),
        (rpc("tools/list"), ("MCP-Protocol-Version: 2026-07-28",), 400, "unsupported_mcp_protocol_version"),
        ([rpc("tools/list")], (VERSION,), 400, "invalid_mcp_request"),
        (json.dumps(rpc("tools/list")) + " " * 65536, (VERSION,), 400, "invalid_mcp_request"),
    ):
        status, answer = post(body, *headers)
        assert (status, json.loads(answer)["error"]) == (expected, code)
