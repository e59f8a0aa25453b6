"""The runtime model seen from the host: which programs a sandbox is made of, under which identity, with what authority, in which directories."""

import os
import pathlib
import re
import socket
import stat
import threading

import pytest
from conftest import REPOSITORY, WORKSPACE, delete_gone, wait_until

PROC = pathlib.Path("/proc")
NAME = "model"


def status(pid):
    return dict(line.split(":\t", 1) for line in (PROC / str(pid) / "status").read_text().splitlines() if ":\t" in line)


def namespace(pid, kind):
    return os.readlink(PROC / str(pid) / "ns" / kind)


def processes():
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it ended meanwhile
                continue


class Family:
    """The processes of one sandbox, found from the host: its supervisor by the id in its arguments, the others by their pid namespace."""

    def __init__(self, gateway, client):
        self.id = client.get(NAME, workspace=WORKSPACE).id
        self.run = gateway.run / "process-driver" / self.id
        self.state = gateway.state / "process-driver" / "sandboxes" / self.id
        [self.supervisor] = [pid for pid, words in processes() if words[0].endswith(b"openshell-supervisor") and self.id.encode() in b" ".join(words)]
        self.namespace = client.exec(NAME, ["readlink", "/proc/self/ns/pid"], workspace=WORKSPACE).stdout.strip()
        [self.sandbox] = [pid for pid in self.inside() if status(pid)["NSpid"].split()[-1] == "1"]

    def inside(self):
        found = []
        for pid, _ in processes():
            try:
                if namespace(pid, "pid") == self.namespace:
                    found.append(pid)
            except OSError:
                continue
        return found

    def workload(self):
        return [pid for pid in self.inside() if pid != self.sandbox]


@pytest.fixture(scope="module")
def family(gateway, client, tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("needs root: it looks into the processes of the sandbox's own uids")
    policy = tmp_path_factory.mktemp("model") / "policy.yaml"
    policy.write_text((REPOSITORY / "examples/host-api/policy.yaml").read_text())
    gateway.cli("sandbox", "create", "--name", NAME, "--policy", str(policy), "--detach")
    client.wait_ready(NAME, workspace=WORKSPACE, timeout_seconds=30)
    client.exec(NAME, ["sh", "-c", "(sleep 300; :) >/dev/null 2>&1 & (setsid sleep 301) >/dev/null 2>&1 &"], workspace=WORKSPACE)
    made = Family(gateway, client)
    wait_until(lambda: len([p for p in made.workload() if status(p)["Name"].startswith("sleep")]) >= 2, what="two processes of the workload")
    yield made
    delete_gone(client, NAME)


def test_two_programs_on_two_sides(family):
    """RT-01, RT-07, ST-08: the supervisor shares no pid, mount or network namespace with the workload; the runtime is PID 1 of the workload's."""
    assert os.readlink(PROC / str(family.supervisor) / "exe").endswith("/openshell-supervisor")
    assert b"openshell-sandbox" in b" ".join(dict(processes())[family.sandbox])
    for kind in ("pid", "mnt", "net"):
        assert namespace(family.supervisor, kind) != namespace(family.sandbox, kind), kind
    assert namespace(family.supervisor, "net") == namespace(os.getpid(), "net")


def test_the_runtime_and_every_child_have_one_identity_that_is_not_root(family):
    """RT-08, RT-19, RT-22: by kernel ids; the supervisor has another one."""
    ids = {key: status(family.sandbox)[key] for key in ("Uid", "Gid", "Groups")}
    assert "0" not in ids["Uid"].split() + ids["Gid"].split()
    for pid in family.workload():
        assert {key: status(pid)[key] for key in ids} == ids, status(pid)["Name"]
    supervisor = status(family.supervisor)
    assert set(supervisor["Uid"].split()).isdisjoint(ids["Uid"].split()) and "0" not in supervisor["Uid"].split()


def test_no_capability_no_new_privileges_and_a_filter_everywhere(family):
    """RT-09, RT-14, RT-17: each child; PID 1, which answers the filter's notifications, is free of capabilities as well."""
    assert status(family.sandbox)["NoNewPrivs"] == "1" and int(status(family.sandbox)["CapEff"], 16) == 0 == int(status(family.sandbox)["CapBnd"], 16)
    for pid in family.workload():
        found = status(pid)
        assert [int(found[key], 16) for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5, found["Name"]
        assert found["NoNewPrivs"] == "1" and found["Seccomp"] == "2" and int(found["Seccomp_filters"]) >= 1, found["Name"]


def test_every_workload_process_descends_from_the_runtime(family):
    """RT-11: double-forked and setsid children included."""
    for pid in family.workload():
        ancestor = pid
        while ancestor not in (family.sandbox, 0, 1):
            ancestor = int(status(ancestor)["PPid"])
        assert ancestor == family.sandbox, status(pid)["Name"]


def test_an_identity_cannot_be_changed(family, client):
    """RT-20, RT-21: any other identity is refused, its own one is no change."""
    script = r"""
import os
mine = os.getuid()
for call, target in ((os.setresuid, (0, 0, 0)), (os.setresuid, (mine + 1,) * 3), (os.setresgid, (0, 0, 0))):
    try:
        call(*target)
        print("changed", call.__name__, target)
    except PermissionError:
        print("EPERM")
    except OSError as refusal:
        print("EINVAL" if refusal.errno == 22 else refusal)
try:
    os.setgroups([0]); print("changed groups")
except OSError:
    print("EPERM")
os.setresuid(mine, mine, mine)
print("same")
"""
    words = client.exec(NAME, ["python3", "-c", script], workspace=WORKSPACE).stdout.split()
    assert words[-1] == "same" and len(words) == 5 and set(words[:-1]) <= {"EPERM", "EINVAL"}, words


def test_each_party_has_a_directory_of_its_own(family):
    """RT-24, RT-81: no file of one half can be opened by the other; the channel is reachable by the two only."""
    supervisor, sandbox = int(status(family.supervisor)["Uid"].split()[0]), int(status(family.sandbox)["Uid"].split()[0])
    for folder, owner in ((family.run / "supervisor", supervisor), (family.run / "sandbox", sandbox), (family.run / "driver", 0),
                          (family.state / "supervisor", supervisor), (family.state / "driver", 0), (family.state / "workload", sandbox)):
        found = folder.stat()
        assert found.st_uid == owner and stat.S_IMODE(found.st_mode) == 0o700, folder
    for file in [*(family.run / "supervisor").glob("*.json"), *(family.run / "sandbox").glob("*.pem")]:
        assert stat.S_IMODE(file.stat().st_mode) == 0o400, file
    channel = (family.run / "channel").stat()
    assert (channel.st_uid, channel.st_gid) == (sandbox, supervisor) and stat.S_IMODE(channel.st_mode) & 0o007 == 0


def test_the_bootstrap_was_used_up(family):
    """ST-04, ST-05: neither the bootstrap nor the runtime's private key is left in any file of its half."""
    kept = {path.name for path in (family.run / "sandbox").iterdir()}
    assert kept == {"client-ca.pem", "server.pem"}, kept
    assert all(b"PRIVATE KEY" not in path.read_bytes() for path in (family.run / "sandbox").iterdir())


def test_requests_leave_from_the_supervisor(family, gateway, client):
    """RT-04: the connection that reaches the server belongs to the supervisor's process, not to anything of the workload."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    policy = gateway.root / "model-port.yaml"
    policy.write_text((REPOSITORY / "examples/host-api/policy.yaml").read_text().replace("[9090, 9443]", f"[{port}]"))
    gateway.cli("policy", "set", NAME, "--policy", str(policy), "--wait")
    calling = threading.Thread(target=client.exec, args=(NAME, ["curl", "-s", "-m", "20", f"http://host.openshell.internal:{port}/tools.json"]),
                               kwargs={"workspace": WORKSPACE})
    calling.start()
    listener.settimeout(20)
    connection, peer = listener.accept()
    with connection:
        [inode] = [line.split()[9] for line in (PROC / "net/tcp").read_text().splitlines()[1:]
                   if int(line.split()[1].split(":")[1], 16) == peer[1] and int(line.split()[2].split(":")[1], 16) == port]
        owners = [pid for pid, _ in processes() if any(link == f"socket:[{inode}]" for link in descriptors(pid))]
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    calling.join(30)
    listener.close()
    assert owners == [family.supervisor]


def descriptors(pid):
    try:
        return [os.readlink(entry) for entry in (PROC / str(pid) / "fd").iterdir()]
    except OSError:
        return []


def test_the_supervisor_holds_no_authority_over_engines_or_workloads(family):
    """RT-23: no engine socket among its descriptors, nothing of one in its environment."""
    assert not any(re.search(r"docker|podman|containerd|kube", link) for link in descriptors(family.supervisor))
    assert not re.search(rb"DOCKER_|KUBE|PODMAN", (PROC / str(family.supervisor) / "environ").read_bytes())


SERVICES = r"""
import os, socket, threading
def echo(listener):
    peer, _ = listener.accept()
    peer.sendall(peer.recv(64)[::-1])
    peer.close()
for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, "/tmp/model.sock"), (socket.AF_UNIX, "\0model")):
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    thread = threading.Thread(target=echo, args=(listener,))
    thread.start()
    caller = socket.socket(family)
    caller.connect(listener.getsockname())
    caller.sendall(b"abc")
    print(caller.recv(64).decode())
    thread.join()
one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
one.send(b"pair"); print(two.recv(64).decode())
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind("/tmp/model-datagram")
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"datagram", "/tmp/model-datagram")
print(receiver.recv(64).decode())
"""


def test_ordinary_services_of_the_workload_work(family, client):
    """RT-71, RT-72: loopback TCP, Unix stream by path and abstract name, socketpair, datagram."""
    result = client.exec(NAME, ["python3", "-c", SERVICES], workspace=WORKSPACE)
    assert result.stdout.split() == ["cba", "cba", "cba", "pair", "datagram"], result


def test_generic_code_knows_no_driver():
    """RT-78, DRV-08, DRV-14: process, network and session code includes nothing of a driver, and the shared contract names no engine."""
    for room in ("egress", "isolation", "policy", "actors/sandbox", "actors/supervisor", "programs/sandbox", "programs/supervisor"):
        for file in (REPOSITORY / room).rglob("*.[ch]pp"):
            assert '#include "drivers/' not in file.read_text(), file
    contract = (REPOSITORY / "drivers/driver.hpp").read_text()
    assert not re.search(r"^#include \"drivers/", contract, re.M)
    code = re.sub(r"//.*", "", contract)
    assert not re.search(r"docker|podman|kubernetes|container_?(id|network)|NetworkPolicy|virtio", code, re.I)
