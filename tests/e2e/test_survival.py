"""A gateway that dies, by force or in order, finds its running sandboxes again; a dead supervisor lets no traffic pass."""

import itertools
import os
import pathlib
import signal
import socket

import pytest
from conftest import WORKSPACE, Gateway, create_ready, delete_gone, wait_until


NUMBERS = itertools.count()  # short: the paths of sockets have 107 bytes


@pytest.fixture
def keeping_gateway(scratch):
    folder = scratch / f"s{next(NUMBERS)}"
    folder.mkdir(mode=0o711)
    made = Gateway(folder, driver_options="keep_on_shutdown = true")
    made.start()
    yield made
    if made.process.poll() is not None:
        made.start()
    with made.client() as client:
        for name in ("kept",):
            delete_gone(client, name)
    made.end()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_restarted_gateway_finds_its_running_sandbox(keeping_gateway, how):
    gateway = keeping_gateway
    with gateway.client() as client:
        before = create_ready(client, "kept")
        client.exec("kept", ["sh", "-c", "echo survives > /tmp/mark; nohup sleep 4712 >/dev/null 2>&1 &"], workspace=WORKSPACE)
    gateway.end(how)
    gateway.start()
    with gateway.client() as client:
        after = client.wait_ready("kept", workspace=WORKSPACE, timeout_seconds=40)
        assert after.id == before.id

        def answer():
            try:
                return client.exec("kept", ["sh", "-c", "cat /tmp/mark; grep -l 4712 /proc/[0-9]*/cmdline | wc -l"], workspace=WORKSPACE)
            except Exception:  # the supervisor's session comes back with its own backoff
                return None

        result = wait_until(answer, 40, "exec after the restart")
        mark, running = result.stdout.split()
        assert mark == "survives" and int(running) >= 1, "the same processes, not a new start"


def test_the_gateway_ends_in_order_after_many_execs(keeping_gateway):
    """The timers of execs that ended long ago must not hold up the end: 64 of them once made it wait for itself."""
    gateway = keeping_gateway
    with gateway.client() as client:
        create_ready(client, "kept")
        for _ in range(100):
            client.exec("kept", ["true"], workspace=WORKSPACE, no_login_shell=True, timeout_seconds=20)
    gateway.end(signal.SIGTERM)
    assert gateway.process.returncode == 0


def supervisors(sandbox_id):
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"openshell-supervisor" in words[0] and any(sandbox_id.encode() in word for word in words):
            found.append(int(process.name))
    return found


def test_no_traffic_passes_while_the_supervisor_is_dead(keeping_gateway):
    """FB: the runtime freezes with the channel, and ends after its recovery window; nothing is ever let through."""
    gateway = keeping_gateway
    with gateway.client() as client:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(1)
        port = listener.getsockname()[1]
        policy = gateway.root / "open.yaml"
        policy.write_text(f"version: 1\nnetwork_policies:\n  open:\n    name: open\n    endpoints: [{{host: host.openshell.internal, port: {port}}}]\n"
                          "    binaries: [{path: '**/bash'}]\n")
        gateway.cli("gateway", "add", gateway.endpoint, "--local", "--name", gateway.root.name)
        gateway.cli("sandbox", "create", "--name", "kept", "--policy", str(policy), "--detach")
        reference = client.wait_ready("kept", workspace=WORKSPACE, timeout_seconds=30)
        script = (f"while true; do (exec 3<>/dev/tcp/host.openshell.internal/{port}) 2>/dev/null && echo passed >> /sandbox/passed;"
                  " echo tick >> /sandbox/ticks; sleep 0.05; done")
        client.exec("kept", ["bash", "-c", f"nohup bash -c '{script}' >/dev/null 2>&1 &"], workspace=WORKSPACE)
        workload = next(gateway.state.glob("process-driver/sandboxes/*/workload/workspace"))
        ticks = workload / "ticks"
        passed = workload / "passed"
        listener.accept()[0].close()
        wait_until(lambda: passed.exists() and passed.stat().st_size > 0, what="traffic while the supervisor lives")
        (pid,) = wait_until(lambda: supervisors(reference.id), what="the supervisor's process")
        os.kill(pid, signal.SIGKILL)

        wait_until(lambda: states_of(f"/dev/tcp/host.openshell.internal/{port}") == {"T"}, 10, "the freeze of the workload")
        before = passed.stat().st_size, ticks.stat().st_size
        drain(listener)  # what was opened before the kill
        with pytest.raises(TimeoutError):
            listener.accept()
        assert (passed.stat().st_size, ticks.stat().st_size) == before
        listener.close()


def states_of(word):
    """The states (proc_pid_stat(5)) of all processes with `word` in their command line."""
    found = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (process / "cmdline").read_bytes():
                found.add((process / "stat").read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue
    return found


def drain(listener):
    listener.setblocking(False)
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            break
    listener.settimeout(1)
