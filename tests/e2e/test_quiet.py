"""What nobody asked to see is not shown: the gateway's log at its default level, colours where they are not wanted."""

import os
import pty
import subprocess

from conftest import WORKSPACE, running_gateway, wait_until


def test_m10_no_line_for_each_call_at_the_default_level(scratch):
    """M10: the log of an untroubled gateway does not grow with its calls. One of its own: nobody else's end is in it."""
    with running_gateway(scratch, "quiet", "quiet") as gateway, gateway.client() as client:
        log = gateway.root / "gateway.log"
        wait_until(lambda: "gateway ready" in log.read_text(), what="the last line of the start")
        before = log.read_text()
        for _ in range(50):
            client.health()
            client.list_all(workspace=WORKSPACE)
            assert gateway.cli("sandbox", "get", "no-such", check=False).returncode == 1
        assert log.read_text()[len(before):] == ""


def on_a_terminal(gateway, words, **variables):
    """The command's output on a pseudo-terminal, where programs show colours."""
    controller, terminal = pty.openpty()
    environment = {**gateway.environment, "TERM": "xterm-256color", **variables}
    environment = {name: value for name, value in environment.items() if value is not None}
    with subprocess.Popen(["openshell", *words], env=environment, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                got = os.read(controller, 65536)
            except OSError:  # EIO: everybody has closed the other end
                break
            if not got:
                break
            shown += got
        process.wait(20)
    os.close(controller)
    return shown


COMMANDS = (["status"], ["sandbox", "list"], ["sandbox", "get", "no-such"], ["gateway", "list"], ["provider", "list"], ["policy", "list", "no-such"], ["logs", "no-such"],
            ["sandbox", "delete", "no-such"], ["--help"], ["sandbox", "create", "--name", "Not A Name"])


def test_m10_no_color_is_honoured_by_every_command(gateway, client):
    """M10: NO_COLOR (no-color.org): set and not empty, no command sends an escape sequence, on a terminal either."""
    for words in COMMANDS:
        shown = on_a_terminal(gateway, words, NO_COLOR="1")
        assert b"\x1b" not in shown, (words, shown)
    # The counter-check: the same terminal, colours wanted.
    assert any(b"\x1b[" in on_a_terminal(gateway, words, NO_COLOR=None) for words in COMMANDS)
