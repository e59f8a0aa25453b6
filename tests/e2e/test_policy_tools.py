"""Questions to the policy of a running sandbox, the record of what it decided, and the agent's own way to a rule: policy.local."""

import json
import pathlib
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from conftest import WORKSPACE, delete_gone, running_gateway, wait_until
from openshell._proto import openshell_pb2

HOST = "host.openshell.internal"


class Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_GET = do_POST = answer

    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def upstream():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


@pytest.fixture(scope="module")
def world(scratch, upstream):
    """A sandbox that may GET from one host, with proposals switched on."""
    with running_gateway(scratch, "t", "tools") as made:
        made.policy = made.root / "policy.yaml"
        made.policy.write_text(f"""\
version: 1
network_policies:
  api:
    endpoints: [{{host: {HOST}, port: {upstream}, protocol: rest, enforcement: enforce, access: read-only}}]
    binaries: ["**/curl"]
""")
        with made.client() as client:
            made.cli("sandbox", "create", "--name", "box", "--policy", str(made.policy), "--detach")
            client.wait_ready("box", workspace=WORKSPACE, timeout_seconds=30)
            made.cli("settings", "set", "box", "--key", "agent_policy_proposals_enabled", "--value", "true")
            yield made
            delete_gone(client, "box")


def inside(world, *words, check=True):
    return world.cli("sandbox", "exec", "-n", "box", "--no-tty", "--", *words, check=check)


def curl(world, *words, check=True):
    return inside(world, "curl", "-s", "--max-time", "20", *words, check=check)


def test_explain_and_test_ask_the_effective_policy_of_a_sandbox(world, upstream):
    words = ("--to", f"{HOST}:{upstream}", "--binary", "/usr/bin/curl", "--path", "/v1")
    assert world.cli("policy", "explain", "box", *words, "--method", "GET").stdout.startswith("allow")
    denied = world.cli("policy", "explain", "box", *words, "--method", "POST", check=False)
    assert denied.returncode == 1 and "near:    api: method" in denied.stdout
    tests = pathlib.Path(world.root) / "tests.yaml"
    tests.write_text(f"tests: [{{name: a, input: {{network: {{host: {HOST}, port: {upstream}}}, exec: {{path: /usr/bin/curl}}}}, expect: allow}}]\n")
    assert world.cli("policy", "test", "box", str(tests)).stdout == "ok    a\n1 passed, 0 failed\n"
    gone = world.cli("policy", "explain", "nobody", *words, "--method", "GET", check=False)
    assert gone.returncode == 2 and "sandbox not found" in gone.stderr


def test_what_is_read_can_be_written_again(world, upstream):
    shown = pathlib.Path(world.root) / "shown.yaml"
    shown.write_text(world.cli("sandbox", "get", "box", "--policy-only").stdout)
    assert world.cli("policy", "diff", str(shown), "@box").stdout.startswith("unchanged (hash ")
    before = json.loads(world.cli("policy", "get", "box", "-o", "json").stdout)["version"]
    world.cli("policy", "set", "box", "--policy", str(shown))
    assert json.loads(world.cli("policy", "get", "box", "-o", "json").stdout)["version"] == before, "the same policy is no new revision"
    world.cli("policy", "update", "box", "--add-endpoint", "extra.example.com:443:read-only:rest:enforce", "--binary", "/usr/bin/curl", "--wait", "--timeout", "20")
    changed = world.cli("policy", "diff", str(shown), "@box", check=False)
    assert changed.returncode == 1 and "+ network_policies.allow_extra_example_com_443" in changed.stdout
    assert world.cli("policy", "diff", f"@box:{before + 1}", "@box").returncode == 0
    listed = json.loads(world.cli("policy", "list", "box", "-o", "json").stdout)["revisions"]
    assert [r["version"] for r in listed][:2] == [before + 1, before]
    world.cli("policy", "update", "box", "--remove-rule", "allow_extra_example_com_443", "--wait", "--timeout", "20")
    assert world.cli("policy", "diff", str(shown), "@box").returncode == 0


def test_replay_of_what_a_sandbox_did(world, upstream):
    curl(world, f"http://{HOST}:{upstream}/read?token=sesame-value")
    curl(world, "-X", "POST", f"http://{HOST}:{upstream}/write", "-d", "sesame-body")
    inside(world, "bash", "-c", f"exec 3<>/dev/tcp/{HOST}/9", check=False)
    kept = pathlib.Path(world.root) / "kept.jsonl"
    same = world.cli("policy", "replay", "box", "--policy", str(world.policy), "--save", str(kept))
    assert same.returncode == 0 and " 0 changed, 0 unresolved" in same.stdout
    text = kept.read_text()
    assert "sesame" not in text and "sha256:" in text, "values are hashed"
    records = [json.loads(line) for line in text.splitlines()]
    seen = [(r["input"].get("request", {}).get("path"), r["input"].get("request", {}).get("method"), r["decision"]) for r in records]
    assert ("/read", "GET", "allow") in seen and ("/write", "POST", "deny") in seen and (None, None, "allow") in seen and (None, None, "deny") in seen
    none = pathlib.Path(world.root) / "none.yaml"
    none.write_text("version: 1\n")
    changed = world.cli("policy", "replay", "box", "--policy", str(none), "-o", "json", check=False)
    answer = json.loads(changed.stdout)
    assert changed.returncode == 1 and answer["dropped"] == 0
    assert any(c["from"] == "allow" and c["to"] == "deny" and c["input"].get("request", {}).get("path") == "/read" for c in answer["changes"])
    offline_again = world.cli("policy", "replay", "--decisions", str(kept), "--policy", str(none), check=False)
    assert offline_again.returncode == 1
    recent = world.cli("policy", "replay", "box", "--policy", str(none), "--limit", "1", "-o", "json", check=False)
    assert json.loads(recent.stdout)["decisions"] == 1


def forward(world, request=None, **init):
    """What a client gets that opens ForwardTcp itself."""
    with world.client() as client:
        frames = [openshell_pb2.TcpForwardFrame(init=openshell_pb2.TcpForwardInit(sandbox="box", workspace=WORKSPACE, **init))]
        frames += [openshell_pb2.TcpForwardFrame(data=request), openshell_pb2.TcpForwardFrame(data=b"")] if request is not None else []
        return b"".join(frame.data for frame in client._stub.ForwardTcp(iter(frames), timeout=20))


def test_only_the_record_may_be_named_and_only_by_its_request(world):
    ssh, record = openshell_pb2.SshRelayTarget(), "openshell.decisions/1"
    for init in (dict(service_id="openshell.exec/1", ssh=ssh), dict(service_id="openshell.decisions/2", ssh=ssh),
                 dict(service_id=record, tcp=openshell_pb2.TcpRelayTarget(host="127.0.0.1", port=1)), dict(service_id=record, ssh=ssh, authorization_token="x")):
        with pytest.raises(grpc.RpcError) as refused:
            forward(world, **init)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT, init
    for request in (b"nonsense\n", b'{"limit": 0}\n', b"", b"{}" * 4000):
        try:
            got = forward(world, request, service_id=record, ssh=ssh)
        except grpc.RpcError:
            got = b""
        assert got == b"", "nothing, and no last line: whoever reads it knows that it is incomplete"
    assert forward(world, b'{"limit": 1}\n', service_id=record, ssh=ssh).endswith(b'{"end":true,"dropped":0}\n')


def test_an_agent_proposes_a_rule_and_waits_for_the_person(world, upstream):
    refused = json.loads(curl(world, "-X", "POST", f"http://{HOST}:{upstream}/items").stdout)
    assert refused["error"] == "policy_denied" and refused["next_steps"][0]["path"] == "/etc/openshell/skills/policy_advisor.md"
    assert "policy.local/v1/proposals" in inside(world, "cat", "/etc/openshell/skills/policy_advisor.md").stdout
    assert "POST" in curl(world, "http://policy.local/v1/denials?last=5").stdout
    assert HOST in json.loads(curl(world, "http://POLICY.local/v1/policy/current").stdout)["policy_yaml"]
    rule = {"endpoints": [{"host": HOST, "port": upstream, "protocol": "rest", "enforcement": "enforce", "rules": [{"allow": {"method": "POST", "path": "/items"}}]}],
            "binaries": [{"path": refused["binary"]}]}
    body = json.dumps({"intent_summary": "make an item", "operations": [{"addRule": {"ruleName": "items", "rule": rule}}]})
    answer = json.loads(curl(world, "-X", "POST", "http://policy.local/v1/proposals", "-d", body).stdout)
    assert answer["accepted_chunks"] == 1, answer
    chunk = answer["accepted_chunk_ids"][0]
    assert json.loads(curl(world, f"http://policy.local/v1/proposals/{chunk}").stdout)["status"] == "pending"
    waiting = subprocess.Popen([str(world.bin / "openshell"), "sandbox", "exec", "-n", "box", "--no-tty", "--", "curl", "-s", "--max-time", "60",
                                f"http://policy.local/v1/proposals/{chunk}/wait?timeout=60"], env=world.environment, stdout=subprocess.PIPE, text=True)
    shown = wait_until(lambda: [c for c in json.loads(world.cli("rule", "get", "box", "--status", "pending", "-o", "json").stdout)["chunks"] if c["id"] == chunk],
                       what="the proposal")
    assert shown[0]["rationale"] == "make an item"
    world.cli("rule", "approve", "box", "--chunk-id", chunk)
    decided = json.loads(waiting.communicate(timeout=60)[0])
    assert decided["status"] == "approved" and decided["policy_reloaded"] is True
    assert curl(world, "-X", "POST", f"http://{HOST}:{upstream}/items").stdout == "ok"


def test_policy_local_takes_nothing_that_is_not_meant_for_it(world):
    def status(*words):
        return curl(world, "-o", "/dev/null", "-w", "%{http_code}", *words, check=False).stdout

    assert status("http://policy.local/v2") == "404"
    assert status("-H", "Host: other.test", "http://policy.local/v1/policy/current") == "400"
    assert status("-X", "POST", "--data-binary", "@/usr/bin/bash", "http://policy.local/v1/proposals") == "413"
    assert status("-X", "POST", "-H", "Transfer-Encoding: chunked", "-d", "{}", "http://policy.local/v1/proposals") == "400"
    assert status("-X", "POST", "-d", "{}", "http://policy.local/v1/proposals") == "400"
    for port in (443, 81):
        assert inside(world, "bash", "-c", f"exec 3<>/dev/tcp/policy.local/{port}", check=False).returncode != 0
    world.cli("settings", "set", "box", "--key", "agent_policy_proposals_enabled", "--value", "false")
    assert wait_until(lambda: status("http://policy.local/v1/policy/current") == "404", what="the switch to be known")
    world.cli("settings", "set", "box", "--key", "agent_policy_proposals_enabled", "--value", "true")
    assert wait_until(lambda: status("http://policy.local/v1/policy/current") == "200", what="the switch to be known")


def test_the_prover_lets_a_harmless_proposal_approve_itself(world):
    world.cli("settings", "set", "box", "--key", "proposal_approval_mode", "--value", "auto")
    body = json.dumps({"operations": [{"addRule": {"ruleName": "open", "rule": {"endpoints": [{"host": "open.example.com", "port": 443}],
                                                                                 "binaries": [{"path": "/usr/bin/curl"}]}}}]})
    chunk = json.loads(curl(world, "-X", "POST", "http://policy.local/v1/proposals", "-d", body).stdout)["accepted_chunk_ids"][0]
    state = json.loads(curl(world, f"http://policy.local/v1/proposals/{chunk}/wait?timeout=20").stdout)
    assert state["status"] == "approved" and state["validation_result"] == "prover: no new findings" and state["policy_reloaded"] is True
    world.cli("settings", "set", "box", "--key", "proposal_approval_mode", "--value", "manual")
