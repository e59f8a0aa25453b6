"""What the published client relies on when it runs commands: lines 15 to 18 of the list of server behaviours, one test each and more."""

import time

import grpc
import openshell
import pytest
from conftest import WORKSPACE, wait_until
from openshell._proto import openshell_pb2

BYTES = bytes(range(256)) * 300


def run(client, *command, **options):
    return client.exec("shared", list(command), workspace=WORKSPACE, **options)


def events(client, *command):
    """The payload of each event of the call, in order, past the client's own view of it."""
    request = openshell_pb2.ExecSandboxRequest(sandbox="shared", command=list(command))
    request.workspace_scope.workspace = WORKSPACE
    return [event.WhichOneof("payload") for event in client._stub.ExecSandbox(request, timeout=20)]


@pytest.mark.parametrize("script,code", [("exit 0", 0), ("echo out; echo err >&2; exit 7", 7), ("seq 1 100000", 0), ("kill -KILL $$", 137)])
def test_15_any_number_of_output_events_then_exactly_one_exit(client, sandbox, script, code):
    found = events(client, "sh", "-c", script)
    assert found.count("exit") == 1 and found[-1] == "exit" and set(found) <= {"stdout", "stderr", "exit"}
    assert run(client, "sh", "-c", script).exit_code == code


def test_15_a_stream_whose_sandbox_dies_is_an_error_and_no_exit(client):
    from conftest import create_ready, delete_gone
    create_ready(client, "cut-off")
    stream = client.exec_stream("cut-off", ["sh", "-c", "echo started; sleep 4720"], workspace=WORKSPACE)
    assert next(stream).data == b"started\n"
    delete_gone(client, "cut-off")
    try:
        last = list(stream)[-1]
    except (grpc.RpcError, openshell.SandboxError):
        return
    assert last.exit_code != 0, "what was ended by force did not succeed"


def test_16_stdout_and_stderr_are_kept_apart_with_their_bytes_unchanged(client, sandbox):
    script = "import sys; b = bytes(range(256)) * 300; sys.stdout.buffer.write(b); sys.stderr.buffer.write(b[::-1])"
    pieces = {"stdout": b"", "stderr": b""}
    for item in client.exec_stream("shared", ["python3", "-c", script], workspace=WORKSPACE):
        if isinstance(item, openshell.ExecChunk):
            pieces[item.stream] += item.data
    assert pieces["stdout"] == BYTES and pieces["stderr"] == BYTES[::-1]
    assert run(client, "printf", r"a\xffb").stdout == "a\ufffdb", "what is no UTF-8 is replaced by the client, not refused by us"


def alive(client, needle):
    script = f"for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -qx '{needle} ' && echo $p; done; true"
    return run(client, "bash", "-c", script).stdout.split()


def test_17_the_exit_event_124_comes_before_the_client_s_own_deadline(gateway, sandbox):
    with gateway.client(timeout=2) as hurried:  # its deadline is then the command's limit and ten seconds
        begin = time.monotonic()
        result = hurried.exec("shared", ["sh", "-c", "trap '' TERM; echo out; sleep 4721"], workspace=WORKSPACE, timeout_seconds=3)
        assert (result.exit_code, result.stdout) == (124, "out\n")
        assert 3 <= time.monotonic() - begin < 9


def test_17_a_limit_that_is_not_reached_changes_nothing(client, sandbox):
    assert run(client, "sh", "-c", "sleep 1; exit 5", timeout_seconds=10).exit_code == 5


def test_17_without_a_limit_the_client_cuts_and_the_process_is_killed(gateway, client, sandbox):
    """The cut is the client's, after its own time (30 s by default; 3 s here): what ran is gone with its children."""
    with gateway.client(timeout=3) as impatient:
        begin = time.monotonic()
        with pytest.raises(grpc.RpcError) as cut:
            impatient.exec("shared", ["sh", "-c", "trap '' TERM HUP; (setsid sleep 4722 &); sleep 4722"], workspace=WORKSPACE)
        assert cut.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert 2.5 <= time.monotonic() - begin < 6
    wait_until(lambda: not alive(client, "sleep 4722"), 5, "the end of what the client no longer waits for")


def test_17_thirty_seconds_are_the_published_default(gateway):
    with openshell.SandboxClient(f"127.0.0.1:{gateway.port}", tls=gateway.tls()) as plain:
        assert plain._timeout == 30.0


def test_18_stdin_environment_workdir_and_shell_are_what_was_asked_for(client, sandbox):
    assert run(client, "cat", stdin=b"in").stdout == "in"
    assert run(client, "cat").stdout == ""
    assert run(client, "sh", "-c", "echo $A-$B", env={"A": "1", "B": "two words"}).stdout == "1-two words\n"
    assert run(client, "pwd", workdir="/tmp").stdout == "/tmp\n"
    assert run(client, "pwd").stdout == "/sandbox\n", "empty: the sandbox's own"
    missing = run(client, "pwd", workdir="/no/such/place")
    assert missing.exit_code != 0 and missing.stderr


def test_18_no_login_shell_reads_no_profile(client, sandbox):
    run(client, "sh", "-c", "echo 'export SAID=profile' > /sandbox/.bash_profile")
    try:
        assert run(client, "sh", "-c", "echo $SAID").stdout == "profile\n"
        assert run(client, "sh", "-c", "echo $SAID", no_login_shell=True).stdout == "\n"
    finally:
        run(client, "rm", "-f", "/sandbox/.bash_profile")
