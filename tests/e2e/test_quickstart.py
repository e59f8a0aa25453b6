"""The README's first command, as a newcomer runs it: twice in a row, and with its policy broken in five ways."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from conftest import REPOSITORY

SCRIPT = REPOSITORY / "examples/host-api/quickstart.sh"
POLICY = (REPOSITORY / "examples/host-api/policy.yaml").read_text()


def quickstart(*arguments):
    environment = dict(os.environ, OPENSHELL_QUICKSTART_PORT="17678")
    return subprocess.run([SCRIPT, *arguments], env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module", autouse=True)
def stopped_afterwards():
    yield
    quickstart("--stop")


def test_twice_in_a_row_everything_is_as_it_should_be():
    """HX-01, HX-20, HX-25, HX-43, HX-44, HX-46, HX-47, HX-48, HX-49, HX-51, HX-60, HX-61, HX-63, HX-64: the script checks each with a line of its own."""
    for _ in range(2):
        result = quickstart(os.environ["OPENSHELL_BUILD_DIR"])
        assert result.returncode == 0, result.stdout + result.stderr
        assert "FAIL" not in result.stdout and result.stdout.count("  ok ") >= 20, result.stdout


@pytest.fixture
def newcomer():
    """A user of this host without any right, with a copy of the example and the programs where such a user can reach them."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    build = pathlib.Path(os.environ["OPENSHELL_BUILD_DIR"])
    home = pathlib.Path(tempfile.mkdtemp(prefix="on-"))
    shutil.copytree(SCRIPT.parent, home / "host-api")
    shutil.copytree(build / "bundle", home / "build" / "bundle", symlinks=True)
    shutil.copytree(build / "bin", home / "build" / "bin", ignore=lambda folder, names: [n for n in names if not n.startswith("openshell")])
    subprocess.run(["chown", "-R", "nobody:nogroup", str(home)], check=True)

    def run(*arguments):
        words = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "env", "-i", "PATH=/usr/bin:/bin", f"HOME={home}",
                 f"XDG_RUNTIME_DIR={home}/r", "OPENSHELL_QUICKSTART_PORT=17677", str(home / "host-api" / SCRIPT.name)]
        return subprocess.run([*words, *arguments], capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)

    (home / "r").mkdir(mode=0o700)
    shutil.chown(home / "r", "nobody", "nogroup")
    run.build = home / "build"
    quickstart("--stop")  # the example's ports
    yield run
    run("--stop")
    shutil.rmtree(home, ignore_errors=True)


def test_a_plain_user_sees_the_same(newcomer):
    """No root, no sudo, no group: the same lines, twice in a row, and nothing left running after the stop."""
    for _ in range(2):
        result = newcomer(str(newcomer.build))
        assert result.returncode == 0, result.stdout + result.stderr
        assert "FAIL" not in result.stdout and result.stdout.count("  ok ") >= 20, result.stdout
    assert newcomer("--stop").returncode == 0
    left = subprocess.run(["pgrep", "-u", "nobody", "-f", "openshell|server.py"], capture_output=True, text=True).stdout.split()
    assert not left, left


BROKEN = {
    "unknown key": ("enforcement: enforce", "enforcment: enforce", ["enforcment", "enforcement"]),
    "unknown value": ("compatibility: hard_requirement", "compatibility: hard", ["compatibility", "hard_requirement"]),
    "port out of range": ("ports: [9090, 9443]", "ports: [9090, 94430]", ["94430", "65535"]),
    "wildcard over a single label": ("host: host.openshell.internal", 'host: "**.internal"', ["**.internal"]),
    "two answers for one endpoint": (
        "    binaries:\n", "      - host: host.openshell.internal\n        ports: [9090, 9092]\n        protocol: rest\n        enforcement: audit\n"
        "        rules:\n          - allow: {method: GET, path: /healthz}\n    binaries:\n", ["9090", "enforce"]),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_policy_is_refused_with_key_line_and_cure(gateway, client, tmp_path, fault):
    """Refused before anything is sent, and the running policy stays as it was."""
    from conftest import create_ready, delete_gone
    before, after, expected = BROKEN[fault]
    assert before in POLICY
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(POLICY)
    bad.write_text(POLICY.replace(before, after, 1))
    gateway.cli("sandbox", "create", "--name", "broken", "--policy", str(good), "--detach")
    try:
        running = gateway.cli("policy", "get", "broken", "--full").stdout
        result = gateway.cli("policy", "set", "broken", "--policy", str(bad), check=False)
        assert result.returncode == 1, result.stdout + result.stderr
        line = max(i for i, text in enumerate(bad.read_text().splitlines(), 1) if after.splitlines()[0].strip() in text)
        assert f"{bad}:" in result.stderr
        numbers = [int(part.split(":")[1]) for part in result.stderr.split() if part.startswith(f"{bad}:")]
        assert any(abs(number - line) <= 4 for number in numbers), f"line {line}: {result.stderr}"
        for word in expected:
            assert word in result.stderr, result.stderr
        assert gateway.cli("policy", "get", "broken", "--full").stdout == running
    finally:
        delete_gone(client, "broken")


def test_a_policy_that_is_broken_from_the_start_creates_nothing(gateway, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(POLICY.replace("version: 1", "version: 1\nnetwork_polices: {}"))
    result = gateway.cli("sandbox", "create", "--name", "never", "--policy", str(bad), "--detach", check=False)
    assert result.returncode == 1 and "network_policies" in result.stderr
    assert gateway.cli("sandbox", "get", "never", check=False).returncode == 1
    assert not list(pathlib.Path(gateway.state).glob("process-driver/sandboxes/never*"))
