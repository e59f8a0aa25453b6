"""The operator interface of a real gateway with real sandboxes: command line, JSON, stream, metrics, and the page in a browser. (PP-15 and the ACT rows of its tests)"""

import http.client
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import threading

import pytest
from browser import Browser
from conftest import WORKSPACE, Gateway, delete_gone, free_port, wait_until
from openshell._proto import openshell_pb2
from test_approval import POLICY, Listener

CANARY = f"canary-{secrets.token_hex(12)}"


class OperatorConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("operator", timeout=15)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(15)
        self.sock.connect(self.path)


@pytest.fixture(scope="module")
def mapped(scratch):
    folder = scratch / "m"
    folder.mkdir(mode=0o711)
    made = Gateway(folder, driver_options="[openshell.supervisor]\ndenial_flush_interval_secs = 1")
    made.browser_port, made.metrics_port = free_port(), free_port()
    made.file.write_text(made.file.read_text().replace(
        "[openshell.gateway]", f'[openshell.gateway]\noperator_bind_address = "127.0.0.1:{made.browser_port}"\nmetrics_bind_address = "127.0.0.1:{made.metrics_port}"'))
    made.start()
    made.cli("gateway", "add", made.endpoint, "--local", "--name", "map")
    yield made
    made.end()


@pytest.fixture(scope="module")
def boxes(mapped):
    policy = pathlib.Path(mapped.root) / "policy.yaml"
    policy.write_text(POLICY)
    mapped.environment["API_TOKEN"] = CANARY
    mapped.cli("provider", "create", "--name", "service", "--type", "generic", "--credential", "API_TOKEN")
    del mapped.environment["API_TOKEN"]
    with mapped.client() as client:
        for name in ("alpha", "beta", "gamma"):
            mapped.cli("sandbox", "create", "--name", name, "--policy", str(policy), "--provider", "service", "--detach")
        for name in ("alpha", "beta", "gamma"):
            client.wait_ready(name, workspace=WORKSPACE, timeout_seconds=40)
        yield client
        for name in ("alpha", "beta", "gamma"):
            delete_gone(client, name)


def get(mapped, path, method="GET"):
    connection = OperatorConnection(mapped.run / "gateway" / "operator.sock")
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def actors(mapped):
    """{(kind of process, sandbox): {actor id: actor}}"""
    found = json.loads(get(mapped, "/actors")[1])["processes"]
    return {(process["kind"], process["sandbox"]): {one["id"]: one for one in process["actors"]} for process in found}


def test_every_actor_of_all_processes_is_there(mapped, boxes):
    """ACT-25, ACT-26, ACT-27, ACT-28, ACT-29, ACT-37, ACT-39."""
    names = ("alpha", "beta", "gamma")
    all_told = lambda now: all(now.get((kind, f"default/{name}")) for kind in ("supervisor", "sandbox") for name in names)  # no actors: not asked yet
    found = wait_until(lambda: (lambda now: now if all_told(now) else None)(actors(mapped)), what="actors of all sandboxes")
    gateway = found["gateway", ""]
    assert {"gateway_root", "directory", "sandbox_index", "session_registry", "relay_registry", "sandbox_bus", "compute_reconciler", "global_configuration"} <= set(gateway)
    assert sum(one["kind"] == "sandbox_entity" for one in gateway.values()) == 3
    for name in names:
        supervisor, runtime = found["supervisor", f"default/{name}"], found["sandbox", f"default/{name}"]
        assert {"supervisor", "policy_poller", "status_outbox", "denial_aggregator", "endpoint_observer", "session", "runtime_publisher", "boundary", "log_push"} <= set(supervisor)
        assert {"boundary", "exec_registry", "launcher_control", "tree_control", "broker_control", "mediation_lease"} <= set(runtime)
        for one in [*supervisor.values(), *runtime.values()]:
            assert set(one) >= {"id", "parent", "kind", "summary", "mailbox", "waiting", "handled", "failed", "restarts", "oldest_ms", "last_error", "rates"}
    told = lambda now: all(now["supervisor", f"default/{name}"]["session"]["summary"].startswith("session ") for name in names)
    wait_until(lambda: told(actors(mapped)), what="each session says that it is one")
    counted = lambda now: all(now["supervisor", f"default/{name}"]["runtime_publisher"]["handled"] > 0 for name in names)
    wait_until(lambda: counted(actors(mapped)), what="each publisher has renewed its evidence")


def test_the_command_shows_the_same(mapped, boxes):
    text = mapped.command("openshell-gateway", "actors", "--config", str(mapped.file)).stdout
    assert "gateway\n" in text and "supervisor of default/alpha" in text and "sandbox of default/alpha (its own word: not trusted)" in text
    assert re.search(r"status_outbox +0 +0 ", text) and re.search(r"sandbox_entity:\S+.* alpha: Ready, connected", text)
    assert json.loads(mapped.command("openshell-gateway", "actors", "--json", "--socket", str(mapped.run / "gateway" / "operator.sock")).stdout)["processes"]
    nowhere = mapped.command("openshell-gateway", "actors", "--socket", "/nowhere.sock", check=False)
    assert nowhere.returncode == 1 and "operator socket /nowhere.sock can not be reached" in nowhere.stderr
    unknown = mapped.command("openshell-gateway", "actors", "--wath", check=False)
    assert unknown.returncode == 2 and "unknown flag '--wath'" in unknown.stderr


def test_a_change_is_streamed(mapped, boxes):
    """O4: within 2 s of a change."""
    connection = OperatorConnection(mapped.run / "gateway" / "operator.sock")
    connection.request("GET", "/actors/stream")
    answer, events = connection.getresponse(), []

    def read():
        try:
            for line in answer:
                if line.startswith(b"data: "):
                    events.append(line.decode())
        except OSError:
            pass

    threading.Thread(target=read, daemon=True).start()
    wait_until(lambda: any("default/beta" in event for event in events), what="the first events")
    seen = len(events)
    boxes.stop("beta", workspace=WORKSPACE)
    wait_until(lambda: any("beta: Stop" in event for event in events[seen:]), seconds=10, what="the stop of a sandbox in the stream")
    boxes.wait_stopped("beta", workspace=WORKSPACE, timeout_seconds=30)
    boxes.start("beta", workspace=WORKSPACE)
    boxes.wait_ready("beta", workspace=WORKSPACE, timeout_seconds=40)
    connection.close()


def test_metrics_by_kind_of_actor(mapped, boxes):
    connection = http.client.HTTPConnection("127.0.0.1", mapped.metrics_port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    for name in ("openshell_actor_mailbox_messages", "openshell_actor_handled_total", "openshell_actor_failed_total", "openshell_actor_restarts_total", "openshell_actor_oldest_message_age_seconds"):
        assert re.search(name + r'\{process="gateway",kind="sandbox_entity"\} [0-9.]+\n', text), name
    assert 'openshell_actors{process="gateway",kind="sandbox_entity"} 3' in text
    ids = [one for one in json.loads(get(mapped, "/actors")[1])["processes"] if one["kind"] == "supervisor"]
    assert not any(one["id"].split(":")[1] in text for one in ids), "no id is a label"


def test_an_actor_answers_for_itself(mapped, boxes):
    supervisor = next(one["id"] for one in json.loads(get(mapped, "/actors")[1])["processes"] if one["kind"] == "supervisor")
    for process, actor in (("gateway:openshell", "sandbox_index"), (supervisor, "policy_poller")):
        answer = json.loads(get(mapped, f"/actors/inspect?process={process}&actor={actor}")[1])
        assert answer.get("id") == actor, answer


def denied(mapped, name, port):
    mapped.cli("sandbox", "exec", "-n", name, "--no-tty", "--", "bash", "-c", f"exec 3<>/dev/tcp/host.openshell.internal/{port}", check=False)
    line = wait_until(lambda: next((one for one in json.loads(get(mapped, "/denials")[1])["denials"] if f":{port}" in one["text"]), None), what="the denial")
    return line["id"]


def steps(mapped, denial):
    return {step["id"]: step for step in json.loads(get(mapped, f"/denials?id={denial}")[1])["steps"]}


def test_one_denied_request_is_followed_by_its_id(mapped, boxes):
    """PP-15: from the workload to the decision, the proposal, the person and the policy; on the command line's side the ids are the same."""
    listener = Listener()
    denial = denied(mapped, "alpha", listener.port)
    assert denial in mapped.cli("logs", "alpha").stdout
    found = wait_until(lambda: (lambda now: now if now.get("person") else None)(steps(mapped, denial)), what="the proposal")
    assert found["workload"]["facts"]["port"] == listener.port and found["workload"]["facts"]["program"].endswith("/bash")
    assert found["decision"]["state"] == "refused" and found["proposal"]["state"] == "done" and found["person"]["state"] == "waiting"
    chunk = found["proposal"]["facts"]["proposal"]
    assert found["person"]["text"] == f"openshell rule approve alpha --chunk-id {chunk}"
    mapped.cli(*found["person"]["text"].split()[1:], "--wait", "--timeout", "20")
    found = steps(mapped, denial)
    assert found["person"]["state"] == "done" and found["policy"]["state"] == "done", found
    assert "loaded" in found["policy"]["text"] or "superseded" in found["policy"]["text"]
    assert "error" in json.loads(get(mapped, "/denials?id=00000000-0000-4000-8000-000000000000")[1])


def test_nothing_secret_in_summary_error_or_page(mapped, boxes):
    """The credential of the sandboxes, the tokens of their supervisors and the operator's own are nowhere on the interface."""
    url = mapped.command("openshell-gateway", "operator-url", "--config", str(mapped.file)).stdout.strip()
    token = url.split("token=")[1]
    port = http.client.HTTPConnection("127.0.0.1", mapped.browser_port, timeout=10)
    port.request("GET", f"/login?token={token}")
    answer = port.getresponse()
    answer.read()
    cookie = answer.getheader("Set-Cookie").split(";")[0]
    said = [get(mapped, path)[1] for path in ("/", "/actors", "/metrics", "/denials", "/static/map.js")]
    said.append((mapped.root / "gateway.log").read_text())
    for text in said:
        for secret in (CANARY, token, cookie.split("=")[1], "PRIVATE KEY", "Bearer ey"):
            assert secret not in text
        assert not re.search(r"\beyJ[\w-]{20,}\.", text), "a token of a supervisor"


def test_a_supervisor_that_dies_is_seen(mapped, boxes):
    connection = OperatorConnection(mapped.run / "gateway" / "operator.sock")
    connection.request("GET", "/actors/stream")
    answer = connection.getresponse()
    assert answer.readline()
    before = next(one for one in json.loads(get(mapped, "/actors")[1])["processes"] if one["sandbox"] == "default/gamma" and one["kind"] == "supervisor")
    pids = [int(entry.name) for entry in pathlib.Path("/proc").glob("[0-9]*") if is_supervisor_of(entry, before["id"].split(":")[1])]
    assert len(pids) == 1
    os.kill(pids[0], signal.SIGKILL)

    def handled(process):
        return sum(one["handled"] for one in process["actors"])

    def ended():
        now = [one for one in json.loads(get(mapped, "/actors")[1])["processes"] if one["id"] == before["id"]]
        return not now or "ended_ms" in now[0] or handled(now[0]) < handled(before)

    wait_until(ended, what="its end on the map")
    # It passes through Error, and is started anew.
    wait_until(lambda: boxes.get("gamma", workspace=WORKSPACE).status.phase == openshell_pb2.SANDBOX_PHASE_READY, seconds=60, what="the sandbox ready again")
    connection.close()


def is_supervisor_of(entry, sandbox):
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        return b"openshell-supervisor" in words[0] and any(sandbox.encode() in word for word in words)
    except OSError:
        return False


def test_the_page_shows_it_and_follows_a_request(mapped, boxes):
    listener = Listener()
    denial = denied(mapped, "beta", listener.port)
    browser = Browser()
    try:
        browser.open(f"http://127.0.0.1:{mapped.browser_port}/")
        assert "openshell-gateway operator-url" in browser.text(), "without the link there is nothing but the word how to get one"
        browser.complaints()  # the 401
        browser.open(mapped.command("openshell-gateway", "operator-url", "--config", str(mapped.file)).stdout.strip())
        browser.wait("return document.querySelectorAll('.branch').length === 3")
        browser.wait("return document.body.innerText.includes('exec_registry')", what="the actors of a runtime")
        for name in ("light", "dark"):
            browser.theme(name)
            browser.screenshot(f"real-map-{name}")
        browser.theme("light")
        browser.click(".actor[data-actor=sandbox_index]")
        browser.run("[...document.querySelectorAll('#detail button')].find((one) => one.textContent === 'Ask it now').click()")
        browser.wait("return document.querySelector('#detail').innerText.includes('its own answer')")
        browser.press("Escape")
        browser.click("#tab-follow")
        browser.wait("return document.querySelectorAll('.denial').length > 0")
        browser.type("#follow-id", denial)
        browser.press("Enter")
        browser.wait("return document.querySelectorAll('.steps li').length >= 4", what="the steps of the denied request")
        text = browser.text("#trace")
        for words in ("A program in the sandbox asked", "The supervisor refused", "was proposed", "It waits for a person", str(listener.port)):
            assert words in text, words
        for name in ("light", "dark"):
            browser.theme(name)
            browser.screenshot(f"follow-{name}")
        chunk = steps(mapped, denial)["proposal"]["facts"]["proposal"]
        mapped.cli("rule", "approve", "beta", "--chunk-id", chunk, "--wait", "--timeout", "20")
        browser.wait("return document.querySelector('#trace').innerText.includes('the supervisor decides by it')", what="the approval, by itself")
        browser.screenshot("follow-approved")
        assert not browser.complaints(), browser.complaints()
    finally:
        browser.close()
