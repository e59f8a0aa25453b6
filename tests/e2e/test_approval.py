"""Refused opens become proposals, and a person decides: by the command line and by the published package's own stubs. (PP-08, PP-14, PP-15, M11, B04)"""

import json
import pathlib
import socket
import threading
import time

import grpc
import pytest
from conftest import WORKSPACE, Gateway, delete_gone, wait_until
from openshell._proto import datamodel_pb2, openshell_pb2

HOST = "host.openshell.internal"
SCOPE = datamodel_pb2.WorkspaceSelector(workspace=WORKSPACE)
POLICY = """\
version: 1
network_policies:
  listed:
    endpoints: [{host: host.openshell.internal, port: 9}]
    binaries: [/usr/bin/true]
"""


class Listener:
    """Accepts and closes: enough for `exec 3<>/dev/tcp/...` to succeed."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                self.socket.accept()[0].close()
            except OSError:
                return


@pytest.fixture(scope="module")
def fast(scratch):
    folder = scratch / "a"
    folder.mkdir(mode=0o711)
    made = Gateway(folder, driver_options="[openshell.supervisor]\ndenial_flush_interval_secs = 1")
    made.start()
    made.cli("gateway", "add", made.endpoint, "--local", "--name", "approval")
    yield made
    made.end()


@pytest.fixture(scope="module")
def api(fast):
    with fast.client() as made:
        yield made


@pytest.fixture
def box(fast, api):
    policy = pathlib.Path(fast.root) / "policy.yaml"
    policy.write_text(POLICY)
    fast.cli("sandbox", "create", "--name", "box", "--policy", str(policy), "--detach")
    api.wait_ready("box", workspace=WORKSPACE, timeout_seconds=30)
    yield "box"
    delete_gone(api, "box")


@pytest.fixture
def listener():
    made = Listener()
    yield made
    made.socket.close()


def connect(fast, port, host=HOST):
    return fast.cli("sandbox", "exec", "-n", "box", "--no-tty", "--", "bash", "-c", f"exec 3<>/dev/tcp/{host}/{port} && echo connected", check=False)


def pending(fast, port):
    chunks = json.loads(fast.cli("rule", "get", "box", "--status", "pending", "-o", "json").stdout)["chunks"]
    return next((c for c in chunks if c["proposed_rule"]["endpoints"][0]["port"] == port), None)


def version(fast):
    return json.loads(fast.cli("policy", "get", "box", "-o", "json").stdout)["version"]


def refused_and_proposed(fast, port):
    refused = connect(fast, port)
    assert refused.returncode != 0 and "Permission denied" in refused.stderr + refused.stdout
    return wait_until(lambda: pending(fast, port), what=f"a proposal for {port}")


def test_a_refused_open_is_proposed_approved_and_then_succeeds(fast, box, listener):
    chunk = refused_and_proposed(fast, listener.port)
    assert chunk["status"] == "pending" and chunk["validation_result"] == "prover: no new findings" and "application_error" not in chunk
    assert chunk["proposed_rule"]["binaries"] == [{"path": chunk["binary"]}] and chunk["binary"].endswith("/bash")
    assert chunk["rationale"] == f"Allow bash to connect to {HOST}:{listener.port}."
    logs = fast.cli("logs", "box").stdout
    assert chunk["denial_ids"] and any(denial in logs for denial in chunk["denial_ids"]), "one id leads from the log line to the proposal"
    before = version(fast)
    answer = fast.cli("rule", "approve", "box", "--chunk-id", chunk["id"], "--wait", "--timeout", "20")
    assert f"Policy version: {before + 1}," in answer.stdout and f"Policy version {before + 1} loaded" in answer.stderr
    assert connect(fast, listener.port).stdout == "connected\n"
    again = fast.cli("rule", "approve", "box", "--chunk-id", chunk["id"], check=False)
    assert again.returncode == 1 and "expected 'pending' or 'rejected'" in again.stderr
    other = fast.cli("sandbox", "exec", "-n", "box", "--no-tty", "--", "python3", "-c",
                     f"import socket; socket.create_connection(('{HOST}', {listener.port}), 5)", check=False)
    assert other.returncode != 0, "approved for one program, not for another"
    undone = fast.cli("rule", "undo", "box", "--chunk-id", chunk["id"], "--wait", "--timeout", "20")
    assert f"Policy version: {before + 2}," in undone.stdout
    assert connect(fast, listener.port).returncode != 0
    fast.cli("rule", "reject", "box", "--chunk-id", chunk["id"], "--reason", "not today")
    shown = fast.cli("rule", "get", "box", "--status", "rejected").stdout
    assert "not today" in shown and f"{HOST}:{listener.port} [L4]" in shown
    events = [line.split()[2] for line in fast.cli("rule", "history", "box").stdout.splitlines()[1:]]
    assert "proposed" in events and "rejected" in events


def test_proposals_survive_the_gateway_and_are_decided_after_it(fast, api, box, listener):
    chunk = refused_and_proposed(fast, listener.port)
    fast.end(9)
    fast.start()
    wait_until(lambda: api.get("box", workspace=WORKSPACE).phase == openshell_pb2.SANDBOX_PHASE_READY, what="box to be ready again")
    kept = pending(fast, listener.port)
    assert kept["id"] == chunk["id"] and kept["review_token"] == chunk["review_token"]
    fast.cli("rule", "approve", "box", "--chunk-id", chunk["id"], "--wait", "--timeout", "20")
    assert connect(fast, listener.port).stdout == "connected\n"


def test_the_published_stubs_decide_with_review_tokens(fast, api, box, listener):
    stub = api._stub
    refused_and_proposed(fast, listener.port)
    drafts = stub.GetDraftPolicy(openshell_pb2.GetDraftPolicyRequest(sandbox="box", workspace_scope=SCOPE, status_filter="pending"))
    chunk = next(c for c in drafts.chunks if c.proposed_rule.endpoints[0].port == listener.port)
    assert chunk.candidate_effective_policy.network_policies[chunk.rule_name].endpoints[0].advisor_proposed
    assert chunk.rule_name not in chunk.current_effective_policy.network_policies
    with pytest.raises(grpc.RpcError) as stale:
        stub.ApproveDraftChunk(openshell_pb2.ApproveDraftChunkRequest(sandbox="box", workspace_scope=SCOPE, chunk_id=chunk.id, review_token="0" * 64))
    assert stale.value.code() == grpc.StatusCode.FAILED_PRECONDITION and "refetch and review again" in stale.value.details()
    with pytest.raises(grpc.RpcError) as absent:
        stub.UndoDraftChunk(openshell_pb2.UndoDraftChunkRequest(sandbox="box", workspace_scope=SCOPE, chunk_id="none"))
    assert absent.value.code() == grpc.StatusCode.NOT_FOUND
    edited = openshell_pb2.EditDraftChunkRequest(sandbox="box", workspace_scope=SCOPE, chunk_id=chunk.id)
    edited.proposed_rule.CopyFrom(chunk.proposed_rule)
    edited.proposed_rule.endpoints[0].protocol = "rest"
    edited.proposed_rule.endpoints[0].access = 1  # read-only
    stub.EditDraftChunk(edited)
    approvals = [openshell_pb2.DraftChunkApproval(chunk_id=c.id, review_token=c.review_token)
                 for c in stub.GetDraftPolicy(openshell_pb2.GetDraftPolicyRequest(sandbox="box", workspace_scope=SCOPE, status_filter="pending")).chunks]
    answer = stub.ApproveAllDraftChunks(openshell_pb2.ApproveAllDraftChunksRequest(sandbox="box", workspace_scope=SCOPE, approvals=approvals, include_security_flagged=True))
    assert answer.chunks_approved == len(approvals) and answer.chunks_skipped == 0
    policy = json.loads(fast.cli("policy", "get", "box", "--base", "-o", "json").stdout)["policy"]
    assert policy["network_policies"][chunk.rule_name]["endpoints"][0]["access"] == "read-only", "what was edited is what was approved"
    history = stub.GetDraftHistory(openshell_pb2.GetDraftHistoryRequest(sandbox="box", workspace_scope=SCOPE))
    assert [e.event_type for e in history.entries if e.chunk_id == chunk.id] == ["proposed", "approved"]
    assert stub.ClearDraftChunks(openshell_pb2.ClearDraftChunksRequest(sandbox="box", workspace_scope=SCOPE)).chunks_cleared == 0


def test_m11_a_watching_client_hears_of_each_distinct_denial_within_200_ms(fast, api, box):
    stream = api._stub.WatchSandbox(openshell_pb2.WatchSandboxRequest(sandbox="box", workspace_scope=SCOPE, follow_logs=True, log_tail_lines=1))
    next(iter(stream))  # the snapshot: subscribed
    ports = list(range(7001, 7008))
    latest, delays = {}, {}

    def listen():
        try:
            for event in stream:
                if not event.HasField("log"):
                    continue
                now = time.time()
                for port in ports:
                    if f":{port}" in event.log.message and "DENIED" in event.log.message:
                        latest[port] = latest.get(port, 0) + 1
                        delays.setdefault(port, now - (event.log.event_time.seconds + event.log.event_time.nanos / 1e9))
        except grpc.RpcError:
            pass  # cancelled at the end of the test

    threading.Thread(target=listen, daemon=True).start()
    script = "".join(f"(exec 3<>/dev/tcp/{HOST}/{port}) 2>/dev/null; " for port in ports)
    fast.cli("sandbox", "exec", "-n", "box", "--no-tty", "--", "bash", "-c", script, check=False)
    wait_until(lambda: len(delays) == len(ports), what="a line for each denial")
    assert sorted(delays.values())[len(ports) // 2] < 0.2, delays
    before = dict(latest)
    flood = f"for i in $(seq 200); do (exec 3<>/dev/tcp/{HOST}/{ports[0]}) 2>/dev/null; done; true"
    started = time.monotonic()
    fast.cli("sandbox", "exec", "-n", "box", "--no-tty", "--", "bash", "-c", flood, check=False)
    took = time.monotonic() - started
    chunk = wait_until(lambda: (c := pending(fast, ports[0])) and c["hit_count"] >= 100 and c, what="the summary's count")
    assert latest[ports[0]] - before[ports[0]] <= took + 2, "one line a second of one key, however often it is refused"
    assert chunk["denial_ids"]
    stream.cancel()


def test_policy_update_merges_without_granting_what_nobody_declared(fast, box):
    def update(*words, check=True):
        return fast.cli("policy", "update", "box", *words, check=check)

    update("--add-endpoint", "code.demo.test:443", "--rule-name", "r", "--binary", "/usr/bin/git", "--wait", "--timeout", "20")
    update("--add-endpoint", "blob.demo.test:443", "--rule-name", "r", "--binary", "/usr/bin/git")
    refused = update("--add-endpoint", "code.demo.test:443", "--rule-name", "r", "--binary", "/usr/bin/curl", check=False)
    assert refused.returncode == 1 and "undeclared authorization for blob.demo.test on ports [443]" in refused.stderr
    before = fast.cli("policy", "get", "box", "--base", "-o", "json").stdout
    preview = update("--add-endpoint", "api.demo.test:443:read-only:rest:enforce", "--binary", "/usr/bin/gh", "--dry-run")
    assert "Dry run preview for 1" in preview.stderr and "allow_api_demo_test_443" in preview.stdout
    assert fast.cli("policy", "get", "box", "--base", "-o", "json").stdout == before
    update("--add-endpoint", "api.demo.test:443:read-only:rest:enforce", "--binary", "/usr/bin/gh")
    update("--rule-name", "allow_api_demo_test_443", "--binary", "/usr/bin/gh", "--add-allow", "api.demo.test:443:POST:/repos/*/issues")
    policy = json.loads(fast.cli("policy", "get", "box", "--base", "-o", "json").stdout)["policy"]
    methods = [rule["allow"]["method"] for rule in policy["network_policies"]["allow_api_demo_test_443"]["endpoints"][0]["rules"]]
    assert methods == ["GET", "HEAD", "OPTIONS", "POST"]
    update("--remove-rule", "allow_api_demo_test_443", "--remove-endpoint", "blob.demo.test:443")
    unchanged = update("--remove-rule", "never_there")
    assert "Policy unchanged" in unchanged.stderr
    for words in (["--binary", "/x"], [], ["--add-endpoint", "nohost"], ["--add-allow", "a.b.test:443:GET:/x"], ["--add-endpoint", "a.b.test:70000"]):
        assert update(*words, check=False).returncode == 1
