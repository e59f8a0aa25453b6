"""M10: quiet by default, and the conventions of terminals honoured."""

import os
import pty
import subprocess

import pytest
from conftest import WORKSPACE, create_ready, delete_gone


def log_of(gateway):
    return (gateway.root / "gateway.log").read_text().splitlines()


def test_M10_calls_leave_no_line_in_the_log(gateway, client, sandbox):
    client.exec("shared", ["true"], workspace=WORKSPACE)
    before = len(log_of(gateway))
    for _ in range(25):
        client.health()
        client.get("shared", workspace=WORKSPACE)
        client.list_all(workspace=WORKSPACE)
        client.exec("shared", ["true"], workspace=WORKSPACE)
    added = log_of(gateway)[before:]
    assert len(added) <= 3, added


def test_M10_a_life_of_a_sandbox_is_a_handful_of_lines(gateway, client):
    before = len(log_of(gateway))
    create_ready(client, "short")
    delete_gone(client, "short")
    added = [line for line in log_of(gateway)[before:] if "WARN" not in line]
    assert len(added) <= 12, added


def on_a_terminal(gateway, *words, **environment):
    """Output of a command whose streams are a terminal."""
    main, other = pty.openpty()
    env = {key: value for key, value in gateway.environment.items() if key not in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR")}
    env.update({"TERM": "xterm-256color", **environment})
    process = subprocess.Popen([*gateway.prefix, "openshell", *words], env=env, stdin=other, stdout=other, stderr=other, close_fds=True)
    os.close(other)
    output = b""
    while True:
        try:
            piece = os.read(main, 4096)
        except OSError:
            break
        if not piece:
            break
        output += piece
    process.wait(60)
    os.close(main)
    return output.decode(errors="replace")


@pytest.mark.parametrize("environment, flags, coloured", [
    ({}, [], True),
    ({"NO_COLOR": "1"}, [], False),
    ({"NO_COLOR": ""}, [], True),  # no-color.org: present and not empty
    ({"TERM": "dumb"}, [], False),
    ({"NO_COLOR": "1"}, ["--color", "always"], True),  # what is asked for in so many words wins
    ({}, ["--color", "never"], False),
])
def test_M10_colour_follows_terminal_no_color_and_flag(gateway, environment, flags, coloured):
    text = on_a_terminal(gateway, "sandbox", "get", "no-such-sandbox", *flags, **environment)
    assert "no-such-sandbox" in text or "not found" in text.lower()
    assert ("\x1b[" in text) is coloured, repr(text)


def test_M10_a_pipe_gets_no_colour_and_a_file_no_escape(gateway):
    environment = {key: value for key, value in gateway.environment.items() if key != "NO_COLOR"}
    result = subprocess.run(["openshell", "sandbox", "get", "no-such-sandbox"], env={**environment, "TERM": "xterm"}, capture_output=True, text=True)
    assert "\x1b" not in result.stdout + result.stderr and result.returncode == 1
    assert "\x1b" not in (gateway.root / "gateway.log").read_text(), "the gateway's log is a file"


def test_M10_success_says_no_more_than_it_was_asked_for(gateway, client, sandbox):
    assert gateway.cli("sandbox", "exec", "-n", "shared", "--", "true").stdout == ""
    listed = gateway.cli("sandbox", "list", "-o", "json")
    assert listed.stderr == "" and listed.stdout.startswith(("[", "{"))
    assert gateway.cli("status").stderr == ""
