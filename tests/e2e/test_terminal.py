"""The command line's exec as a person uses it: on a terminal, with its size, its keys, and its mode given back. Cases B21, B24, M5."""

import os
import signal
import subprocess
import time

import openshell
import pytest
from conftest import WORKSPACE, create_ready, delete_gone, wait_until
from terminal import Terminal


@pytest.fixture(scope="module")
def box(client):
    create_ready(client, "tty")
    yield "tty"
    delete_gone(client, "tty")


@pytest.fixture
def terminal(gateway):
    """Starts `openshell sandbox exec ...` on a terminal; all of them end with the test."""
    started = []

    def start(*words, **options):
        started.append(Terminal([str(gateway.bin / "openshell"), "sandbox", "exec", *words], gateway.environment, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()


def run(gateway, *words, **options):
    return subprocess.run([str(gateway.bin / "openshell"), "sandbox", "exec", *words], env=gateway.environment, capture_output=True, timeout=40, **options)


def running(client, needle):
    """Processes in the sandbox whose command line has `needle` as a word of its own."""
    script = f"for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -qx '{needle} ' && echo $p; done; true"
    return client.exec("tty", ["bash", "-c", script], workspace=WORKSPACE).stdout.split()


# ---- B24: a size that the caller has


@pytest.mark.parametrize("flags", [[], ["--tty"]])
def test_b24_the_remote_terminal_has_the_size_of_the_caller_s(terminal, box, flags):
    screen = terminal(box, *flags, "--", "stty", "size", columns=100, rows=40)
    assert screen.wait() == 0
    assert screen.shown == b"40 100\r\n"


def test_b24_no_terminal_where_none_is_wanted_or_stdout_is_no_terminal(terminal, gateway, box):
    screen = terminal(box, "--no-tty", "--", "sh", "-c", "test -t 0 || test -t 1 || echo none")
    assert screen.wait() == 0 and screen.shown == b"none\r\n"
    piped = terminal(box, "--", "sh", "-c", "test -t 0 || test -t 1 || echo none", stdout=subprocess.PIPE)
    assert piped.process.stdout.read() == b"none\n"
    assert piped.wait() == 0


def test_b24_an_unknown_size_is_24_by_80_and_never_1_by_1(gateway, client, box, terminal):
    assert run(gateway, box, "--tty", "--", "stty", "size", stdin=subprocess.DEVNULL).stdout == b"24 80\r\n"
    screen = terminal(box, "--", "stty", "size", columns=0, rows=0)
    assert screen.wait() == 0 and screen.shown == b"24 80\r\n"


def test_b24_a_new_size_arrives_as_sigwinch(terminal, box):
    # ST-26
    script = "trap 'echo now $(stty size)' WINCH; echo ready; while :; do sleep 0.1; done"
    screen = terminal(box, "--", "bash", "-c", script)
    screen.expect("ready")
    screen.resize(120, 50)
    screen.expect("now 50 120")
    for columns in range(60, 80):  # faster than they can be told: the last one counts
        screen.resize(columns, 33)
    screen.expect("now 33 79")
    screen.type("\x03")
    assert screen.wait() == 130


# ---- keys


@pytest.mark.parametrize("key,code", [("\x03", 130), ("\x1c", 131)])
def test_b24_ctrl_c_and_ctrl_backslash_reach_the_foreground_group(terminal, client, box, key, code):
    screen = terminal(box, "--", "sh", "-c", "echo ready; sleep 1000")
    screen.expect("ready")
    wait_until(lambda: running(client, "sleep 1000"), what="the sleep")  # dash forgets a SIGINT that it caught when it becomes another program
    screen.type(key)
    assert screen.wait() == code
    assert screen.restored()


def test_job_control_works(terminal, client, box):
    screen = terminal(box, "--", "bash", "--norc", "-i")
    screen.type("PS1='$ '; echo st''arted\n")
    screen.expect("started")
    screen.type("sleep 1001\n")
    wait_until(lambda: running(client, "sleep 1001"), what="the job")  # the shell makes it the foreground group before it becomes sleep
    screen.type("\x1a")
    screen.expect("Stopped")
    screen.type("bg\n")
    screen.expect("sleep 1001 &")
    screen.type("jobs; kill %1; wait; echo st''ill here\n")
    screen.expect("still here")
    screen.type("exit 5\n")
    assert screen.wait() == 5
    assert screen.restored()


def test_a_program_finds_its_controlling_terminal_and_can_make_more(terminal, box):
    screen = terminal(box, "--", "python3", "-c", "import os, pty\nfd = os.open('/dev/tty', os.O_RDWR)\nprint('tty', os.ttyname(0), os.get_terminal_size(fd).columns)\n"
                      "a, b = pty.openpty()\nprint('made', os.ttyname(b))\nprint('foreground', os.tcgetpgrp(fd) == os.getpgrp())")
    screen.expect("tty /dev/pts/")
    screen.expect("100")
    screen.expect("made /dev/pts/")
    screen.expect("foreground True")
    assert screen.wait() == 0


def test_keys_are_echoed_once_and_passwords_not_at_all(terminal, box):
    screen = terminal(box, "--", "bash", "-c", "read -p 'name: ' n; read -s -p 'word: ' p; echo; echo $n ${#p}")
    screen.expect("name: ")
    screen.type("agent\n")
    seen = screen.expect("word: ")
    assert seen.count("agent") == 1
    screen.type("hidden\n")
    shown = screen.expect("agent 6")
    assert "hidden" not in shown
    assert screen.wait() == 0


# ---- the caller's terminal is given back


def raw(screen):
    wait_until(lambda: screen.read(0.01) is not None and not screen.restored(), what="raw mode")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_the_terminal_is_restored_when_the_client_is_killed(terminal, client, box, how):
    screen = terminal(box, "--", "sh", "-c", "echo ready; exec sleep 1002")
    screen.expect("ready")
    raw(screen)
    screen.process.send_signal(how)
    assert screen.wait() == -how
    assert screen.restored()
    wait_until(lambda: not running(client, "sleep 1002"), 5, "the end of the remote process")


def test_the_terminal_is_restored_when_the_sandbox_goes_away(terminal, gateway, client):
    create_ready(client, "short")
    screen = terminal("short", "--", "sh", "-c", "echo ready; sleep 1003")
    screen.expect("ready")
    delete_gone(client, "short")
    assert screen.wait() in (1, 129, 143), "its exit by the signal, or none that arrived"
    assert screen.restored()


def test_the_terminal_is_restored_while_the_client_is_stopped(terminal, box):
    screen = terminal(box, "--", "sh", "-c", "echo ready; read x; echo got $x")
    screen.expect("ready")
    raw(screen)
    screen.process.send_signal(signal.SIGTSTP)
    wait_until(screen.restored, what="the old mode")
    screen.process.send_signal(signal.SIGCONT)
    raw(screen)
    screen.type("on\n")
    screen.expect("got on")
    assert screen.wait() == 0
    assert screen.restored()


def test_the_terminal_is_restored_when_the_call_is_refused(terminal, gateway):
    screen = terminal("no-such", "--", "true")
    assert screen.wait() == 1
    assert screen.restored()


# ---- B21: the exit counts, whatever stdin does


@pytest.mark.parametrize("flags", [["--no-tty"], ["--tty"], []])
@pytest.mark.parametrize("script,code,size", [("echo hi", 0, 1), ("seq 1 5000", 0, 5000), ("exit 3", 3, 0)])
def test_b21_exec_ends_although_stdin_stays_open(gateway, box, flags, script, code, size):
    read, write = os.pipe()
    try:
        began = time.monotonic()
        done = run(gateway, box, *flags, "--", "sh", "-c", script, stdin=read)
        assert done.returncode == code, done.stderr
        assert len(done.stdout.splitlines()) == size
        assert time.monotonic() - began < 10
    finally:
        os.close(read)
        os.close(write)


def test_b21_only_what_reads_stdin_waits_for_it(gateway, box):
    with subprocess.Popen([str(gateway.bin / "openshell"), "sandbox", "exec", box, "--no-tty", "--", "cat"], env=gateway.environment,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        cat.stdin.write(b"one\n")
        cat.stdin.flush()
        assert cat.stdout.readline() == b"one\n"
        assert cat.poll() is None
        cat.stdin.write(b"two\n")
        cat.stdin.close()
        assert cat.stdout.read() == b"two\n"
        assert cat.wait(20) == 0


def test_large_stdin_and_output_pass_whole(gateway, box):
    data = os.urandom(8 << 20)
    done = run(gateway, box, "--no-tty", "--", "cat", input=data)
    assert done.returncode == 0 and done.stdout == data


def test_the_older_form_with_the_name_as_a_flag(gateway, box):
    done = run(gateway, "-n", box, "printf", "%s-", "--flag", "-x", "a b", stdin=subprocess.DEVNULL)
    assert done.stdout == b"--flag--x-a b-", done.stderr
    assert run(gateway, "-n", box, "sh", "-c", "exit 4", stdin=subprocess.DEVNULL).returncode == 4
    assert run(gateway, "-n", box, "--no-tty", "--", "echo", "-n", "x", stdin=subprocess.DEVNULL).stdout == b"x"
    refused = run(gateway, box, "echo", "x", stdin=subprocess.DEVNULL)
    assert refused.returncode == 2 and b"-n NAME COMMAND" in refused.stderr


# ---- M5: gone within 5 s, children too


TREE = "trap '' TERM HUP INT; (setsid sleep {0} &) ; (trap '' TERM HUP; nohup sleep {0} >/dev/null 2>&1 &); echo ready; exec sleep {0}"


@pytest.mark.parametrize("flags", [["--no-tty"], []])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_m5_a_cancelled_exec_is_gone_with_its_children(terminal, client, box, flags, how):
    number = str(3000 + how + 100 * len(flags))
    screen = terminal(box, *flags, "--", "bash", "-c", TREE.format(number))
    screen.expect("ready")
    wait_until(lambda: len(running(client, f"sleep {number}")) == 3, what="three of them")  # they become sleep after "ready"
    screen.process.send_signal(how)
    wait_until(lambda: not running(client, f"sleep {number}"), 5, "the end of the tree")


def test_m5_a_closed_terminal_is_a_cancel(terminal, client, box):
    screen = terminal(box, "--", "bash", "-c", TREE.format(3999))
    screen.expect("ready")
    wait_until(lambda: len(running(client, "sleep 3999")) == 3, what="three of them")
    os.close(screen.slave)
    os.close(screen.master)  # the window is closed: SIGHUP for the client
    screen.process.wait(10)
    wait_until(lambda: not running(client, "sleep 3999"), 5, "the end of the tree")
    screen.master, screen.slave = os.openpty()


# ---- the published client and the interface


def test_the_published_client_s_exec_on_a_terminal(client, box):
    """F19, B24: sizes beyond the limit are the caller's fault; 0x0 is the default."""
    import grpc
    from openshell._proto import openshell_pb2 as pb

    def size(columns, rows):
        request = pb.ExecSandboxRequest(sandbox=box, command=["stty", "size"], tty=True, cols=columns, rows=rows)
        request.workspace_scope.workspace = WORKSPACE
        return b"".join(event.stdout.data for event in client._stub.ExecSandbox(request, timeout=20))

    assert size(0, 0) == b"24 80\r\n"
    assert size(132, 43) == b"43 132\r\n"
    assert size(65535, 65535) == b"65535 65535\r\n"
    for columns, rows in ((2**32 - 1, 2**32 - 1), (65536, 24), (80, 65536)):
        with pytest.raises(grpc.RpcError) as refused:
            size(columns, rows)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
