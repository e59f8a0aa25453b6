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

LOST = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}
BUSY = {grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION}
SCOPE = datamodel_pb2.WorkspaceSelector(workspace=WORKSPACE)
READY, STOPPED, ERROR = openshell_pb2.SANDBOX_PHASE_READY, openshell_pb2.SANDBOX_PHASE_STOPPED, openshell_pb2.SANDBOX_PHASE_ERROR
LOADED, SUPERSEDED = openshell_pb2.POLICY_STATUS_LOADED, openshell_pb2.POLICY_STATUS_SUPERSEDED
PROGRAMS = {"supervisor": b"openshell-supervisor", "runtime": b"openshell-sandbox\0"}


class Host:
    """One gateway whose sandboxes outlive it, and what a user does there: again where it was cut off, until it stands."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.root = gateway.root
        self.clients = []
        self.connect()

    def connect(self):
        """Anew, since a channel waits longer and longer for a peer that was gone. Those before stay: another thread may be using one."""
        self.client = self.gateway.client(timeout=20)
        self.clients.append(self.client)
        self.stub = self.client._stub

    def restart(self, fault=None, how=signal.SIGTERM):
        code = self.gateway.process.poll()
        assert code in (None, -signal.SIGKILL), f"the gateway ended with {code} by itself"
        self.gateway.end(how)
        self.gateway.environment.pop("OPENSHELL_FAULT", None)
        if fault:
            self.gateway.environment["OPENSHELL_FAULT"] = fault
        self.gateway.start()
        self.connect()
        wait_until(self.healthy, on_this_machine(10), "the gateway's first answer")

    def healthy(self):
        try:
            return self.client.health()
        except grpc.RpcError:
            return self.gateway.process.poll() is not None  # a plan may let it die at once: the row sees to that

    def create_with(self, who, name, plan):
        """Its first supervisor or runtime has the plan, no later one."""
        file = self.root / f"fault.{who}" / name
        file.write_text(plan)
        self.create(name)
        wait_until(lambda: not file.exists(), on_this_machine(10), "the start that takes the plan")

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
        found = []
        for folder in (self.gateway.state, self.gateway.run):
            for parent, folders, files in os.walk(folder):  # passes over what goes meanwhile
                found += [f"{parent}/{name}" for name in folders + files if sandbox_id in name]
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
        for who, variable in {"supervisor": "OPENSHELL_FAULT_SUPERVISOR", "runtime": "OPENSHELL_FAULT_SANDBOX"}.items():
            folder = gateway.root / f"fault.{who}"
            folder.mkdir()
            gateway.environment[variable] = f"@{folder}"
        made = Host(gateway)
        made.restart()
        yield made
        if gateway.process.poll() is not None:
            made.restart()
        for sandbox in made.client.list_all(workspace=WORKSPACE):
            made.delete(sandbox.name)
        for client in made.clients:
            client.close()


# ---- supervisor and runtime: the gateway lives. Each row has a sandbox of its own, and all of one operation go at once.


def policy_change(host, name):
    host.wait_settled(name)
    host.change_policy(name, 1)


def run_exec(host, name):
    with pytest.raises(grpc.RpcError):
        host.client.exec(name, ["sh", "-c", "sleep 30"], workspace=WORKSPACE, no_login_shell=True, timeout_seconds=30)


def unplanned(pids):
    """One of `pids` at least runs, and none has a plan."""
    try:
        return bool(pids) and all(b"OPENSHELL_FAULT=" not in pathlib.Path(f"/proc/{pid}/environ").read_bytes() for pid in pids)
    except OSError:
        return False


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


@pytest.mark.parametrize("who", PROGRAMS)
def test_a_killed_supervisor_or_runtime(host, who):
    """ACK-13, FB-34, FB-39: whichever of the two dies, and wherever."""
    rows = {}
    for operation, points in [(operation, points) for (program, operation), points in STEPS.items() if program == who]:
        for number, point in enumerate(points):
            place, _, passage = point.partition("@")
            name = f"{who[0]}-{operation}-{number}"
            host.create_with(who, name, f"{place}=kill@{passage or 1}")
            rows[name] = point

    def row(name):
        operation = name.split("-")[1]
        sandbox_id = host.client.get(name, workspace=WORKSPACE).id
        if operation != "create":
            host.wait_phase(name, READY)
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
        if operation != "stop":  # those that run then were started without a plan: the one that had it died
            wait_until(lambda: unplanned(runtime_of(sandbox_id, PROGRAMS[who])), on_this_machine(40), "the death at that point")
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

ALL = os.environ.get("OPENSHELL_KILLS") == "all"
LONG_RUN_ONLY = {  # neighbours of rows that run always
    "driver.validate.end", "launch.monitor.end", "launch.directories.end", "launch.fence.end", "rpc.ReportSandboxConfiguration.begin",
    "rpc.GetSandboxConfig.answer", "rpc.ExecSandbox.begin", "rpc.StopSandbox.begin", "rpc.StopSandbox.answer", "rpc.DeleteSandbox.begin",
    "rpc.DeleteSandbox.answer", "rpc.ConnectSupervisor.begin",
}


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


@pytest.mark.parametrize("operation,point,after", [row for row in GATEWAY_STEPS if ALL or row[1] not in LONG_RUN_ONLY], ids=str)
def test_a_killed_gateway(host, operation, point, after):
    """What was acknowledged stays, what was begun is ended or as if it had never been."""
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


# ---- kills at random, many sandboxes at once, while their policies change and the gateway loses 30 % of the acknowledgements

KILLS, BOXES = (200, 20) if ALL else (30, 5)
LOST_REPORTS = "rpc.ReportPolicyStatus.begin=fail:16:{seed},rpc.ReportPolicyStatus.answer=fail:17:{seed}"  # 30 % of both: half before the effect


def answered(call):
    """The result of a call, or None where a killed gateway or a sandbox in between did not answer."""
    try:
        return call()
    except grpc.RpcError as error:
        assert error.code() in LOST or error.code() in BUSY, error
        return None


class Storm:
    def __init__(self, host, names, seed):
        self.host, self.names = host, names
        self.random = random.Random(seed)
        self.faults = LOST_REPORTS.format(seed=seed)
        self.over = threading.Event()
        self.changes, self.kills, self.trouble = 0, {"gateway": 0, "supervisor": 0, "runtime": 0}, []

    def change_policies(self, name, number):
        """A user who keeps changing one policy, and who sees the version in force never go back."""
        seen, turn = 0, 0
        try:
            while not self.over.is_set():
                turn += 1
                if answered(lambda: self.host.change_policy(name, f"{number}-{turn}")):
                    self.changes += 1
                status = answered(lambda: self.host.client.get(name, workspace=WORKSPACE).status)
                if status:
                    assert status.current_policy_version >= seen, f"{name} went back from {seen} to {status.current_policy_version}"
                    seen = status.current_policy_version
                    if status.phase == ERROR:  # rather than wait for the gateway's own next attempt
                        answered(lambda: self.host.client.start(name, workspace=WORKSPACE))
                self.over.wait(0.2)
        except Exception as error:  # noqa: BLE001: told by the test, not lost with the thread
            self.trouble.append(repr(error))

    def kill_one(self, ids):
        who = self.random.choice(["gateway", "supervisor", "runtime", "runtime"])
        if who == "gateway":
            self.host.restart(self.faults, signal.SIGKILL)
        else:
            order = self.random.sample(self.names, len(self.names))

            def victim():
                return next((pids for pids in (runtime_of(ids[name], PROGRAMS[who]) for name in order) if pids), None)

            pid = wait_until(victim, on_this_machine(60), f"a {who} that lives")[0]
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return self.kill_one(ids)
        self.kills[who] += 1
        return None


def test_random_kills_leave_no_revision_pending(host):
    """ACK-29: 30 kills over 5 sandboxes; OPENSHELL_KILLS=all: 200 over 20. OPENSHELL_KILLS_SEED repeats a run."""
    seed = int(os.environ.get("OPENSHELL_KILLS_SEED") or random.SystemRandom().randrange(1 << 20))
    names = [f"storm-{number}" for number in range(BOXES)]
    begin = time.monotonic()
    ids = {name: host.create(name).id for name in names}
    for name in names:
        host.wait_phase(name, READY, 60)
    host.restart(LOST_REPORTS.format(seed=seed))
    storm = Storm(host, names, seed)
    users = [threading.Thread(target=storm.change_policies, args=(name, number)) for number, name in enumerate(names)]
    for user in users:
        user.start()
    try:
        for _ in range(KILLS):
            storm.kill_one(ids)
            time.sleep(storm.random.uniform(0.1, 0.6))  # the rhythm of the storm; nothing is waited for by it
    finally:
        storm.over.set()
        for user in users:
            user.join()
    print(f"seed {seed}: {storm.kills}, {storm.changes} policy changes, {time.monotonic() - begin:.1f} s")
    assert not storm.trouble, f"seed {seed}: {storm.trouble}"

    def put_back(name):
        phase = answered(lambda: host.phase(name))
        if phase == ERROR:
            answered(lambda: host.client.start(name, workspace=WORKSPACE))
        return phase == READY

    for name in names:
        wait_until(lambda: put_back(name), on_this_machine(60), f"{name} Ready (seed {seed})")
        host.change_policy(name, "last")
    for name in names:
        host.wait_settled(name)
        loaded = [one.loaded_time.ToNanoseconds() for one in host.revisions(name) if one.HasField("loaded_time")]
        assert loaded == sorted(loaded), f"{name} acknowledged out of order (seed {seed})"
        host.exec_works(name)
    for name in names:
        host.delete(name)
    for name in names:
        host.nothing_left(ids[name])
    print(f"seed {seed}: settled after {time.monotonic() - begin:.1f} s")
    host.restart()
