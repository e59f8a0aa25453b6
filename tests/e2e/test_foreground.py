"""`sandbox create -- COMMAND` in the foreground: output and exit code arrive, always (M2)."""

import subprocess

import pytest
from conftest import WORKSPACE, delete_gone, wait_until
from openshell._proto import openshell_pb2 as pb
from terminal import Terminal


def create(gateway, *words, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([str(gateway.bin / "openshell"), "sandbox", "create", *words], env=gateway.environment, capture_output=True, timeout=60, **options)


def gone(gateway, name):
    return name not in gateway.cli("sandbox", "list", "--names").stdout.split()


@pytest.mark.parametrize("turn", range(5))
def test_m2_a_command_that_ends_at_once_and_is_not_kept(gateway, turn):
    # FB-25, FB-26
    name = f"quick{turn}"
    done = create(gateway, "--name", name, "--no-keep", "--no-tty", "--", "sh", "-c", "echo hi; echo err >&2; exit 3")
    assert done.returncode == 3, done.stderr
    assert done.stdout.endswith(b"hi\n") and b"err\n" in done.stderr
    wait_until(lambda: gone(gateway, name), what="the deletion")


def test_m2_a_kept_one_stays_with_its_result(gateway, client):
    done = create(gateway, "--name", "kept", "--no-tty", "--", "sh", "-c", "seq 1 30000; exit 4")
    try:
        assert done.returncode == 4, done.stderr
        assert done.stdout.endswith(b"\n29999\n30000\n") and done.stdout.count(b"\n") > 30000
        assert client.get("kept", workspace=WORKSPACE).phase == pb.SANDBOX_PHASE_ERROR
    finally:
        delete_gone(client, "kept")


def test_m2_much_output_through_a_slow_reader_arrives_whole(gateway):
    done = subprocess.run(f"'{gateway.bin}/openshell' sandbox create --name slow --no-keep --no-tty -- sh -c 'yes | head -c 20000000; echo end' | (sleep 2; tail -c +1 | wc -c)",
                          shell=True, env=gateway.environment, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert int(done.stdout) >= 20_000_004, done.stderr


def test_input_reaches_the_main_process(gateway):
    done = create(gateway, "--name", "reads", "--no-keep", "--no-tty", "--", "sh", "-c", "read a; echo got $a", stdin=None, input=b"words\n")
    assert done.stdout.endswith(b"got words\n") and done.returncode == 0, done.stderr


def test_on_a_terminal_the_main_process_has_one(gateway):
    words = [str(gateway.bin / "openshell"), "sandbox", "create", "--name", "onterm", "--no-keep", "--", "sh", "-c", "test -t 0 && echo terminal; read x; stty size; exit 6"]
    with Terminal(words, gateway.environment, columns=90, rows=33) as screen:
        screen.expect("terminal")
        screen.type("\n")
        screen.expect("33 90")
        assert screen.wait() == 6
        assert screen.restored()
    wait_until(lambda: gone(gateway, "onterm"), what="the deletion")


def test_structured_output_needs_detach(gateway):
    refused = create(gateway, "-o", "json", "--", "true")
    assert refused.returncode == 1 and b"add --detach" in refused.stderr
