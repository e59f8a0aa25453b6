"""The kill matrix: supervisor, runtime and gateway die, as by kill -9, at each step of create, policy change, exec, stop and delete.

A row names a fault point (observability/fault_point.hpp) and what a user finds afterwards: the sandbox is in its documented phase, its newest
policy revision is loaded, exec works, and deleting it leaves nothing behind: no process, mount, cgroup or file.
"""

import concurrent.futures
import os
import pathlib
import random
import signal
import threading
import time

import grpc
import pytest
from conftest import WORKSPACE, on_this_machine, running_gateway, wait_until
from openshell._proto import datamodel_pb2, openshell_pb2
from test_limits import runtime_of

SCOPE = datamodel_pb2.WorkspaceSelector(workspace=WORKSPACE)
READY, STOPPED, ERROR = openshell_pb2.SANDBOX_PHASE_READY, openshell_pb2.SANDBOX_PHASE_STOPPED, openshell_pb2.SANDBOX_PHASE_ERROR
LOADED, SUPERSEDED = openshell_pb2.POLICY_STATUS_LOADED, openshell_pb2.POLICY_STATUS_SUPERSEDED
PROGRAMS = {"supervisor": b"openshell-supervisor", "runtime": b"openshell-sandbox\0"}


class Host:
    """One gateway whose sandboxes outlive it, and what a user does there: again where it was cut off, until it stands."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.root = gateway.root
        self.connect()

    def connect(self):
        self.client = self.gateway.client(timeout=20)
        self.stub = self.client._stub

    def restart(self, fault=None, how=signal.SIGTERM):
        self.client.close()
        self.gateway.end(how)
        self.gateway.environment.pop("OPENSHELL_FAULT", None)
        if fault:
            self.gateway.environment["OPENSHELL_FAULT"] = fault
        self.gateway.start()
        self.connect()

    def arm(self, who, plan):
        """For the next start of one supervisor or runtime, and for no other."""
        self.plan(who).write_text(plan)

    def plan(self, who):
        return self.root / f"fault.{who}"

    def create(self, name):
        return self.client.create(workspace=WORKSPACE, name=name, spec=openshell_pb2.SandboxSpec(command=["sleep", "4721"]))

    def phase(self, name):
        """None: there is no such sandbox."""
        try:
            return self.client.get(name, workspace=WORKSPACE).status.phase
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                return None
            raise

    def wait_phase(self, name, phase, seconds=45):
        wait_until(lambda: self.phase(name) == phase, on_this_machine(seconds), f"{name} in phase {phase}")

    def exec_works(self, name):
        def answer():
            try:
                return self.client.exec(name, ["sh", "-c", "echo works; env | grep -c OPENSHELL_FAULT"], workspace=WORKSPACE, no_login_shell=True, timeout_seconds=10).stdout
            except grpc.RpcError:
                return None  # its session comes back with its own backoff

        assert wait_until(answer, on_this_machine(30), f"exec in {name}") == "works\n0\n", "and a workload sees no plan"

    def change_policy(self, name, turn):
        current = self.stub.GetSandboxPolicyStatus(openshell_pb2.GetSandboxPolicyStatusRequest(sandbox=name, workspace_scope=SCOPE)).revision.policy
        rule = current.network_policies["turn"]
        rule.Clear()
        rule.name = "turn"
        rule.endpoints.add(host=f"turn{turn}.test", port=443)
        rule.binaries.add(path="/usr/bin/curl")
        request = openshell_pb2.UpdateConfigRequest(sandbox=name, workspace_scope=SCOPE, policy=current)
        return self.stub.UpdateConfig(request, timeout=10).version

    def revisions(self, name):
        """All, oldest first."""
        found, token = [], ""
        while True:
            page = self.stub.ListSandboxPolicies(openshell_pb2.ListSandboxPoliciesRequest(sandbox=name, workspace_scope=SCOPE, page_size=100, page_token=token))
            found += page.revisions
            token = page.next_page_token
            if not token:
                return sorted(found, key=lambda one: one.version)

    def settled(self, name):
        states = [one.status for one in self.revisions(name)]
        return bool(states) and states[-1] == LOADED and set(states[:-1]) <= {SUPERSEDED}

    def wait_settled(self, name):
        try:
            wait_until(lambda: self.settled(name), on_this_machine(40), "the newest revision LOADED, all others SUPERSEDED")
        except AssertionError as error:
            raise AssertionError(f"{name}: {[(one.version, one.status, one.load_error) for one in self.revisions(name)]}") from error
        newest = self.revisions(name)[-1].version
        assert self.client.get(name, workspace=WORKSPACE).status.current_policy_version == newest

    def delete(self, name):
        self.client.delete(name, workspace=WORKSPACE, allow_missing=True)
        wait_until(lambda: self.phase(name) is None, on_this_machine(30), f"the end of {name}")

    def nothing_left(self, sandbox_id):
        wait_until(lambda: not self.leftovers(sandbox_id), on_this_machine(10), f"nothing of {sandbox_id} but {self.leftovers(sandbox_id)}")

    def leftovers(self, sandbox_id):
        found = [str(path) for folder in (self.gateway.state, self.gateway.run) for path in folder.rglob(f"*{sandbox_id}*")]
        found += [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/*/*{sandbox_id}*")]
        found += [line for line in pathlib.Path("/proc/mounts").read_text().splitlines() if sandbox_id in line]
        for process in pathlib.Path("/proc").glob("[0-9]*"):  # a namespace lives as long as its processes
            try:
                words, cgroup = (process / "cmdline").read_bytes(), (process / "cgroup").read_text()
            except OSError:
                continue
            if sandbox_id.encode() in words or sandbox_id in cgroup:
                found.append(f"process {process.name}: {words!r}")
        return found

    def as_it_should_be(self, name, phase=READY):
        """The end of each row: phase, revisions, exec, and a delete that leaves nothing."""
        self.wait_phase(name, phase)
        sandbox_id = self.client.get(name, workspace=WORKSPACE).id
        if phase == STOPPED:
            self.client.start(name, workspace=WORKSPACE)
            self.wait_phase(name, READY)
        self.exec_works(name)
        self.wait_settled(name)
        self.delete(name)
        self.nothing_left(sandbox_id)


@pytest.fixture(scope="module")
def host(scratch):
    with running_gateway(scratch, "k", driver_options="keep_on_shutdown = true") as gateway:
        gateway.environment["OPENSHELL_FAULT_SUPERVISOR"] = f"@{gateway.root}/fault.supervisor"
        gateway.environment["OPENSHELL_FAULT_SANDBOX"] = f"@{gateway.root}/fault.runtime"
        made = Host(gateway)
        made.restart()
        yield made
        if gateway.process.poll() is not None:
            made.restart()
        for sandbox in made.client.list_all(workspace=WORKSPACE):
            made.delete(sandbox.name)
        made.client.close()


# ---- supervisor and runtime: the gateway lives. Each row has a sandbox of its own, and all of one operation go at once.


def policy_change(host, name):
    host.wait_settled(name)
    host.change_policy(name, 1)


def run_exec(host, name):
    with pytest.raises(grpc.RpcError):
        host.client.exec(name, ["sh", "-c", "sleep 30"], workspace=WORKSPACE, no_login_shell=True, timeout_seconds=30)


STEPS = {
    ("supervisor", "create"): [
        "gateway.ReportSandboxConfiguration.begin", "gateway.ReportSandboxConfiguration.end", "gateway.GetSandboxConfig.end",
        "gateway.GetSandboxProviderEnvironment.end", "gateway.UpdateConfig.begin", "gateway.UpdateConfig.end", "boundary.discover_policy.end",
        "boundary.attach.begin", "boundary.attach.end", "boundary.confirm.begin", "boundary.confirm.end", "boundary.start_agent.begin",
        "boundary.start_agent.end", "gateway.ReportPolicyStatus.begin", "gateway.ReportPolicyStatus.end",
    ],
    ("supervisor", "policy"): ["policy.publish.begin", "policy.publish.end", "gateway.ReportPolicyStatus.begin@2", "gateway.ReportPolicyStatus.end@2"],
    ("supervisor", "exec"): ["boundary.exec.begin", "boundary.exec.end"],
    ("supervisor", "stop"): ["boundary.terminate_boundary.begin", "boundary.terminate_boundary.end"],
    ("supervisor", "delete"): ["boundary.terminate_boundary.begin", "boundary.terminate_boundary.end"],
    ("runtime", "create"): [
        "runtime.discover_policy.begin", "runtime.discover_policy.answer", "runtime.attach.begin", "runtime.attach.answer",
        "runtime.confirm.begin", "runtime.confirm.answer", "runtime.start_agent.begin", "runtime.start_agent.answer",
    ],
    ("runtime", "exec"): ["runtime.exec.begin", "runtime.exec.answer"],
    ("runtime", "stop"): ["runtime.terminate_boundary.begin", "runtime.terminate_boundary.answer"],
    ("runtime", "delete"): ["runtime.terminate_boundary.begin", "runtime.terminate_boundary.answer"],
}


@pytest.mark.parametrize("who,operation", STEPS)
def test_a_killed_supervisor_or_runtime(host, who, operation):
    """FB, RT: whichever of the two dies, and wherever."""
    rows = {}
    for number, point in enumerate(STEPS[who, operation]):
        name = f"{who[0]}-{operation}-{number}"
        place, _, passage = point.partition("@")
        host.arm(who, f"{place}=kill@{passage or 1}")
        host.create(name)
        assert not host.plan(who).exists(), "taken by the start"
        rows[name] = point

    def row(name):
        sandbox_id = host.client.get(name, workspace=WORKSPACE).id
        if operation != "create":
            host.wait_phase(name, READY)
        first = set(runtime_of(sandbox_id, PROGRAMS[who]))
        if operation == "policy":
            policy_change(host, name)
        elif operation == "exec":
            run_exec(host, name)
        elif operation == "stop":
            host.client.stop(name, workspace=WORKSPACE)
            host.wait_phase(name, STOPPED)
        elif operation == "delete":
            host.delete(name)
            return host.nothing_left(sandbox_id)
        if operation in ("policy", "exec"):
            wait_until(lambda: set(runtime_of(sandbox_id, PROGRAMS[who])).isdisjoint(first), on_this_machine(20), "the death at that point")
        return host.as_it_should_be(name, STOPPED if operation == "stop" else READY)

    failures = {}
    with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
        for name, result in {name: pool.submit(row, name) for name in rows}.items():
            if result.exception():
                failures[f"{name} at {rows[name]}"] = repr(result.exception())
    assert not failures, "\n".join(f"{row}: {why}" for row, why in failures.items())


# ---- gateway: it dies at the point and starts again without a plan.

EXISTS, NONE = "exists", "none"
GATEWAY_STEPS = [
    ("create", "rpc.CreateSandbox.begin", NONE), ("create", "driver.validate.end", NONE), ("create", "driver.create.begin", EXISTS),
    ("create", "launch.monitor.end", EXISTS), ("create", "launch.directories.end", EXISTS), ("create", "launch.init.end", EXISTS),
    ("create", "launch.fence.end", EXISTS), ("create", "launch.release.end", EXISTS), ("create", "driver.create.end", EXISTS),
    ("create", "rpc.CreateSandbox.answer", EXISTS), ("create", "rpc.ReportSandboxConfiguration.begin", EXISTS),
    ("create", "rpc.ReportSandboxConfiguration.answer", EXISTS), ("create", "rpc.GetSandboxConfig.answer", EXISTS),
    ("create", "rpc.UpdateConfig.answer", EXISTS), ("create", "rpc.ConnectSupervisor.begin", EXISTS),
    ("create", "rpc.ReportPolicyStatus.begin", EXISTS), ("create", "rpc.ReportPolicyStatus.answer", EXISTS),
    ("policy", "rpc.UpdateConfig.begin", EXISTS), ("policy", "rpc.UpdateConfig.answer", EXISTS), ("policy", "rpc.GetSandboxConfig.answer", EXISTS),
    ("policy", "rpc.ReportPolicyStatus.begin", EXISTS), ("policy", "rpc.ReportPolicyStatus.answer", EXISTS),
    ("exec", "rpc.ExecSandbox.begin", EXISTS), ("exec", "rpc.RelayStream.begin", EXISTS), ("exec", "rpc.ExecSandbox.answer", EXISTS),
    ("stop", "rpc.StopSandbox.begin", READY), ("stop", "driver.stop.begin", STOPPED), ("stop", "driver.stop.end", STOPPED),
    ("stop", "rpc.StopSandbox.answer", STOPPED),
    ("delete", "rpc.DeleteSandbox.begin", READY), ("delete", "driver.remove.begin", NONE), ("delete", "driver.remove.end", NONE),
    ("delete", "rpc.DeleteSandbox.answer", NONE),
]


def attempt(host, operation, name):
    """What a user does while the gateway dies under it."""
    try:
        if operation == "create":
            host.create(name)
        elif operation == "policy":
            host.change_policy(name, 1)
        elif operation == "exec":
            host.client.exec(name, ["echo", "now"], workspace=WORKSPACE, no_login_shell=True, timeout_seconds=10)
        elif operation == "stop":
            host.client.stop(name, workspace=WORKSPACE)
        else:
            host.client.delete(name, workspace=WORKSPACE)
    except grpc.RpcError:
        pass


@pytest.mark.parametrize("operation,point,after", GATEWAY_STEPS, ids=lambda value: str(value))
def test_a_killed_gateway(host, operation, point, after):
    """ST, ACK: what was acknowledged stays, what was begun is ended or as if it had never been."""
    name = "gw"
    sandbox_id = None
    if operation != "create":
        sandbox_id = host.create(name).id
        host.wait_phase(name, READY)
        host.wait_settled(name)
    host.restart(f"{point}=kill")
    if operation != "create":
        wait_until(lambda: host.gateway.process.poll() is not None or host.phase(name) == READY, 30, "Ready")
    attempt(host, operation, name)
    assert host.gateway.process.wait(on_this_machine(15)) == -signal.SIGKILL, "it died at the point"
    host.restart()
    if after == NONE and operation == "create":
        assert host.phase(name) is None
        sandbox_id = host.create(name).id  # nothing stands in its way
    if after == NONE and operation == "delete":
        wait_until(lambda: host.phase(name) is None, on_this_machine(20), "the end of the delete")
        return host.nothing_left(sandbox_id)
    if operation == "policy":
        wait_until(lambda: host.phase(name) == READY, on_this_machine(30), "Ready")
        host.change_policy(name, 1)  # the same again: the user got no answer
    return host.as_it_should_be(name, after if operation == "stop" else READY)
