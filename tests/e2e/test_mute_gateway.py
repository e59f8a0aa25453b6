"""A gateway that accepts and never answers, and one that has no descriptor left: sandboxes go on, and all is well once it is."""

import os
import pathlib
import resource
import signal
import time

import grpc
import pytest
from conftest import WORKSPACE, create_ready, delete_gone, on_this_machine, running_gateway, wait_until
from openshell._proto import openshell_pb2

NAME = "mute"


@pytest.fixture(scope="module")
def mute(scratch):
    """A gateway of its own with one sandbox that counts in a file, and that file."""
    with running_gateway(scratch, "mute") as gateway:
        with gateway.client(timeout=20) as client:
            create_ready(client, NAME, spec=openshell_pb2.SandboxSpec(command=["sh", "-c", "while true; do echo tick >> /sandbox/ticks; sleep 0.1; done"]))
        ticks = next(gateway.state.glob("process-driver/sandboxes/*/workload/workspace")) / "ticks"
        wait_until(ticks.exists, what="the first tick")
        yield gateway, ticks
        with gateway.client(timeout=20) as client:
            delete_gone(client, NAME)


def goes_on(ticks):
    before = ticks.stat().st_size
    wait_until(lambda: ticks.stat().st_size > before, on_this_machine(5), "the sandbox going on")


def answers_again(gateway):
    def answer():
        try:
            with gateway.client(timeout=10) as client:
                return client.exec(NAME, ["echo", "works"], workspace=WORKSPACE, no_login_shell=True, timeout_seconds=10).stdout
        except grpc.RpcError:
            return None

    assert wait_until(answer, on_this_machine(40), "exec") == "works\n"


def test_a_gateway_that_accepts_and_never_answers(mute):
    gateway, ticks = mute
    os.kill(gateway.process.pid, signal.SIGSTOP)
    try:
        with gateway.client(timeout=2) as client, pytest.raises(grpc.RpcError) as said:
            client.get(NAME, workspace=WORKSPACE)
        assert said.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
        goes_on(ticks)
    finally:
        os.kill(gateway.process.pid, signal.SIGCONT)
    answers_again(gateway)


def cpu_seconds(pid):
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def test_a_gateway_without_a_descriptor_left(mute):
    """It neither ends nor spins, and takes connections again as soon as it can."""
    gateway, ticks = mute
    pid = gateway.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))  # those numbers are taken: not one more can be opened
    try:
        with gateway.client(timeout=2) as client, pytest.raises(grpc.RpcError):
            client.get(NAME, workspace=WORKSPACE)
        used, begin = cpu_seconds(pid), time.monotonic()
        goes_on(ticks)
        wait_until(lambda: time.monotonic() - begin > 1, what="a second to measure")
        assert cpu_seconds(pid) - used < 0.5 * (time.monotonic() - begin), "it does not spin"
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert gateway.process.poll() is None
    answers_again(gateway)
