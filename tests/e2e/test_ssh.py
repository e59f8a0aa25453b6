"""SSH, forwards and file transfer as a user has them: the command line, the system's ssh, scp and sftp, against a real gateway and sandbox."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import paramiko
import pytest

from conftest import WORKSPACE, create_ready, delete_gone, free_port, wait_until

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the system's ssh")


@pytest.fixture(scope="module")
def box(client):
    create_ready(client, "sshbox")
    yield "sshbox"
    delete_gone(client, "sshbox")


@pytest.fixture(scope="module")
def ssh(gateway, box):
    """ssh with what `sandbox ssh-config` prints: the words before the command."""
    config = gateway.root / "ssh_config"
    config.write_text(gateway.cli("sandbox", "ssh-config", box).stdout)
    return ["-F", str(config), f"openshell-{box}.{WORKSPACE}"]


def run_ssh(gateway, ssh, *words, before=(), input=None, timeout=60):
    options = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(["ssh", *before, *ssh, *words], env=gateway.environment, capture_output=True, timeout=timeout, **options)


def server_inside(gateway, box, port, body="inside"):
    """A server on the sandbox's loopback that outlives the exec that starts it."""
    script = (f"import socketserver\n"
              f"class H(socketserver.BaseRequestHandler):\n"
              f"  def handle(self):\n"
              f"    data = b''\n"
              f"    while (piece := self.request.recv(65536)): data += piece\n"
              f"    self.request.sendall(b'{body}:' + data)\n"
              f"socketserver.ThreadingTCPServer.allow_reuse_address = True\n"
              f"socketserver.ThreadingTCPServer(('127.0.0.1', {port}), H).serve_forever()\n")
    process = subprocess.Popen(["openshell", "sandbox", "exec", box, "--", "python3", "-c", script], env=gateway.environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return process


def ask(port, question, seconds=20):
    """Sends, ends its direction, reads to the end."""
    def attempt():
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(question)
                connection.shutdown(socket.SHUT_WR)
                answer = b""
                while piece := connection.recv(65536):
                    answer += piece
                return answer
        except OSError:
            return b""
    return wait_until(attempt, seconds, f"an answer on port {port}")


# ---- commands

def test_cx_02_cx_10_a_command_over_ssh(gateway, ssh):
    # CX-10
    # CX-02
    result = run_ssh(gateway, ssh, "echo out; echo err >&2; exit 42")
    assert (result.returncode, result.stdout, result.stderr) == (42, b"out\n", b"err\n")


def test_cx_11_and_cx_15_login_shell_and_how_to_leave_it_out(gateway, ssh, box):
    # CX-11, CX-15
    gateway.cli("sandbox", "exec", box, "--", "sh", "-c", "echo 'export MARKED=profile' > ~/.profile")
    show = "echo ${MARKED:-none}; shopt -q login_shell && echo login || echo plain"
    assert run_ssh(gateway, ssh, show).stdout == b"profile\nlogin\n"
    without = run_ssh(gateway, ssh, show, before=["-o", "SetEnv=OPENSHELL_NO_LOGIN_SHELL=1"])
    assert without.stdout == b"none\nplain\n"
    other = run_ssh(gateway, ssh, show, before=["-o", "SetEnv=OPENSHELL_NO_LOGIN_SHELL=0"])
    assert other.stdout == b"profile\nlogin\n"
    gateway.cli("sandbox", "exec", box, "--", "sh", "-c", "rm ~/.profile")


def test_ssh_children_are_confined(gateway, ssh):
    result = run_ssh(gateway, ssh, "cat /proc/self/status | grep -E 'NoNewPrivs|Seccomp:|CapEff'; touch /usr/x; id -u")
    text = result.stdout.decode()
    assert "NoNewPrivs:\t1" in text and "Seccomp:\t2" in text and "CapEff:\t0000000000000000" in text
    assert b"touch" in result.stderr


def test_binary_input_and_output_larger_than_any_buffer(gateway, ssh):
    data = os.urandom(5 * 1024 * 1024)
    result = run_ssh(gateway, ssh, "cat", input=data, timeout=120)
    assert result.returncode == 0 and result.stdout == data


def test_a_shell_without_terminal_adds_nothing(gateway, ssh):
    result = run_ssh(gateway, ssh, before=["-T"], input=b"echo one\necho two\nexit 3\n")
    assert (result.returncode, result.stdout) == (3, b"one\ntwo\n")


def test_a_closed_connection_ends_its_processes(gateway, ssh, box):
    process = subprocess.Popen(["ssh", *ssh, "sleep 4242 & setsid sleep 4243 & sleep 4244"], env=gateway.environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
    def running():
        return gateway.cli("sandbox", "exec", box, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 424[234]' | sort -u").stdout
    wait_until(lambda: running().count("sleep") == 3, what="three sleeps")
    process.kill()
    wait_until(lambda: running().count("sleep") == 0, what="no sleep left")


def test_the_workload_cannot_see_the_ssh_socket(gateway, ssh):
    found = run_ssh(gateway, ssh, "find / -name ssh.sock 2>/dev/null; env | grep -i ssh_socket; cat /proc/net/unix | grep ssh")
    assert found.stdout == b""


def test_remote_forwards_are_refused(gateway, ssh):
    result = run_ssh(gateway, ssh, "true", before=["-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:9"])
    assert result.returncode == 255


def test_rt_05_the_server_is_the_supervisors(gateway, ssh):
    # RT-05
    sockets = {line.split()[6] for line in open("/proc/net/unix") if line.rstrip().endswith("/ssh.sock")}
    assert sockets and run_ssh(gateway, ssh, "true").returncode == 0
    owners = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            links = {os.readlink(fd) for fd in (process / "fd").iterdir()}
            if links & {f"socket:[{inode}]" for inode in sockets}:
                owners.add((process / "comm").read_text().strip())
        except OSError:
            continue
    assert owners == {"openshell-super"}


CHECK = r"""
touch /usr/forbidden 2>/dev/null && echo WROTE || echo write-refused
env | grep -ic '_proxy=' || true
python3 - <<'PY'
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
for name, arguments in (("unshare", (0x10000000,)), ("ptrace", (0, 0, 0, 0)), ("mount", (b"a", b"/tmp", b"tmpfs", 0, 0))):
    result = getattr(libc, name)(*arguments)
    print(name, result, errno.errorcode.get(ctypes.get_errno(), "none") if result else "allowed")
try:
    socket.socket().connect(("198.51.100.7", 80))  # blocking: only then is a refusal always EACCES
    print("CONNECTED")
except OSError as error:
    print("connect", errno.errorcode.get(error.errno, str(error)))
PY
grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status
"""


def test_rt_16_rt_17_is_33_up_37_main_exec_and_ssh_are_confined_alike(gateway, client):
    # RT-16, RT-17, UP-37
    # IS-33
    gateway.cli("sandbox", "create", "--name", "alike", "--detach", "--", "sh", "-c", f"({CHECK}) > /tmp/main.txt 2>&1; touch /tmp/done; sleep 600")
    client.wait_ready("alike", workspace=WORKSPACE, timeout_seconds=30)
    try:
        config = gateway.root / "alike_config"
        config.write_text(gateway.cli("sandbox", "ssh-config", "alike").stdout)
        wait_until(lambda: gateway.cli("sandbox", "exec", "alike", "--", "test", "-e", "/tmp/done", check=False).returncode == 0, what="main's checks")
        main = gateway.cli("sandbox", "exec", "alike", "--", "cat", "/tmp/main.txt").stdout
        by_exec = gateway.cli("sandbox", "exec", "alike", "--", "sh", "-c", CHECK).stdout
        by_ssh = run_ssh(gateway, ["-F", str(config), f"openshell-alike.{WORKSPACE}"], CHECK).stdout.decode()
        assert main == by_exec == by_ssh
        assert main.startswith("write-refused\n0\n") and "allowed" not in main and "connect EACCES" in main
        assert "NoNewPrivs:\t1" in main and "Seccomp:\t2" in main and "CapEff:\t0000000000000000" in main
    finally:
        delete_gone(client, "alike")


# ---- main

class Attached:
    """`openshell sandbox connect` with pipes."""

    def __init__(self, gateway, name, environment=None):
        self.process = subprocess.Popen(["openshell", "sandbox", "connect", name], env={**gateway.environment, **(environment or {})},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.seen, self.errors = b"", b""
        self.drains = [threading.Thread(target=self._drain, args=one, daemon=True) for one in ((self.process.stdout, "seen"), (self.process.stderr, "errors"))]
        for drain in self.drains:
            drain.start()

    def _drain(self, stream, name):
        while piece := os.read(stream.fileno(), 65536):
            setattr(self, name, getattr(self, name) + piece)

    def type(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def sees(self, text):
        wait_until(lambda: text in self.seen, what=f"{text!r} on stdout, which has {self.seen!r} and {self.errors!r}")

    def is_told(self, text):
        wait_until(lambda: text in self.errors, what=f"{text!r} on stderr")

    def ends(self):
        code = self.process.wait(20)
        for drain in self.drains:  # what it wrote last may not be read yet
            drain.join(20)
        return code


@pytest.fixture
def talker(gateway, client):
    """Main says what it is told."""
    gateway.cli("sandbox", "create", "--name", "talker", "--detach", "--", "sh", "-c", "echo ready; while read line; do echo got:$line; [ $line = end ] && exit 7; done")
    client.wait_ready("talker", workspace=WORKSPACE, timeout_seconds=30)
    yield "talker"
    delete_gone(client, "talker")


def test_cx_04_cx_07_cx_08_attach_type_detach_and_come_back(gateway, talker):
    # CX-04, CX-07, CX-08
    first = Attached(gateway, talker)
    first.sees(b"ready\n")
    first.type(b"one\n")
    first.sees(b"got:one\n")
    viewer = Attached(gateway, talker)
    viewer.is_told(b"already has an input owner; attached read-only")
    viewer.sees(b"got:one\n")
    first.type(b"two\n\x10\x11never\n")
    assert first.ends() == 0
    viewer.sees(b"got:two\n")
    viewer.type(b"three\n")
    viewer.is_told(b"input enabled")
    viewer.sees(b"got:three\n")
    viewer.process.kill()
    again = Attached(gateway, talker)
    again.sees(b"got:three\n")
    assert b"never" not in again.seen
    again.process.kill()


def test_the_exit_of_main_is_the_exit_of_connect(gateway, talker):
    attached = Attached(gateway, talker)
    attached.sees(b"ready\n")
    attached.type(b"end\n")
    assert attached.ends() == 7
    assert attached.seen.endswith(b"got:end\n")
    late = Attached(gateway, talker)  # what main said and how it ended is kept for whoever comes later
    assert late.ends() == 7
    assert late.seen.endswith(b"got:end\n")


# ---- host key

def test_host_key_is_the_one_that_the_gateway_tells_and_no_question_is_asked(gateway, client, box):
    document = gateway.cli("sandbox", "get", box, "-o", "json").stdout
    assert '"host_key_fingerprint": "SHA256:' in document.replace('":"', '": "')
    state = pathlib.Path(gateway.state)
    for root, _, names in os.walk(state):
        for name in names:
            path = pathlib.Path(root) / name
            if path.is_file():
                assert b"OPENSSH PRIVATE KEY" not in path.read_bytes()


def test_ssh_refuses_a_server_with_another_key(gateway, ssh):
    wrong = ["-o", "StrictHostKeyChecking=yes", "-o", f"KnownHostsCommand={gateway.bin}/openshell ssh-known-host --fingerprint SHA256:wrong %H %t %K"]
    result = run_ssh(gateway, ssh, "true", before=wrong)
    assert result.returncode == 255


# ---- sessions

def test_tokens_expire_with_their_sandbox_and_are_bound_to_it(gateway, ssh, box):
    result = run_ssh(gateway, ["-F", "/dev/null", "sandbox"], "true", before=[
        "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
        "-o", f"ProxyCommand=openshell ssh-proxy --gateway {gateway.endpoint} --gateway-name e2e --sandbox {box} --token no-such-token"])
    assert result.returncode == 255
    assert b"SSH session token not found" in result.stderr


def test_the_fourth_connection_of_a_token_is_refused(gateway, client, box):
    import openshell._proto.openshell_pb2 as pb  # noqa: F401  (the published package's own messages)
    stub = client._stub
    session = stub.CreateSshSession(pb.CreateSshSessionRequest(sandbox=box, workspace_scope={"workspace": WORKSPACE}))
    assert session.gateway_scheme == "https" and session.host_key_fingerprint.startswith("SHA256:")
    proxies = []
    environment = {**gateway.environment, "OPENSHELL_SSH_TOKEN": session.token}
    words = ["openshell", "ssh-proxy", "--gateway", gateway.endpoint, "--gateway-name", "e2e", "--sandbox", box]
    try:
        for _ in range(3):
            proxy = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            proxies.append(proxy)
            assert proxy.stdout.readline().startswith(b"SSH-2.0-")
        fourth = subprocess.run(words, env=environment, capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
        assert fourth.returncode == 1 and b"SSH session connection limit reached" in fourth.stderr
        stub.RevokeSshSession(pb.RevokeSshSessionRequest(token=session.token))
        proxies.pop().kill()
        fifth = subprocess.run(words, env=environment, capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
        assert b"SSH session token is not valid" in fifth.stderr
    finally:
        for proxy in proxies:
            proxy.kill()


# ---- forwards

def test_cx_19_forward_start_list_stop(gateway, box):
    # CX-19, ST-29
    port = free_port()
    server = server_inside(gateway, box, port)
    try:
        started = gateway.cli("forward", "start", str(port), box, "--background")
        assert f"Forwarding port {port} to sandbox {box}" in started.stdout
        question = os.urandom(1024 * 1024)
        assert ask(port, question) == b"inside:" + question
        listed = gateway.cli("forward", "list").stdout.split()
        assert box in listed and "running" in listed and str(port) in listed
        again = gateway.cli("forward", "start", str(port), box, "-d", check=False)
        assert again.returncode == 1 and f"Port {port} is already forwarded to sandbox '{box}'" in again.stderr
        stopped = gateway.cli("forward", "stop", str(port))
        assert f"Stopped forward of port {port} for sandbox {box}" in stopped.stderr
        assert "No active forwards." in gateway.cli("forward", "list").stderr
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    finally:
        server.kill()


def test_cx_19_ssh_forwards_loopback_only(gateway, ssh, box):
    # CX-19
    inside, local, refused = free_port(), free_port(), free_port()
    server = server_inside(gateway, box, inside)
    process = subprocess.Popen(["ssh", "-N", "-L", f"{local}:127.0.0.1:{inside}", "-L", f"{refused}:10.1.2.3:80", *ssh], env=gateway.environment,
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert ask(local, b"hello") == b"inside:hello"
        with socket.create_connection(("127.0.0.1", refused), timeout=10) as connection:
            assert connection.recv(1) == b""
    finally:
        process.kill()
        server.kill()


def test_forward_service_without_ssh(gateway, box):
    inside, local = free_port(), free_port()
    server = server_inside(gateway, box, inside, "grpc")
    process = subprocess.Popen(["openshell", "forward", "service", box, "--target-port", str(inside), "--local", str(local)],
                               env=gateway.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert b"via gRPC" in process.stderr.readline()
        question = os.urandom(2 * 1024 * 1024)
        assert ask(local, question) == b"grpc:" + question, "each direction ends by itself"
    finally:
        process.kill()
        server.kill()


def test_cx_35_forwards_are_served_after_main_has_ended(gateway, client):
    # CX-35
    name = "forwards-on"
    gateway.cli("sandbox", "create", "--name", name, "--detach", "--", "true")
    assert gateway.cli("sandbox", "wait", name, "--for", "exit").returncode == 0
    port = free_port()
    server = server_inside(gateway, name, port, "late")
    try:
        gateway.cli("forward", "start", str(port), name, "--background")
        assert ask(port, b"question") == b"late:question"
    finally:
        gateway.cli("forward", "stop", str(port), check=False)
        server.kill()
        delete_gone(client, name)


def test_tcp_targets_are_checked_by_the_gateway(client, box):
    import grpc
    import openshell._proto.openshell_pb2 as pb
    def status(**init):
        frame = pb.TcpForwardFrame(init=pb.TcpForwardInit(sandbox=box, workspace=WORKSPACE, **init))
        with pytest.raises(grpc.RpcError) as error:
            list(client._stub.ForwardTcp(iter([frame])))
        return error.value.code(), error.value.details()
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    assert status(tcp={"host": "10.0.0.1", "port": 80}) == (invalid, "tcp target host must be loopback")
    assert status(tcp={"host": "127.0.0.1", "port": 0}) == (invalid, "tcp target port must be between 1 and 65535")
    assert status(tcp={"host": " ", "port": 80}) == (invalid, "tcp target host is required")
    assert status() == (invalid, "tcp forward target is required")
    assert status(ssh={}) == (grpc.StatusCode.UNAUTHENTICATED, "authorization_token is required for ForwardTcp")
    assert status(ssh={}, service_id="openshell.exec/1")[0] == invalid
    code, text = status(tcp={"host": "127.0.0.1", "port": free_port()})
    assert code == grpc.StatusCode.UNAVAILABLE and "refused" in text.lower()
    with pytest.raises(grpc.RpcError) as error:
        list(client._stub.ForwardTcp(iter([pb.TcpForwardFrame(data=b"x")])))
    assert error.value.details() == "first TcpForwardFrame must be init"


# ---- files

def tree(folder):
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "sub" / "deep" / "big").write_bytes(os.urandom(3 * 1024 * 1024))
    (folder / "--checkpoint=1").write_text("odd")
    os.symlink("a.txt", folder / "to-file")
    os.symlink("sub", folder / "to-dir")
    os.symlink("/nowhere", folder / "dangling")
    os.symlink("/etc/passwd", folder / "absolute")


def test_cx_18_b25_a_tree_goes_in_and_out(gateway, box, tmp_path):
    # CX-18, GW-15, HX-52
    source = tmp_path / "proj"
    source.mkdir()
    tree(source)
    up = gateway.cli("sandbox", "upload", box, str(source), "up", "--no-git-ignore")
    assert "Upload complete" in up.stderr
    shown = gateway.cli("sandbox", "exec", box, "--", "sh", "-c",
                        "cd up/proj && ./run.sh && readlink to-file to-dir dangling absolute && ls -d empty && cat -- --checkpoint=1").stdout
    assert shown.split() == ["ran", "a.txt", "sub", "/nowhere", "/etc/passwd", "empty", "odd"]
    out = tmp_path / "out"
    gateway.cli("sandbox", "download", box, "up/proj", str(out))
    same = subprocess.run(["diff", "-r", "--no-dereference", str(source), str(out)], capture_output=True, text=True)
    assert same.returncode == 0, same.stdout


def test_b25_a_git_work_tree_stays_clean(gateway, box, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    tree(work)
    (work / ".gitignore").write_text("*.log\n")
    (work / "noise.log").write_text("x")
    def git(*words):
        subprocess.run(["git", "-C", str(work), "-c", "user.name=x", "-c", "user.email=x@x.test", *words], check=True, capture_output=True)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "all")
    gateway.cli("sandbox", "upload", box, str(work), "git/")
    listing = gateway.cli("sandbox", "exec", box, "--", "sh", "-c", "cd git/work && ls -A | sort").stdout.split()
    assert "noise.log" not in listing and "to-dir" in listing
    # What git recorded about the files is what arrived: the same index sees no change.
    gateway.cli("sandbox", "upload", box, str(work / ".git"), "git/work/", "--no-git-ignore")
    status = gateway.cli("sandbox", "exec", box, "--", "sh", "-c",
                         "command -v git >/dev/null || exit 0; cd git/work && git -c safe.directory='*' -c core.fileMode=true status --porcelain").stdout
    assert status == ""


def test_a_file_lands_under_the_name_that_was_asked_for(gateway, box, tmp_path):
    # HX-54
    file = tmp_path / "a.txt"
    file.write_text("content")
    gateway.cli("sandbox", "upload", box, str(file), "b.txt", "--no-git-ignore")
    gateway.cli("sandbox", "upload", box, str(file), "dir/", "--no-git-ignore")
    shown = gateway.cli("sandbox", "exec", box, "--", "cat", "b.txt", "dir/a.txt").stdout
    assert shown == "contentcontent"
    target = tmp_path / "new"
    gateway.cli("sandbox", "download", box, "b.txt", str(target))
    assert target.read_text() == "content"


def test_b27_refused_downloads_fail_and_write_nothing(gateway, box, tmp_path):
    gateway.cli("sandbox", "exec", box, "--", "sh", "-c", "ln -sfn /etc out-link; printf odd > ./--checkpoint=1; mkdir -p d")
    root = gateway.cli("sandbox", "exec", box, "--", "pwd").stdout.strip()
    for number, path in enumerate(["/etc/hosts", f"{root}/../etc/hosts", f"{root}2/x", "out-link", "out-link/hosts", "missing"]):
        target = tmp_path / f"no{number}" / "x"
        refused = gateway.cli("sandbox", "download", box, path, str(target), check=False)
        assert refused.returncode == 1, path
        assert not target.exists() and not target.parent.exists(), path
    gateway.cli("sandbox", "download", box, "--", "--checkpoint=1", str(tmp_path / "odd"), check=False)
    gateway.cli("sandbox", "download", box, "./--checkpoint=1", str(tmp_path / "odd"))
    assert (tmp_path / "odd").is_file() and (tmp_path / "odd").read_text() == "odd"


# ---- without ssh on this host

def test_without_an_ssh_program_the_message_names_it_and_the_sandbox_is_kept(gateway, box):
    bare = {**gateway.environment, "PATH": str(gateway.bin)}
    result = subprocess.run([str(gateway.bin / "openshell"), "sandbox", "connect", box], env=bare, capture_output=True, text=True, timeout=30,
                            stdin=subprocess.DEVNULL)
    assert result.returncode == 1
    assert "`ssh`" in result.stderr and "The sandbox is kept" in result.stderr
    assert gateway.cli("sandbox", "exec", box, "--", "echo", "alive").stdout == "alive\n"


# ---- hostile clients

def test_half_open_handshakes_and_garbage_do_not_stop_the_server(gateway, client, box, ssh):
    import openshell._proto.openshell_pb2 as pb
    sockets = []
    def proxy():
        session = client._stub.CreateSshSession(pb.CreateSshSessionRequest(sandbox=box, workspace_scope={"workspace": WORKSPACE}))
        return subprocess.Popen(["openshell", "ssh-proxy", "--gateway", gateway.endpoint, "--gateway-name", "e2e", "--sandbox", box],
                                env={**gateway.environment, "OPENSHELL_SSH_TOKEN": session.token}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
    try:
        for number in range(8):
            made = proxy()
            sockets.append(made)
            made.stdin.write([b"", b"SSH-2.0-x\r\n", os.urandom(50_000), b"SSH-2.0-x\r\n" + b"\xff" * 40_000][number % 4])
            made.stdin.flush()
        assert run_ssh(gateway, ssh, "echo fine").stdout == b"fine\n"
    finally:
        for each in sockets:
            each.kill()
    assert run_ssh(gateway, ssh, "echo still").stdout == b"still\n"


@pytest.fixture
def hostile(gateway, client, box):
    """A client that does what no honest one does: paramiko, with its own checks taken out."""
    import openshell._proto.openshell_pb2 as pb
    made = []

    def connect():
        session = client._stub.CreateSshSession(pb.CreateSshSessionRequest(sandbox=box, workspace_scope={"workspace": WORKSPACE}))
        ours, theirs = socket.socketpair()
        proxy = subprocess.Popen(["openshell", "ssh-proxy", "--gateway", gateway.endpoint, "--gateway-name", "e2e", "--sandbox", box],
                                 env={**gateway.environment, "OPENSHELL_SSH_TOKEN": session.token}, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
        theirs.close()
        transport = paramiko.Transport(ours)
        transport._sanitize_packet_size = lambda size: 2**15 if size is None else size
        transport._sanitize_window_size = lambda size: 2**21 if size is None else size
        transport.start_client(timeout=20)
        transport.auth_none("anybody")
        made.append((transport, proxy))
        return transport

    yield connect
    for transport, proxy in made:
        transport.close()
        proxy.kill()


def send_signal(channel, name):
    """RFC 4254, 6.9; the system's ssh has no way to send one."""
    message = paramiko.Message()
    message.add_byte(bytes([98]))  # SSH_MSG_CHANNEL_REQUEST
    message.add_int(channel.remote_chanid)
    message.add_string("signal")
    message.add_boolean(False)
    message.add_string(name)
    channel.transport._send_user_message(message)


@pytest.mark.parametrize("name,code", [("TERM", 5), ("INT", 6), ("HUP", 7), ("KILL", 137)])
def test_a_signal_of_the_client_reaches_the_remote_process(hostile, name, code):
    channel = hostile().open_channel("session")
    channel.settimeout(20)
    channel.exec_command("trap 'echo TERM; exit 5' TERM; trap 'exit 6' INT; trap 'exit 7' HUP; echo ready; while :; do sleep 0.05; done")
    assert channel.recv(64) == b"ready\n"
    send_signal(channel, "USR9")  # unknown: nothing happens
    send_signal(channel, name)
    wait_until(channel.exit_status_ready, what="the end of the process")
    assert channel.recv_exit_status() == code


def test_packets_of_no_size_do_not_keep_the_server_busy(gateway, ssh, hostile):
    ignored = hostile()
    with pytest.raises(paramiko.SSHException):  # no channel comes of it, and nothing waits for one
        ignored.open_channel("session", window_size=2**31, max_packet_size=0, timeout=3)
    for size in (9, 10, 11, 1023):  # the server's library would write empty packets for ever to one that takes 10 bytes
        transport = hostile()
        with pytest.raises((paramiko.SSHException, EOFError)):
            channel = transport.open_channel("session", window_size=2**31, max_packet_size=size, timeout=20)
            channel.exec_command("yes | head -c 100000; sleep 60")
        wait_until(lambda: not transport.is_active(), what="the end of the connection")
        assert run_ssh(gateway, ssh, "echo fine").stdout == b"fine\n"
    transport = hostile()
    channel = transport.open_channel("session", window_size=2**31, max_packet_size=1024)
    channel.exec_command("yes | head -c 100000")
    received = b""
    while piece := channel.recv(65536):
        received += piece
    assert len(received) == 100000


def test_data_beyond_the_window_ends_the_connection(gateway, ssh, hostile):
    transport = hostile()
    channel = transport.open_channel("session")
    channel.exec_command("sleep 60")
    def flood():
        try:
            for _ in range(400):  # 12 MiB, whatever window was given
                message = paramiko.Message()
                message.add_byte(paramiko.common.cMSG_CHANNEL_DATA)
                message.add_int(channel.remote_chanid)
                message.add_string(b"x" * 32_000)
                transport._send_user_message(message)
        except (EOFError, OSError, paramiko.SSHException):
            pass
    threading.Thread(target=flood, daemon=True).start()
    wait_until(lambda: not transport.is_active(), what="the end of the connection")
    assert run_ssh(gateway, ssh, "echo fine").stdout == b"fine\n"


def test_channel_floods_are_refused_beyond_the_bound(hostile):
    transport = hostile()
    opened = []
    with pytest.raises(paramiko.SSHException):
        for _ in range(30):
            opened.append(transport.open_session(timeout=20))
    assert len(opened) == 10
    opened.pop().close()
    wait_until(lambda: _opens(transport), what="a place for another channel")


def _opens(transport):
    try:
        return transport.open_session(timeout=5)
    except paramiko.SSHException:
        return None


def test_a_slow_reader_does_not_hold_others_up(gateway, ssh, hostile):
    transport = hostile()
    channel = transport.open_channel("session", window_size=2**31 - 1, max_packet_size=2**15)
    channel.exec_command("yes")
    began = time.monotonic()
    assert run_ssh(gateway, ssh, "echo fine").stdout == b"fine\n"
    assert time.monotonic() - began < 20
