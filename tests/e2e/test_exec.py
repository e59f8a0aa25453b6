"""What an exec is: its shell and the files that it reads, its independence of main and of other execs."""

import subprocess
import threading

import pytest
from conftest import WORKSPACE, create_ready, delete_gone, wait_until
from openshell._proto import openshell_pb2 as pb


@pytest.fixture(scope="module")
def box(client):
    create_ready(client, "shells")
    yield "shells"
    delete_gone(client, "shells")


def call(client, box, *command, **fields):
    request = pb.ExecSandboxRequest(sandbox=box, command=list(command), **fields)
    request.workspace_scope.workspace = WORKSPACE
    out, code = b"", None
    for event in client._stub.ExecSandbox(request, timeout=20):
        out += event.stdout.data
        if event.HasField("exit"):
            code = event.exit.exit_code
    return out.decode(), code


def place(client, box, name):
    client.exec(box, ["sh", "-c", f"echo 'echo from {name}' > /sandbox/{name}"], workspace=WORKSPACE)


def test_cx_11_commands_run_through_a_login_shell(client, box):
    """CX-10 CX-11"""
    assert call(client, box, "shopt", "login_shell") == ("login_shell    \ton\n", 0)


def test_cx_12_the_first_profile_alone_is_read(client, box):
    """CX-12 CX-13 CX-14 CX-16"""
    names = [".bash_profile", ".bash_login", ".profile"]
    try:
        for name in [*names, ".bashrc"]:
            place(client, box, name)
        for name in names:
            assert call(client, box, "true") == (f"from {name}\n", 0)
            assert call(client, box, "true", no_login_shell=True) == ("", 0), "none of them"
            client.exec(box, ["rm", f"/sandbox/{name}"], workspace=WORKSPACE)
        assert call(client, box, "true") == ("", 0), ".bashrc only if a profile reads it"
        assert call(client, box, "shopt", "login_shell", no_login_shell=True) == ("login_shell    \toff\n", 1)
        assert call(client, box, "eval", "tr '\\0' ' ' < /proc/$$/cmdline; :", no_login_shell=True)[0].startswith("/bin/bash -c ")
    finally:
        client.exec(box, ["bash", "-c", "rm -f /sandbox/.bash*"], workspace=WORKSPACE)


def test_cx_17_bash_env_is_read_by_a_shell_that_is_no_login_shell(client):
    """CX-17"""
    create_ready(client, "bashenv", spec=pb.SandboxSpec(environment={"BASH_ENV": "/sandbox/env"}))
    try:
        client.exec("bashenv", ["sh", "-c", "echo 'echo from BASH_ENV' > /sandbox/env"], workspace=WORKSPACE)
        assert call(client, "bashenv", "true", no_login_shell=True) == ("from BASH_ENV\n", 0)
    finally:
        delete_gone(client, "bashenv")


def test_cx_34_exec_is_served_after_main_has_ended(gateway, client):
    """CX-32 CX-34 CX-36 CX-37: a kept sandbox; what main left behind lives on until the sandbox is deleted."""
    gateway.cli("sandbox", "create", "--name", "ended", "--detach", "--", "sh", "-c", "setsid sleep 4815 & exit 3")
    try:
        wait_until(lambda: client.get("ended", workspace=WORKSPACE).phase == pb.SANDBOX_PHASE_ERROR, what="the end of main")
        assert '"exit_code":3' in gateway.cli("sandbox", "get", "ended", "-o", "json").stdout.replace(" ", "")
        assert call(client, "ended", "echo", "here") == ("here\n", 0)
        assert call(client, "ended", "bash", "-c", "exec 3<>/dev/tcp/198.51.100.7/80")[1] != 0, "under the same policy"
        assert subprocess.run(["pgrep", "-fc", "sleep 4815"], capture_output=True, text=True).stdout.strip() == "1"
    finally:
        delete_gone(client, "ended")
    wait_until(lambda: subprocess.run(["pgrep", "-fc", "sleep 4815"], capture_output=True, text=True).stdout.strip() == "0", what="the end of what it left")


def test_rt_30_a_stalled_reader_holds_up_nobody_else(client, box):
    """RT-30: one exec writes for ever and is not read; another goes on and ends."""
    request = pb.ExecSandboxRequest(sandbox=box, command=["yes"])
    request.workspace_scope.workspace = WORKSPACE
    stalled = client._stub.ExecSandbox(request, timeout=60)
    next(iter(stalled))
    try:
        for _ in range(5):
            assert call(client, box, "seq", "1", "20000")[0].endswith("\n20000\n")
    finally:
        stalled.cancel()


def test_interactive_exec_ends_with_the_exit_event_while_its_input_is_open(client, box):
    """B21 at the interface: the caller neither sends nor ends its stream."""
    def start(*command):
        first = pb.ExecSandboxInput()
        first.start.sandbox = box
        first.start.workspace_scope.workspace = WORKSPACE
        first.start.command.extend(command)
        return first

    def exchange(*command, more=()):
        done = threading.Event()

        def inputs():
            yield start(*command)
            yield from more
            done.wait(30)

        try:
            events = list(client._stub.ExecSandboxInteractive(inputs(), timeout=20))
        finally:
            done.set()
        return b"".join(event.stdout.data for event in events), events[-1].exit.exit_code

    assert exchange("echo", "hi") == (b"hi\n", 0)
    assert exchange("sh", "-c", "exit 9") == (b"", 9)
    assert exchange("head", "-n1", more=[pb.ExecSandboxInput(stdin=b"one\ntwo\n")]) == (b"one\n", 0)
    resize = pb.ExecSandboxInput()
    resize.resize.cols, resize.resize.rows = 2**32 - 1, 2**32 - 1
    assert exchange("echo", "no terminal", more=[resize]) == (b"no terminal\n", 0), "without a terminal it means nothing"
