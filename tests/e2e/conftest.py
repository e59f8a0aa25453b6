"""A gateway of its own for the tests: own state, own certificates, an ephemeral port. Everything is real and ends with the session."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import openshell
import pytest
from oidc_issuer import Issuer

BIN = pathlib.Path(os.environ["OPENSHELL_BUILD_DIR"]) / "bin"
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WORKSPACE = "default"


# Below what the kernel hands out by itself (ip_local_port_range), so that no connection of anybody takes a port between the choice and its use.
PORTS = iter(random.SystemRandom().sample(range(20_000, 32_000), 12_000))


def free_port():
    """A port that nobody has and that is given out once."""
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no port is free")


def wait_until(condition, seconds=20, what="condition"):
    """Polls for an outcome with a limit: fails when it does not come, never passes by luck of timing."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come true within {seconds} s")


def on_this_machine(seconds):
    """A limit that holds on an idle machine, longer where others use it too: by the load of the last minute for each processor."""
    return seconds * max(1.0, 1.5 * os.getloadavg()[0] / os.cpu_count())


class Gateway:
    """One openshell-gateway with everything it needs below `root`. `user`: the uid that it runs as; it must own nothing else."""

    def __init__(self, root, driver_options="", user=None):
        self.root = pathlib.Path(root)
        self.prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        self.bin = BIN
        if user:  # a user of its own cannot pass through a checkout below /root
            shutil.copytree(BIN, self.root / "bin", ignore=lambda folder, names: [n for n in names if not n.startswith("openshell")])
            shutil.copytree(BIN.parent / "bundle", self.root / "bundle", symlinks=True)
            self.bin = self.root / "bin"
            os.chown(self.root, user, user)
        self.port = free_port()
        self.endpoint = f"https://127.0.0.1:{self.port}"
        self.state, self.run, self.config = self.root / "state", self.root / "run", self.root / "config"
        for folder in (self.state, self.run, self.config):
            folder.mkdir(mode=0o711)
            if user:
                os.chown(folder, user, user)
        self.environment = {
            "PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.root), "NO_COLOR": "1", "XDG_CONFIG_HOME": str(self.config),
            "OPENSHELL_STATE_DIR": str(self.state), "OPENSHELL_RUN_DIR": str(self.run), "OPENSHELL_LOCAL_TLS_DIR": str(self.state / "tls"),
        }
        self.file = self.root / "gateway.toml"
        self.file.write_text(f"""
[openshell]
version = 2
[openshell.gateway]
bind_address = "127.0.0.1:{self.port}"
compute_driver = "process"
[openshell.drivers.process]
{driver_options}
""")
        self.process = None
        self.log = (self.root / "gateway.log").open("ab")
        self.command("openshell-gateway", "generate-certs", "--output-dir", str(self.state / "tls"), "--no-client-copy")

    def command(self, *words, check=True, **options):
        result = subprocess.run([*self.prefix, *words], env=self.environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options)
        if check and result.returncode != 0:
            raise AssertionError(f"{words} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
        return result

    def cli(self, *words, **options):
        return self.command("openshell", *words, **options)

    def start(self):
        self.start_process()
        wait_until(self.answers, what="the gateway's answer")

    def start_process(self):
        words = [*self.prefix, str(self.bin / "openshell-gateway"), "--config", str(self.file)]
        self.process = subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the gateway ended with {self.process.returncode}:\n{(self.root / 'gateway.log').read_text()[-3000:]}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self, with_signal=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(with_signal)
            self.process.wait(30)

    def tls(self):
        client = self.state / "tls" / "client"
        return openshell.TlsConfig(ca_path=self.state / "tls" / "ca.crt", cert_path=client / "tls.crt", key_path=client / "tls.key")

    def client(self, **options):
        return openshell.SandboxClient(f"127.0.0.1:{self.port}", tls=self.tls(), **options)


@contextlib.contextmanager
def running_gateway(scratch, short, name=None, **options):
    """A gateway in the folder `short` (the paths of sockets have 107 bytes), known to its own command line where there is a `name`. It ends in any case."""
    folder = scratch / short
    folder.mkdir(mode=0o711)
    made = Gateway(folder, **options)
    try:
        made.start()
        if name:
            made.cli("gateway", "add", made.endpoint, "--local", "--name", name)
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def scratch():
    # Not below the home directory: the supervisor runs under another uid and must pass through.
    root = pathlib.Path(tempfile.mkdtemp(prefix="oe-"))
    root.chmod(0o711)
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def gateway(scratch):
    with running_gateway(scratch, "g", "e2e") as made:
        yield made


@pytest.fixture(scope="session")
def client(gateway):
    with gateway.client() as made:
        yield made


def create_ready(client, name, **options):
    client.create(workspace=WORKSPACE, name=name, **options)
    return client.wait_ready(name, workspace=WORKSPACE, timeout_seconds=30)


def delete_gone(client, name):
    client.delete(name, workspace=WORKSPACE, allow_missing=True)
    client.wait_deleted(name, workspace=WORKSPACE, timeout_seconds=30)


@pytest.fixture(scope="module")
def issuer():
    made = Issuer()
    yield made
    made.end()


@pytest.fixture(scope="module")
def sandbox(client):
    """One sandbox under the default policy, shared by the tests of a module."""
    reference = create_ready(client, "shared")
    yield reference
    delete_gone(client, "shared")
