"""PY: the published package 0.1.5, unmodified, against our gateway: by its own discovery and by endpoint and TLS files."""

import hashlib
import os

import grpc
import openshell
import pytest
from conftest import WORKSPACE, create_ready, delete_gone


def run(client, *command, **options):
    return client.exec("shared", list(command), workspace=WORKSPACE, **options)


def test_health_needs_no_credentials_and_names_the_interface(client):
    answer = client.health()
    assert answer.version == "0.1.5"


def test_found_by_the_package_s_own_discovery(gateway, monkeypatch, sandbox):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(gateway.config))
    monkeypatch.delenv("OPENSHELL_GATEWAY", raising=False)
    with openshell.SandboxClient.from_active_cluster() as found:
        assert found.get("shared", workspace=WORKSPACE).id == sandbox.id


def test_without_a_certificate_nothing_but_health_answers(gateway, sandbox):
    tls = openshell.TlsConfig(ca_path=gateway.state / "tls" / "ca.crt")
    with openshell.SandboxClient(f"127.0.0.1:{gateway.port}", tls=tls) as stranger:
        assert stranger.health().version == "0.1.5"
        with pytest.raises(grpc.RpcError) as refused:
            stranger.get("shared", workspace=WORKSPACE)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_created_sandbox_has_id_name_workspace_and_labels(client):
    made = client.create(workspace=WORKSPACE, name="labelled", labels={"team": "red"})
    try:
        assert made.id and made.name == "labelled" and made.workspace == WORKSPACE and dict(made.labels) == {"team": "red"}
        client.wait_ready("labelled", workspace=WORKSPACE, timeout_seconds=30)
    finally:
        delete_gone(client, "labelled")


def test_exec_keeps_stdout_stderr_and_exit_code_apart(client, sandbox):
    result = run(client, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 7)


def test_exec_passes_arguments_unchanged(client, sandbox):
    words = ["it's", "a b", "$HOME", "", "*", "\\n", "ü"]
    result = run(client, "printf", "[%s]", *words)
    assert result.stdout == "".join(f"[{word}]" for word in words)


def test_exec_passes_stdin_and_ends_it(client, sandbox):
    assert run(client, "wc", "-c", stdin=b"x" * 100_000).stdout.strip() == "100000"
    assert run(client, "cat").stdout == "", "absent stdin is at its end at once"


def test_exec_environment_and_workdir(client, sandbox):
    result = run(client, "sh", "-c", "echo $COLOUR; pwd", env={"COLOUR": "deep blue"}, workdir="/tmp")
    assert result.stdout == "deep blue\n/tmp\n"


def test_exec_timeout_ends_the_whole_tree_with_124(client, sandbox):
    result = run(client, "sh", "-c", "sleep 4711 & echo started; sleep 4711", timeout_seconds=1)
    assert result.exit_code == 124
    left = run(client, "sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 471[1]' || true")
    assert left.stdout.strip() == "0"


def test_exec_carries_ten_mebibytes_of_binary_output(client, sandbox):
    command = "head -c 10485760 /dev/urandom | tee /tmp/big; exit 0"
    chunks, last = [], None
    for item in client.exec_stream("shared", ["sh", "-c", command], workspace=WORKSPACE):
        if isinstance(item, openshell.ExecChunk):
            assert item.stream == "stdout"
            chunks.append(item.data)
        else:
            last = item
    data = b"".join(chunks)
    assert len(data) == 10 * 1024 * 1024 and last.exit_code == 0
    digest = run(client, "sha256sum", "/tmp/big").stdout.split()[0]
    assert hashlib.sha256(data).hexdigest() == digest


def test_exec_of_an_unknown_program_is_127(client, sandbox):
    result = run(client, "no-such-program")
    assert result.exit_code == 127 and "not found" in result.stderr


def test_exec_refuses_a_reserved_environment_key(client, sandbox):
    with pytest.raises(openshell.GatewayError) as refused:
        run(client, "true", env={"OPENSHELL_TOKEN": "1"})
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "OPENSHELL_" in str(refused.value)


def test_list_pages_and_selects_by_label(client):
    names = [f"page-{i}" for i in range(3)]
    try:
        for name in names:
            client.create(workspace=WORKSPACE, name=name, labels={"set": "pages", "which": name})
        pages = list(client.list(workspace=WORKSPACE, page_size=2, label_selector="set=pages"))
        assert [len(page.items) for page in pages] == [2, 1]
        assert {item.name for page in pages for item in page.items} == set(names)
        assert [item.name for item in client.list_all(workspace=WORKSPACE, label_selector="which=page-1")] == ["page-1"]
    finally:
        for name in names:
            delete_gone(client, name)


def test_deleted_sandbox_is_not_found_and_deleting_it_again_is_already_absent(client):
    create_ready(client, "short-lived")
    outcome = client.delete("short-lived", workspace=WORKSPACE)
    assert outcome.outcome in (openshell.DeletionOutcome.COMPLETED, openshell.DeletionOutcome.ACCEPTED)
    client.wait_deleted("short-lived", workspace=WORKSPACE, timeout_seconds=30)
    with pytest.raises(grpc.RpcError) as missing:
        client.get("short-lived", workspace=WORKSPACE)
    assert missing.value.code() == grpc.StatusCode.NOT_FOUND
    assert client.delete("short-lived", workspace=WORKSPACE, allow_missing=True).outcome == openshell.DeletionOutcome.ALREADY_ABSENT


def test_context_manager_creates_runs_and_deletes(gateway, monkeypatch, client):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(gateway.config))
    with openshell.Sandbox(workspace=WORKSPACE, delete_on_exit=True) as session:
        assert session.exec(["echo", "hello"]).stdout == "hello\n"
        name = session.sandbox.name
    with pytest.raises(grpc.RpcError) as missing:
        client.get(name, workspace=WORKSPACE)
    assert missing.value.code() == grpc.StatusCode.NOT_FOUND


def test_the_workload_is_an_unprivileged_user_with_no_capability(client, sandbox):
    identity = run(client, "sh", "-c", "id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status").stdout.split()
    assert int(identity[0]) != 0
    facts = dict(zip(identity[1::2], identity[2::2]))
    assert set(facts["CapEff:"]) == {"0"} and set(facts["CapBnd:"]) == {"0"} and facts["NoNewPrivs:"] == "1" and facts["Seccomp:"] == "2"


def test_nothing_of_the_gateway_s_environment_reaches_the_workload(client, sandbox):
    environment = run(client, "env").stdout
    assert "OPENSHELL_STATE_DIR" not in environment and str(os.environ["OPENSHELL_BUILD_DIR"]) not in environment
