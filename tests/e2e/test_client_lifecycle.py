"""PY: creation, waiting, stop and start, deletion and the context manager of the published package; numbers are lines of what it relies on."""

import concurrent.futures
import copy
import pickle
import signal
import time

import grpc
import openshell
import pytest
from conftest import WORKSPACE, Gateway, create_ready, delete_gone, wait_until
from openshell._proto import openshell_pb2

PHASE = openshell_pb2.SandboxPhase


def test_1_2_the_emptiest_create_gets_a_name_an_id_and_a_workspace(client):
    made = client.create(workspace=WORKSPACE)
    try:
        assert made.id and made.name and made.workspace == WORKSPACE and dict(made.labels) == {}
        assert made.created_from_workload_template is None and dict(made.service_urls) == {}
        assert client.wait_ready(made.name, workspace=WORKSPACE, timeout_seconds=30).id == made.id
    finally:
        delete_gone(client, made.name)


def test_6_creating_stopping_and_starting_answer_before_the_work_is_done(client):
    """GW-28: The client gives each call 30 s and never repeats it: an answer that waited for a boot would be a lost sandbox."""
    def timed(call, *arguments, **options):
        begun = time.monotonic()
        result = call(*arguments, **options)
        assert time.monotonic() - begun < 15, "half of what the client waits"
        return result

    try:
        assert timed(client.create, workspace=WORKSPACE, name="prompt").phase in (PHASE.SANDBOX_PHASE_PROVISIONING, PHASE.SANDBOX_PHASE_STARTING)
        client.wait_ready("prompt", workspace=WORKSPACE, timeout_seconds=30)
        timed(client.stop, "prompt", workspace=WORKSPACE)
        client.wait_stopped("prompt", workspace=WORKSPACE, timeout_seconds=30)
        timed(client.start, "prompt", workspace=WORKSPACE)
        client.wait_ready("prompt", workspace=WORKSPACE, timeout_seconds=30)
    finally:
        delete_gone(client, "prompt")


def test_8_9_24_stop_and_start_say_the_new_phase_and_the_waits_see_it(client):
    try:
        made = create_ready(client, "restarted")
        client.exec("restarted", ["sh", "-c", "echo kept > /sandbox/file"], workspace=WORKSPACE)
        stopping = client.stop("restarted", workspace=WORKSPACE)
        assert stopping.id == made.id and stopping.phase in (PHASE.SANDBOX_PHASE_STOPPING, PHASE.SANDBOX_PHASE_STOPPED)
        assert client.wait_stopped("restarted", workspace=WORKSPACE, timeout_seconds=30).phase == PHASE.SANDBOX_PHASE_STOPPED
        with pytest.raises(openshell.SandboxError, match="stopped"):
            client.wait_ready("restarted", workspace=WORKSPACE, timeout_seconds=30)
        starting = client.start("restarted", workspace=WORKSPACE)
        assert starting.phase == PHASE.SANDBOX_PHASE_STARTING, "from its own answer on, so that a wait does not see STOPPED"
        ready = client.wait_ready("restarted", workspace=WORKSPACE, timeout_seconds=30)
        assert ready.id == made.id and ready.phase == PHASE.SANDBOX_PHASE_READY
        assert client.exec("restarted", ["cat", "/sandbox/file"], workspace=WORKSPACE).stdout == "kept\n"
    finally:
        delete_gone(client, "restarted")


def test_8_no_error_is_seen_on_the_way_to_ready(client):
    """wait_ready ends with an error at the first ERROR: a passing one would fail a good sandbox. Looks far more often than the client does."""
    seen = []
    try:
        client.create(workspace=WORKSPACE, name="smooth")
        for start in (lambda: None, lambda: client.stop("smooth", workspace=WORKSPACE)):
            start()
            if seen:
                client.wait_stopped("smooth", workspace=WORKSPACE, timeout_seconds=30)
                client.start("smooth", workspace=WORKSPACE)
            end = time.monotonic() + 30
            while time.monotonic() < end:
                seen.append(client.get("smooth", workspace=WORKSPACE).phase)
                if seen[-1] == PHASE.SANDBOX_PHASE_READY:
                    break
                time.sleep(0.02)
            assert seen[-1] == PHASE.SANDBOX_PHASE_READY
        names = {PHASE.Name(each) for each in seen}
        assert names <= {"SANDBOX_PHASE_PROVISIONING", "SANDBOX_PHASE_STARTING", "SANDBOX_PHASE_READY"}, names
    finally:
        delete_gone(client, "smooth")


def test_8_wait_ready_lasts_through_a_restart_of_the_gateway(scratch):
    """The poll meets UNAVAILABLE while nothing listens, which the client raises; a caller that repeats the wait gets its sandbox."""
    folder = scratch / "restart"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder)
    gateway.start()
    try:
        with gateway.client() as client:
            made = client.create(workspace=WORKSPACE, name="through")
            gateway.end(signal.SIGKILL)
            with pytest.raises(grpc.RpcError) as gone:
                client.wait_ready("through", workspace=WORKSPACE, timeout_seconds=30)
            assert gone.value.code() == grpc.StatusCode.UNAVAILABLE
            gateway.start()

            def ready():
                try:
                    return client.wait_ready("through", workspace=WORKSPACE, timeout_seconds=40)
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.UNAVAILABLE, "the channel's own pause before it tries again"
                    return None

            assert wait_until(ready, 60, "a sandbox after the gateway's restart").id == made.id
            assert client.exec("through", ["echo", "alive"], workspace=WORKSPACE).stdout == "alive\n"
            delete_gone(client, "through")
    finally:
        gateway.end()


def test_10_11_deletion_names_the_sandbox_and_another_of_that_name_is_not_it(client):
    first = create_ready(client, "reused")
    result = client.delete("reused", workspace=WORKSPACE)
    assert result.outcome in (openshell.DeletionOutcome.COMPLETED, openshell.DeletionOutcome.ACCEPTED) and result.sandbox_id == first.id
    client.wait_deleted("reused", workspace=WORKSPACE, timeout_seconds=30, expected_sandbox_id=first.id)
    second = client.create(workspace=WORKSPACE, name="reused")
    try:
        assert second.id != first.id
        client.wait_deleted("reused", workspace=WORKSPACE, timeout_seconds=5, expected_sandbox_id=first.id)
        client.wait_ready("reused", workspace=WORKSPACE, timeout_seconds=30)
    finally:
        delete_gone(client, "reused")
    missing = client.delete("reused", workspace=WORKSPACE, allow_missing=True)
    assert missing.outcome == openshell.DeletionOutcome.ALREADY_ABSENT and missing.sandbox_id is None
    with pytest.raises(openshell.GatewayError) as refused:
        client.delete("reused", workspace=WORKSPACE)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_10_a_deletion_during_creation_wins(client):
    for _ in range(3):
        made = client.create(workspace=WORKSPACE, name="hasty")
        assert client.delete("hasty", workspace=WORKSPACE).sandbox_id == made.id
        client.wait_deleted("hasty", workspace=WORKSPACE, timeout_seconds=30, expected_sandbox_id=made.id)


def test_sessions_carry_a_sandbox_from_create_to_delete(client):
    session = client.create_session(workspace=WORKSPACE, name="session", labels={"a": "b"})
    try:
        client.wait_ready("session", workspace=WORKSPACE, timeout_seconds=30)
        assert session.id == session.sandbox.id
        assert session.exec(["printf", "x"]).stdout == "x"
        again = client.get_session("session", workspace=WORKSPACE)
        assert again.id == session.id and again.exec(["id", "-un"]).exit_code == 0
        assert session.stop().phase in (PHASE.SANDBOX_PHASE_STOPPING, PHASE.SANDBOX_PHASE_STOPPED)
        client.wait_stopped("session", workspace=WORKSPACE, timeout_seconds=30)
        assert session.start().phase == PHASE.SANDBOX_PHASE_STARTING
        client.wait_ready("session", workspace=WORKSPACE, timeout_seconds=30)
        assert session.delete().sandbox_id == session.id
        client.wait_deleted("session", workspace=WORKSPACE, timeout_seconds=30)
        assert session.delete(allow_missing=True).outcome == openshell.DeletionOutcome.ALREADY_ABSENT
    finally:
        delete_gone(client, "session")


@pytest.fixture
def registered(gateway, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(gateway.config))
    monkeypatch.delenv("OPENSHELL_GATEWAY", raising=False)


def test_12_the_context_manager_is_content_when_its_sandbox_is_already_gone(registered, client):
    with openshell.Sandbox(workspace=WORKSPACE, name="vanishing", labels={"k": "v"}) as session:
        assert dict(session.sandbox.labels) == {"k": "v"} and session.sandbox.phase == PHASE.SANDBOX_PHASE_READY
        delete_gone(client, "vanishing")


def test_the_context_manager_attaches_to_what_exists_and_leaves_it(registered, client):
    made = create_ready(client, "standing")
    try:
        with openshell.Sandbox(workspace=WORKSPACE, sandbox="standing", delete_on_exit=False) as session:
            assert session.id == made.id
            assert session.exec(["cat"], stdin=b"given").stdout == "given"
        with openshell.Sandbox(workspace=WORKSPACE, sandbox=made, delete_on_exit=False) as session:
            assert session.exec(["sh", "-c", "exit 3"]).exit_code == 3
        assert client.get("standing", workspace=WORKSPACE).phase == PHASE.SANDBOX_PHASE_READY
    finally:
        delete_gone(client, "standing")


def test_22_23_status_fields_are_present_or_absent_as_they_mean(client):
    made = create_ready(client, "fields")
    try:
        seen = client.get("fields", workspace=WORKSPACE)
        assert seen.id == made.id and seen.status.exit_code is None and seen.status.restart_count == 0
        assert seen.status.next_restart_at_ms is None
        assert seen.host_key_fingerprint is None or seen.host_key_fingerprint
        conditions = {each.type: each for each in seen.conditions}
        assert conditions["Ready"].status == "True" and conditions["Ready"].reason
        now = time.time() * 1000
        for each in seen.conditions:
            assert each.status in ("True", "False", "Unknown")
            assert each.transition_time_ms is None or abs(now - each.transition_time_ms) < 120_000
        assert seen.current_policy_version >= 1
        assert pickle.loads(pickle.dumps(seen)) == copy.deepcopy(seen) == seen
    finally:
        delete_gone(client, "fields")


def test_many_sandboxes_are_made_at_once(client):
    names = [f"many-{i}" for i in range(6)]
    try:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            made = list(pool.map(lambda name: create_ready(client, name), names))
            assert len({each.id for each in made}) == 6
            outputs = list(pool.map(lambda name: client.exec(name, ["sh", "-c", "hostname; echo done"], workspace=WORKSPACE).stdout, names))
        assert all(each.endswith("done\n") for each in outputs)
    finally:
        for name in names:
            client.delete(name, workspace=WORKSPACE, allow_missing=True)
        for name in names:
            client.wait_deleted(name, workspace=WORKSPACE, timeout_seconds=40)
