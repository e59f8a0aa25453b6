"""What a hostile workload finds, through exec and through its own children, in every launch mode of the process driver that this host offers."""

import base64
import errno
import os
import pathlib
import re
import signal
import subprocess

import pytest
from conftest import BIN, REPOSITORY, WORKSPACE, Gateway, create_ready, delete_gone, wait_until
from openshell._proto.openshell_pb2 import SANDBOX_PHASE_COMPLETED as PHASE_COMPLETED
from openshell._proto.openshell_pb2 import SANDBOX_PHASE_ERROR as PHASE_ERROR
from terminal import Terminal

TOKEN = "e2e-canary-" + base64.urlsafe_b64encode(os.urandom(24)).decode()
NOBODY = 65534


@pytest.fixture(scope="module", params=["root", "rootless"])
def jail(request, scratch):
    """A gateway in one mode, a sandbox under the quickstart's policy with a provider that holds the canary token."""
    if os.geteuid() != 0:
        pytest.skip("needs root: to start one gateway as root and one as an ordinary user")
    folder = scratch / request.param[:5]
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder, user=NOBODY if request.param == "rootless" else None)
    gateway.start()
    gateway.cli("gateway", "add", gateway.endpoint, "--local", "--name", "jail")
    gateway.cli("provider", "create", "--name", "api-server", "--type", "generic", "--credential", f"API_TOKEN={TOKEN}")
    policy = folder / "policy.yaml"
    policy.write_text((REPOSITORY / "examples/host-api/policy.yaml").read_text())
    policy.chmod(0o644)
    gateway.cli("sandbox", "create", "--name", "jail", "--policy", str(policy), "--provider", "api-server", "--detach")
    with gateway.client() as client:
        gateway.client_open = client
        yield gateway
        delete_gone(client, "jail")
    gateway.end()


def run(jail, script, **options):
    return jail.client_open.exec("jail", ["bash", "-c", script], workspace=WORKSPACE, **options)


def python(jail, script):
    return jail.client_open.exec("jail", ["python3", "-c", script], workspace=WORKSPACE)


def test_the_token_is_nowhere_the_workload_can_look(jail):
    """GW-21: CR: environment, every file that it can read, and the memory of every process that it can open."""
    assert run(jail, "echo $API_TOKEN").stdout.startswith("openshell:resolve:")
    found = python(jail, f"""
import os
needle = {TOKEN[:20]!r}.encode()[::-1]   # reversed here, so that this script's own text is no hit
needle = needle[::-1]
hits = []
for top in ("/sandbox", "/tmp", "/run", "/var", "/dev/shm", "/.openshell", "/etc", "/home"):
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and needle in open(path, "rb").read(1 << 22): hits.append(path)
            except OSError: pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid(): continue
    for part in ("environ", "cmdline"):
        try:
            if needle in open(f"/proc/{{pid}}/{{part}}", "rb").read(): hits.append(f"/proc/{{pid}}/{{part}}")
        except OSError: pass
print(hits)
""")
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


def test_private_keys_are_nowhere_the_workload_can_look(jail):
    found = run(jail, "grep -rlE 'BEGIN( EC| RSA)? PRIVATE KEY' /sandbox /tmp /run /var /dev/shm /.openshell /etc 2>/dev/null; true")
    assert found.stdout == "", found.stdout


def test_the_runtime_is_closed_to_its_children(jail):
    # IS-49
    for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/fd", "/proc/1/maps", "/.openshell/sandbox", "/.openshell/channel"):
        result = run(jail, f"if [ -d {path} ]; then ls {path}; else head -c 1 {path}; fi")
        assert result.exit_code != 0, f"{path} can be read: {result.stdout!r}"
    assert run(jail, "kill -9 1; kill -STOP 1; kill -0 $$").exit_code == 0
    assert run(jail, "echo alive").stdout == "alive\n"


def test_no_socket_of_the_host_is_reachable_by_path(jail):
    host = {line.split()[-1] for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:] if line.split()[-1].startswith("/")}
    script = "import socket,sys\nfor p in sys.argv[1:]:\n s=socket.socket(socket.AF_UNIX)\n try:\n  s.connect(p); print('reached', p)\n except OSError: pass\n"
    result = jail.client_open.exec("jail", ["python3", "-c", script, *sorted(host)[:500]], workspace=WORKSPACE)
    reached = [line for line in result.stdout.splitlines() if "/.openshell/" not in line]
    assert reached == [], reached


def test_nothing_but_loopback_exists_and_nothing_outside_answers(jail):
    assert run(jail, "ls /sys/class/net 2>/dev/null; awk -F: 'NR>2{print $1}' /proc/net/dev | tr -d ' '").stdout.split()[-1:] == ["lo"]
    result = run(jail, f"exec 3<>/dev/tcp/127.0.0.1/{jail.port}")
    assert result.exit_code != 0, "the host's loopback is not the sandbox's"


ACTS = {
    "raw socket": "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "packet socket": "import socket; socket.socket(17, socket.SOCK_RAW, 0)",
    "vsock": "import socket; socket.socket(40, socket.SOCK_STREAM)",
    "new user namespace": "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); r = c.unshare(0x10000000); raise OSError(ctypes.get_errno(), 'x') if r else None",
    "mount": "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.mount(b'none', b'/tmp', b'tmpfs', 0, None); raise OSError(ctypes.get_errno(), 'x') if r else None",
    "bpf": "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.syscall(321, 0, 0, 0); raise OSError(ctypes.get_errno(), 'x') if r < 0 else None",
    "keyctl": "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.syscall(250, 0, -3, 0); raise OSError(ctypes.get_errno(), 'x') if r < 0 else None",
    "ptrace of the runtime": "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.ptrace(16, 1, 0, 0); raise OSError(ctypes.get_errno(), 'x') if r < 0 else None",
    "io_uring": "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.syscall(425, 8, 0); raise OSError(ctypes.get_errno(), 'x') if r < 0 else None",
    "write below /usr": "open('/usr/x', 'w')",
    "read /root": "import os; os.listdir('/root')",
    "write /etc/passwd": "open('/etc/passwd', 'a')",
    "symlink out of the workspace": "import os; os.symlink('/root', '/sandbox/out') if not os.path.lexists('/sandbox/out') else 0; os.listdir('/sandbox/out')",
    "rename onto a protected tree": "import os; open('/tmp/r', 'w').close(); os.rename('/tmp/r', '/usr/r')",
    "fast open past the broker": "import socket; s = socket.socket(); s.sendto(b'x', 0x20000000, ('198.51.100.7', 80))",
    "raw connect by address": "import socket; s = socket.create_connection(('198.51.100.7', 80), 3)",
    "metadata address": "import socket; s = socket.create_connection(('169.254.169.254', 80), 3)",
    "a datagram": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('203.0.113.9', 9999))",
    "a datagram, connected": "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('203.0.113.9', 9999)); s.send(b'x')",
    "a datagram by sendmsg": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('203.0.113.9', 9999))",
    "a datagram to a name server": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))",
    "a datagram over IPv6": "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('2001:db8:9::9', 9999))",
    "a datagram in mapped form": "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('::ffff:203.0.113.9', 9999))",
    "a datagram to a group": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('224.0.0.251', 5353))",
    "a datagram to all": "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.sendto(b'x', ('255.255.255.255', 67))",
}

DATAGRAMS = r"""
import socket
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.9.9.9"), (socket.AF_INET6, "::1")):
    receiver, sender = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_DGRAM)
    receiver.bind((host, 0))
    receiver.settimeout(5)
    sender.sendto(b"question", receiver.getsockname())
    data, peer = receiver.recvfrom(64)
    receiver.sendto(data + b" answered", peer)
    print(host, sender.recv(64).decode())
"""


def test_datagrams_between_processes_of_the_workload_arrive(jail):
    """RT-34: loopback is theirs; every other destination of UDP is an error at once (the acts above)."""
    lines = python(jail, DATAGRAMS).stdout.splitlines()
    assert lines == [f"{host} question answered" for host in ("127.0.0.1", "127.9.9.9", "::1")]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("through", ["exec", "grandchild"])
def test_an_act_that_must_fail_fails(jail, act, through):
    """IS, RT-34 (datagrams): with an error and not by killing the runtime, also from a double-forked descendant."""
    script = ACTS[act]
    if through == "grandchild":
        script = ("import os, sys\nr, w = os.pipe()\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  try:\n   exec(" + repr(script) +
                  ")\n   os.write(w, b'succeeded')\n  except OSError: os.write(w, b'refused')\n  os._exit(0)\n os._exit(0)\nos.close(w)\n"
                  "answer = os.read(r, 100)\nprint(answer)\nsys.exit(1 if answer == b'refused' else 0)")
    result = python(jail, script)
    assert result.exit_code != 0, f"{act} succeeded"
    assert through == "grandchild" or any(text in result.stderr for text in ("PermissionError", "OSError", "ConnectionRefusedError", "TimeoutError", "BrokenPipeError")), result.stderr
    assert run(jail, "echo alive").stdout == "alive\n"


def test_a_thousand_daemons_leave_nothing(jail):
    with jail.client() as client:
        made = create_ready(client, "daemons")
        client.exec("daemons", ["bash", "-c", "for i in $(seq 1000); do (setsid sleep 4713 >/dev/null 2>&1 &); done"], workspace=WORKSPACE, timeout_seconds=60)
        delete_gone(client, "daemons")

        def left():
            return subprocess.run(["pgrep", "-fc", "sleep 4713"], capture_output=True, text=True).stdout.strip() == "0"

        wait_until(left, 20, "the end of every daemon")
        assert not list(jail.state.glob(f"process-driver/sandboxes/{made.id}*"))


# ---- the bypass tables, through everything that starts a process

# What a whole sandbox answers otherwise than the bare mechanisms: its root is read-only, and what the acts aim at is not there.
ELSEWHERE = {
    "abstract_unix": {errno.ECONNREFUSED},
    "root_create": {errno.EROFS},
    "secret_create": {errno.EROFS},
    "secret_rename_out": {errno.EXDEV},
    "secret_dir_rename": {errno.EXDEV},
    **{f"secret_{how}": {errno.ENOENT} for how in ("read", "write", "truncate", "link_out", "symlink", "dotdot", "through_proc")},
}


def expected_rows():
    """The table of tests/isolation: name -> errno, 0 for what must work, 1000 + signal for death."""
    rows = {}
    for name, value in re.findall(r'^\{"(\w+)", (\w+)\},', (REPOSITORY / "tests/isolation/isolation/expected_rows.inc").read_text(), re.M):
        rows[name] = 1000 + signal.SIGSYS if value == "kKilled" else 0 if value == "0" else getattr(errno, value)
    assert len(rows) > 150
    return rows


def bring_probe(jail, sandbox):
    probe = (BIN / "isolation-probe").read_bytes()
    placed = jail.client_open.exec(sandbox, ["sh", "-c", "cat > /sandbox/probe.new && chmod 755 /sandbox/probe.new && mv /sandbox/probe.new /sandbox/probe"],
                                   workspace=WORKSPACE, stdin=probe)
    assert placed.exit_code == 0, placed.stderr


def check_rows(text):
    found = {name: int(value) for name, value in re.findall(r"^(\w+)=(-?\d+)\r?$", text, re.M)}
    expected = expected_rows()
    wrong = [f"{name}: {found.get(name)} instead of {value}" for name, value in expected.items()
             if found.get(name) != value and found.get(name) not in ELSEWHERE.get(name, ())]
    assert not wrong, "\n".join(wrong)
    assert set(found) == set(expected)


@pytest.mark.parametrize("how", ["child", "daemon", "exec", "thread"])
@pytest.mark.parametrize("terminal", [False, True])
def test_the_bypass_tables_hold_through_exec(jail, how, terminal):
    """IS-70, with three pipes and on a terminal."""
    bring_probe(jail, "jail")
    words = [str(jail.bin / "openshell"), "sandbox", "exec", "jail", "--", "/sandbox/probe", "rows", how]
    if not terminal:
        return check_rows(jail.command(*words).stdout)
    with Terminal([*jail.prefix, *words], jail.environment) as screen:
        assert screen.wait(60) == 0
        check_rows(screen.shown.decode())


@pytest.mark.parametrize("terminal", [False, True])
def test_the_bypass_tables_hold_in_the_main_process(jail, terminal):
    """IS-70: the canonical main process itself, not a child of it, walks through the table."""
    name = "main-tty" if terminal else "main-pipes"
    script = "while [ ! -x /sandbox/probe ]; do sleep 0.05; done; exec /sandbox/probe rows child > /sandbox/rows 2>&1"
    jail.cli("sandbox", "create", "--name", name, "--policy", str(jail.root / "policy.yaml"), "--detach", "--tty" if terminal else "--no-tty", "--", "sh", "-c", script)
    try:
        bring_probe(jail, name)

        def ended():
            return jail.client_open.get(name, workspace=WORKSPACE).phase in (PHASE_COMPLETED, PHASE_ERROR)

        wait_until(ended, 60, "the end of main")
        check_rows(jail.client_open.exec(name, ["cat", "/sandbox/rows"], workspace=WORKSPACE).stdout)
    finally:
        delete_gone(jail.client_open, name)


# What is tried, and the error that must come of it: another one would mean that the act was not tried at all.
TERMINAL_ACTS = {
    "type into the own terminal": ("EPERM", "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"),
    "type into it by its name": ("EPERM", "import fcntl, termios; fcntl.ioctl(open('/dev/tty'), termios.TIOCSTI, b'x')"),
    "type with a number that the kernel cuts": ("EPERM", "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.syscall(ctypes.c_long(16), 0, ctypes.c_ulong(0x100005412), b'x'); raise OSError(ctypes.get_errno(), 'x') if r else None"),
    "the console's selection": ("EPERM", "import fcntl; fcntl.ioctl(0, 0x541c, b'\\x02')"),
    "console output here": ("EPERM", "import fcntl; fcntl.ioctl(0, 0x541d)"),
    "another line discipline": ("EPERM", "import fcntl, struct; fcntl.ioctl(0, 0x5423, struct.pack('i', 0))"),
    "steal the terminal of main": ("EPERM", "import fcntl, os, termios\nif os.fork(): raise OSError(os.waitstatus_to_exitcode(os.wait()[1]), 'x')\nos.setsid()\ntry: fcntl.ioctl(os.open('/dev/pts/0', os.O_RDWR | os.O_NOCTTY), termios.TIOCSCTTY, 1)\nexcept OSError as e: os._exit(e.errno)\nos._exit(0)"),
    "a signal to the runtime through a terminal": ("EPERM", "import fcntl, os, pty, termios\nif os.fork(): raise OSError(os.waitstatus_to_exitcode(os.wait()[1]), 'x')\nos.setsid()\na, b = pty.openpty()\nfcntl.ioctl(b, termios.TIOCSCTTY, 0)\ntry: os.tcsetpgrp(b, 1)\nexcept OSError as e: os._exit(e.errno)\nos._exit(0)"),
    "the host's console": ("ENOENT", "open('/dev/console', 'r+b')"),
    "a virtual terminal": ("ENOENT", "open('/dev/tty0', 'r+b')"),
    "a serial line": ("ENOENT", "open('/dev/ttyS0', 'r+b')"),
    "a node of one's own": ("EPERM", "import os; os.mknod('/tmp/console', 0o20666, os.makedev(5, 1)); open('/tmp/console', 'r+b')"),
    "a node in devpts": ("EACCES", "import os; os.mknod('/dev/pts/99', 0o20666, os.makedev(136, 99))"),
    "a devpts of one's own": ("EPERM", "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.mount(b'devpts', b'/tmp', b'devpts', 0, None); raise OSError(ctypes.get_errno(), 'x') if r else None"),
}


@pytest.mark.parametrize("act", TERMINAL_ACTS)
def test_a_terminal_gives_nothing_away(jail, act):
    """IS: what a program may try because it has a terminal."""
    expected, script = TERMINAL_ACTS[act]
    script = ("import errno\ntry:\n " + script.replace("\n", "\n ") + "\nexcept OSError as e: print('refused', errno.errorcode.get(e.errno, e.errno))\n"
              "else: print('succeeded')")
    words = [*jail.prefix, str(jail.bin / "openshell"), "sandbox", "exec", "jail", "--", "python3", "-c", script]
    with Terminal(words, jail.environment) as screen:
        screen.wait()
        assert screen.shown.split() == [b"refused", expected.encode()], screen.shown


def test_no_terminal_of_the_host_is_among_those_of_the_sandbox(jail):
    script = "import os; print(sorted(os.listdir('/dev/pts')), os.ttyname(0), os.stat('/dev/pts').st_dev, os.fstat(0).st_dev)"
    words = [*jail.prefix, str(jail.bin / "openshell"), "sandbox", "exec", "jail", "--", "python3", "-c", script]
    with Terminal(words, jail.environment) as screen:
        assert screen.wait() == 0
        names, rest = screen.shown.decode().split("]")
        terminal, devpts, own = rest.split()
    assert names == "['0', '1', 'ptmx'" and terminal == "/dev/pts/1", "main's, this one, and the way to more: those of ended execs are gone"
    assert devpts == own and int(devpts) != os.stat("/dev/pts").st_dev
