"""What a hostile workload finds, through exec and through its own children, in every launch mode of the process driver that this host offers."""

import base64
import os
import pathlib
import subprocess

import pytest
from conftest import REPOSITORY, WORKSPACE, Gateway, create_ready, delete_gone, wait_until

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
    """CR: environment, every file that it can read, and the memory of every process that it can open."""
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
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("through", ["exec", "grandchild"])
def test_an_act_that_must_fail_fails(jail, act, through):
    """IS: with an error and not by killing the runtime, also from a double-forked descendant."""
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
