"""Stop, start, wait, watch, restart policy, ephemeral runs, workload templates: by the command line and by the published package."""

import json
import os
import signal
import subprocess
import time

import grpc
import openshell
import pytest
from conftest import WORKSPACE, Gateway, create_ready, delete_gone, on_this_machine, wait_until
from openshell._proto import openshell_pb2

QUICK_CYCLES = int(os.environ.get("OPENSHELL_STOP_START_CYCLES", "6"))  # M4 asks for 500: set it so for a long run


@pytest.fixture
def box(client):
    """The name of a sandbox that the test makes; gone afterwards."""
    name = "lifecycle"
    yield name
    delete_gone(client, name)


def spec(*command, restart=None):
    made = openshell_pb2.SandboxSpec(command=list(command))
    if restart:
        made.restart_policy = restart
    return made


def status(gateway, name):
    return json.loads(gateway.cli("sandbox", "get", name, "-o", "json").stdout)


def test_stop_keeps_the_files_and_start_runs_the_command_again(gateway, client, box):
    client.create(workspace=WORKSPACE, name=box, spec=spec("sh", "-c", "date +%s%N >> /sandbox/starts; sleep 4713"))
    client.wait_ready(box, workspace=WORKSPACE, timeout_seconds=30)
    client.exec(box, ["sh", "-c", "echo kept > /sandbox/note; echo lost > /tmp/note"], workspace=WORKSPACE)
    assert "Stopped sandbox lifecycle" in gateway.cli("sandbox", "stop", box).stdout
    assert status(gateway, box)["phase"] == "Stopped"
    with pytest.raises(grpc.RpcError) as refused:
        client.exec(box, ["true"], workspace=WORKSPACE)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "Started sandbox lifecycle" in gateway.cli("sandbox", "start", box).stdout
    result = client.exec(box, ["sh", "-c", "cat /sandbox/note; wc -l < /sandbox/starts; ls /tmp/note 2>&1"], workspace=WORKSPACE)
    assert result.stdout.split()[:2] == ["kept", "2"] and "No such file" in result.stdout


def test_stop_ends_what_a_program_left_in_the_background(gateway, client, box):
    """CX-37"""
    create_ready(client, box, spec=spec("sleep", "4712"))
    client.exec(box, ["sh", "-c", "setsid nohup sleep 471939 >/dev/null 2>&1 &"], workspace=WORKSPACE)
    wait_until(lambda: subprocess.run(["pgrep", "-f", "^sleep 471939"], stdout=subprocess.DEVNULL).returncode == 0, what="the program in the background")
    gateway.cli("sandbox", "stop", box)
    assert subprocess.run(["pgrep", "-f", "^sleep 471939"], stdout=subprocess.DEVNULL).returncode == 1


def test_stop_and_start_twice_are_the_same_as_once(gateway, client, box):
    create_ready(client, box)
    assert client.start(box, workspace=WORKSPACE).status.phase == openshell_pb2.SANDBOX_PHASE_READY
    for _ in range(2):
        gateway.cli("sandbox", "stop", box)
    client.wait_stopped(box, workspace=WORKSPACE, timeout_seconds=5)
    for _ in range(2):
        gateway.cli("sandbox", "start", box)
    assert json.loads(gateway.cli("sandbox", "stop", box, "-o", "json").stdout)["phase"] == "Stopped"


def test_M4_quick_stops_and_starts_never_end_in_error(client, box):
    create_ready(client, box, spec=spec("sleep", "4714"))
    for number in range(QUICK_CYCLES):
        client.stop(box, workspace=WORKSPACE)
        client.start(box, workspace=WORKSPACE)
        client.wait_ready(box, workspace=WORKSPACE, timeout_seconds=30)
        assert client.exec(box, ["echo", "here"], workspace=WORKSPACE).stdout == "here\n", f"cycle {number}"


def test_stopping_an_interactive_shell_does_not_wait_for_the_grace(client, box):
    """An interactive shell ignores SIGTERM: it has to end by the hang-up of its terminal."""
    create_ready(client, box)  # the login shell, with a terminal
    begin = time.monotonic()
    client.stop(box, workspace=WORKSPACE)
    client.wait_stopped(box, workspace=WORKSPACE, timeout_seconds=20)
    assert time.monotonic() - begin < 4


@pytest.mark.parametrize("code,phase,reason,script", [(0, "Completed", "MainProcessCompleted", "exit 0"), (3, "Error", "MainProcessFailed", "exit 3"),
                                                      (139, "Error", "MainProcessFailed", "kill -SEGV $$")])
def test_B29_a_short_main_command_leaves_a_usable_sandbox(gateway, client, box, code, phase, reason, script):
    """CX-32 and CX-34: the result stays, and so do exec, logs and policy updates, until the sandbox is stopped."""
    client.create(workspace=WORKSPACE, name=box, spec=spec("sh", "-c", script))
    ended = gateway.cli("sandbox", "wait", box, "--for", "exit", check=False)
    assert ended.returncode == code, ended.stderr
    found = status(gateway, box)
    assert (found["phase"], found["exit_code"]) == (phase, code)
    assert next(one["reason"] for one in found["conditions"] if one["type"] == "Ready") == reason
    assert gateway.cli("sandbox", "exec", box, "--", "echo", "still here").stdout == "still here\n"
    policy = gateway.root / "short.yaml"
    base = gateway.cli("sandbox", "get", box, "--policy-only").stdout.replace("network_policies: {}\n", "")
    policy.write_text(base + "network_policies:\n  other:\n    name: other\n    endpoints:\n      - {host: other.test, port: 443}\n    binaries:\n      - {path: /usr/bin/curl}\n")
    changed = gateway.cli("policy", "set", box, "--policy", str(policy), "--wait", "--timeout", "20", check=False)
    assert changed.returncode == 0, changed.stdout + changed.stderr
    gateway.cli("logs", box)
    gateway.cli("sandbox", "stop", box)


def test_restart_always_counts_its_runs_and_a_stop_ends_them(gateway, client, box):
    client.create(workspace=WORKSPACE, name=box, spec=spec("sh", "-c", "echo run >> /sandbox/runs; exit 0", restart=openshell_pb2.SANDBOX_RESTART_POLICY_ALWAYS))
    wait_until(lambda: status(gateway, box)["restart_count"] >= 2, 60, "the second restart")
    # Between two runs, not within a start, which can not be stopped.
    wait_until(lambda: gateway.cli("sandbox", "stop", box, check=False).returncode == 0, 30, "the stop")
    before = status(gateway, box)
    assert before["next_restart_at_ms"] is None and before["phase"] in ("Stopped", "Completed")
    time.sleep(2.5)  # longer than the wait that was due
    assert status(gateway, box)["restart_count"] == before["restart_count"]


def test_restart_on_failure_stops_with_the_first_success(gateway, client, box):
    script = "echo run >> /sandbox/runs; test $(wc -l < /sandbox/runs) -ge 2"
    client.create(workspace=WORKSPACE, name=box, spec=spec("sh", "-c", script, restart=openshell_pb2.SANDBOX_RESTART_POLICY_ON_FAILURE))
    wait_until(lambda: status(gateway, box)["phase"] == "Completed", 60, "the run that succeeds")
    assert status(gateway, box)["restart_count"] == 1


def test_an_ephemeral_sandbox_in_the_background_is_deleted_after_its_run(gateway, client):
    """FB-29: no attachment was declared, so nothing is waited for."""
    gateway.cli("sandbox", "create", "--name", "ephemeral", "--no-keep", "--detach", "--", "sh", "-c", "sleep 1; exit 0")
    gateway.cli("sandbox", "wait", "ephemeral", "--for", "deleted", "--timeout", "30")
    with pytest.raises(grpc.RpcError) as gone:
        client.get("ephemeral", workspace=WORKSPACE)
    assert gone.value.code() == grpc.StatusCode.NOT_FOUND


def test_wait_says_why_it_can_not_succeed_and_124_when_time_is_over(gateway, client, box):
    create_ready(client, box, spec=spec("sleep", "4715"))
    late = gateway.cli("sandbox", "wait", box, "--for", "exit", "--timeout", "1", check=False)
    assert late.returncode == 124 and "timed out after 1s" in late.stderr
    gateway.cli("sandbox", "stop", box)
    never = gateway.cli("sandbox", "wait", box, "--for", "exit", check=False)
    assert never.returncode == 1 and "while waiting for the end of its main process" in never.stderr
    assert gateway.cli("sandbox", "wait", "nobody", check=False).returncode == 1


def test_watch_tells_phases_and_resumes_after_a_cursor(gateway, client, box):
    create_ready(client, box, spec=spec("sleep", "4716"))
    first = gateway.cli("sandbox", "watch", box, "--logs", "--until-settled", "-o", "json")
    events = [json.loads(line) for line in first.stdout.splitlines()]
    assert events[0]["sandbox"]["phase"] == "Ready"
    cursors = [event["cursor"] for event in events if "cursor" in event]
    assert cursors == sorted(cursors) and len(cursors) >= 2
    again = gateway.cli("sandbox", "watch", box, "--logs", "--until-settled", "--after", cursors[0], "-o", "json")
    assert [event["cursor"] for event in map(json.loads, again.stdout.splitlines()) if "cursor" in event][: len(cursors) - 1] == cursors[1:]
    assert gateway.cli("sandbox", "watch", box, "--after", "nonsense", check=False).returncode == 1
    lost = gateway.cli("sandbox", "watch", box, "--after", "0" * 32, check=False)
    assert lost.returncode == 1 and "OutOfRange" in lost.stderr


def test_a_watch_goes_on_after_the_gateway_was_killed(scratch):
    folder = scratch / "watched"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder, driver_options="keep_on_shutdown = true")
    gateway.start()
    gateway.cli("gateway", "add", gateway.endpoint, "--local", "--name", "watched")
    try:
        with gateway.client() as client:
            create_ready(client, "watched", spec=spec("sleep", "4717"))
        words = [str(gateway.bin / "openshell"), "sandbox", "watch", "watched", "-o", "json"]
        watcher = subprocess.Popen(words, env=gateway.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert json.loads(watcher.stdout.readline())["sandbox"]["phase"] == "Ready"
        gateway.end(signal.SIGKILL)
        gateway.start()
        phase = None
        while phase != "Ready":
            line = watcher.stdout.readline()  # each is waited for; the stream ends if it is not taken up again
            assert line, watcher.communicate(timeout=20)[1]
            phase = json.loads(line).get("sandbox", {}).get("phase")
        with gateway.client() as client:
            client.delete("watched", workspace=WORKSPACE)
            client.wait_deleted("watched", workspace=WORKSPACE, timeout_seconds=30)
        said = watcher.communicate(timeout=60)[1]
        assert watcher.returncode == 0 and "missed" in said, said
    finally:
        gateway.end()


def test_M6_the_gateway_ends_soon_with_five_sandboxes(scratch):
    folder = scratch / "five"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder)
    gateway.start()
    names = [f"five-{number}" for number in range(5)]
    try:
        with gateway.client() as client:
            for name in names:
                client.create(workspace=WORKSPACE, name=name)  # login shells, the hardest to end
            for name in names:
                client.wait_ready(name, workspace=WORKSPACE, timeout_seconds=60)
        limit = on_this_machine(1)
        begin = time.monotonic()
        gateway.end()
        took = time.monotonic() - begin
        assert gateway.process.returncode == 0
        alive = subprocess.run(["pgrep", "-f", str(gateway.state)], capture_output=True, text=True).stdout.split()
        assert not alive, "a sandbox outlived the gateway although it was not told to"
        gateway.start()  # and they come back: nobody had asked to stop them
        with gateway.client() as client:
            for name in names:
                client.wait_ready(name, workspace=WORKSPACE, timeout_seconds=60)
                delete_gone(client, name)
        assert took < limit, f"{took:.2f} s of {limit:.2f} s"
    finally:
        gateway.end()


# ---- templates ----


@pytest.fixture
def templates(client):
    made = openshell.SandboxTemplateClient.from_sandbox_client(client)
    yield made
    for name in ("small", "plain", "labelled"):
        made.delete(name, workspace=WORKSPACE, allow_missing=True)


def test_a_sandbox_made_from_a_template_is_what_the_template_says(gateway, client, templates, box):
    stored = templates.create(workspace=WORKSPACE, name="small", environment={"COLOUR": "blue"}, memory="256Mi", cpu="1")
    assert stored.metadata.id and stored.metadata.resource_version == 1
    made = client.create_from_template(workspace=WORKSPACE, workload_template="small", name=box)
    assert made.created_from_workload_template.name == "small" and made.created_from_workload_template.resource_version == "1"
    client.wait_ready(box, workspace=WORKSPACE, timeout_seconds=30)
    assert client.exec(box, ["sh", "-c", "echo $COLOUR"], workspace=WORKSPACE).stdout == "blue\n"
    assert templates.delete("small", workspace=WORKSPACE).outcome == openshell.DeletionOutcome.COMPLETED
    assert client.exec(box, ["echo", "stays"], workspace=WORKSPACE).stdout == "stays\n"
    assert status(gateway, box)["created_from_workload_template"] == {"name": "small", "resource_version": "1"}


def test_what_a_template_decides_can_not_be_given_beside_it(client, templates):
    templates.create(workspace=WORKSPACE, name="small")
    for wrong in (openshell_pb2.SandboxSpec(environment={"A": "1"}), openshell_pb2.SandboxSpec(log_level="debug"),
                  openshell_pb2.SandboxSpec(template=openshell_pb2.SandboxTemplate(image="x"))):
        with pytest.raises(grpc.RpcError) as refused:
            client.create_from_template(workspace=WORKSPACE, workload_template="small", spec=wrong, name="never")
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "cannot be set when workload_template is set" in refused.value.details()
    with pytest.raises(grpc.RpcError) as missing:
        client.create_from_template(workspace=WORKSPACE, workload_template="nobody", name="never")
    assert missing.value.code() == grpc.StatusCode.NOT_FOUND and missing.value.details() == "sandbox template not found"


def test_templates_are_listed_by_label_and_page_and_named_once(gateway, templates):
    templates.create(workspace=WORKSPACE, name="plain")
    templates.create(workspace=WORKSPACE, name="labelled", labels={"team": "red"})
    with pytest.raises(grpc.RpcError) as taken:
        templates.create(workspace=WORKSPACE, name="plain")
    assert taken.value.code() == grpc.StatusCode.ALREADY_EXISTS and taken.value.details() == "sandbox template already exists"
    assert [one.metadata.name for one in templates.list_all(workspace=WORKSPACE, page_size=1)] == ["plain", "labelled"]
    assert gateway.cli("sandbox", "template", "list", "--names", "--label-selector", "team=red").stdout == "labelled\n"


def test_template_commands(gateway, client, templates, box):
    cli = gateway.cli
    assert cli("sandbox", "template", "list").stdout == "No sandbox templates found.\n"
    assert "Created sandbox template small" in cli("sandbox", "template", "create", "small", "--memory", "300Mi", "--env", "A=b c", "--ready-within", "30s", "--max-burst", "4").stdout
    shown = json.loads(cli("sandbox", "template", "get", "small", "-o", "json").stdout)
    assert shown["resources"] == {"memory": "300Mi"} and shown["environment"] == {"A": "b c"}
    assert shown["startup"] == {"ready_within_ms": 30000, "max_burst": 4}
    listed = json.loads(cli("sandbox", "template", "list", "-o", "json").stdout)
    assert [one["name"] for one in listed["templates"]] == ["small"] and listed["next_page_token"] == ""
    cli("sandbox", "create", "--name", box, "--template", "small", "--detach")
    assert cli("sandbox", "exec", box, "--", "sh", "-c", "echo $A").stdout == "b c\n"
    assert cli("sandbox", "create", "--template", "small", "--memory", "1G", check=False).returncode == 2
    zero = cli("sandbox", "template", "create", "zero", "--ready-within", "0s", check=False)
    assert zero.returncode == 1 and "--ready-within must be greater than zero" in zero.stderr
    assert "Deleted sandbox template small" in cli("sandbox", "template", "delete", "small").stdout
    assert "Sandbox template small not found." in cli("sandbox", "template", "delete", "small").stdout
