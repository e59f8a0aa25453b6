"""What the themes measure in: a gateway, a sandbox that holds the load client, the upstream, and the load clients run natively or inside."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import rivals
from conftest import BIN, WORKSPACE, Gateway, delete_gone
from openshell._proto import openshell_pb2, sandbox_pb2

LOAD = BIN.parent / "bench"
ALIAS = "host.openshell.internal"
IN_MEMORY = next((place for place in ("/run", "/dev/shm") if os.access(place, os.W_OK) and f" {place} tmpfs " in pathlib.Path("/proc/mounts").read_text()), "/tmp")


def milliseconds(action):
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def run_json(words, **options):
    result = subprocess.run(words, capture_output=True, text=True, timeout=240, **options)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))} ended with {result.returncode}: {result.stderr.strip()[-300:]}")
    return json.loads(result.stdout)


def words_of(verb, options):
    return [verb, *(f"{name}={value}" for name, value in options.items() if value is not None)]


def native(verb, **options):
    return run_json([LOAD / "bench_client", *words_of(verb, options)])


def pss_anonymous(pid):
    """Private anonymous memory in MiB."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss_Anon:\s+(\d+)", text, re.M).group(1)) / 1024


def endpoint(port, **more):
    return sandbox_pb2.NetworkEndpoint(host=ALIAS, ports=[port], **more)


def policy(*endpoints):
    """Reads system files, writes its folder, and reaches the given endpoints from any program."""
    made = sandbox_pb2.SandboxPolicy(version=1)
    made.filesystem.include_workdir = True
    made.filesystem.read_only.extend(["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/proc", "/dev/urandom"])
    made.filesystem.read_write.extend(["/sandbox", "/tmp", "/dev/null", "/dev/zero", "/dev/tty"])
    made.landlock.compatibility = "hard_requirement"
    made.process.run_as_user = made.process.run_as_group = "sandbox"
    if endpoints:
        rule = made.network_policies["bench"]
        rule.name = "bench"
        rule.endpoints.extend(endpoints)
        rule.binaries.add(path="/sandbox/bench_client")
    return made


def inspected(port):
    rule = sandbox_pb2.L7Rule()
    rule.allow.method, rule.allow.path = "GET", "/**"
    return endpoint(port, protocol="rest", enforcement=sandbox_pb2.NETWORK_ENFORCEMENT_MODE_ENFORCE, rules=[rule])


def fixed_endpoints(world):
    """What the sandbox `bench` may reach: both HTTP ports inspected, the raw one passed."""
    return inspected(world.upstream.http), inspected(world.upstream.https), endpoint(world.upstream.raw)


class Upstream:
    """The load server with a certificate of a CA of its own."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(mode=0o755)
        self.ca = folder / "ca.pem"
        script = f"""
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj '/CN=bench CA' -keyout ca.key -out ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN={ALIAS}' -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile <(printf 'subjectAltName=DNS:{ALIAS},DNS:localhost\\n')
"""
        subprocess.run(["bash", "-ec", script], cwd=folder, check=True, capture_output=True)
        self.process = subprocess.Popen([LOAD / "bench_server", folder / "server.pem", folder / "server.key"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.http, self.https, self.raw = map(int, self.process.stdout.readline().split())

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)


class World:
    """Made once per run. Parts that a theme does not need are not made: sandbox and upstream come on first use."""

    def __init__(self, report):
        self.report = report
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="ob-"))
        self.root.chmod(0o711)
        self._upstream = self._client = self._gateway = self._proxies = None
        self.sandbox_made = False
        self.run_folders = []

    @property
    def upstream(self):
        if self._upstream is None:
            self._upstream = Upstream(self.root / "upstream")
        return self._upstream

    def new_gateway(self, name):
        folder = self.root / name
        folder.mkdir(mode=0o711)
        gateway = Gateway(folder)
        # /run is in memory on any Debian; where it is not, as in a container, something else that is stands for it.
        run = pathlib.Path(tempfile.mkdtemp(prefix="ob-", dir=IN_MEMORY))
        run.chmod(0o711)
        self.run_folders.append(run)
        gateway.environment["OPENSHELL_RUN_DIR"] = str(run)
        gateway.file.write_text(gateway.file.read_text() + f"""
[openshell.supervisor]
denial_flush_interval_secs = 1
[openshell.supervisor.network]
additional_ca_bundle = "{self.upstream.ca}"
""")
        return gateway

    @property
    def gateway(self):
        if self._gateway is None:
            self._gateway = self.new_gateway("g")
            self._gateway.start()
        return self._gateway

    @property
    def client(self):
        if self._client is None:
            self._client = self.gateway.client()
            self._client.health()
        return self._client

    def create(self, name, policy_message=None, client=None, wait=True):
        client = client or self.client
        spec = openshell_pb2.SandboxSpec(policy=policy_message) if policy_message else None
        client.create(workspace=WORKSPACE, name=name, **({"spec": spec} if spec else {}))
        if wait:
            client.wait_ready(name, workspace=WORKSPACE, timeout_seconds=60)

    def delete(self, name):
        delete_gone(self.client, name)

    def sandbox(self):
        """The one sandbox `bench`, under a policy that inspects the HTTP ports and passes the raw one."""
        if not self.sandbox_made:
            self.create("bench", policy(*fixed_endpoints(self)))
            self.upload("bench", LOAD / "bench_client", "/sandbox/bench_client")
            self.sandbox_made = True
        return "bench"

    def upload(self, sandbox, source, target):
        self.gateway.cli("gateway", "add", self.gateway.endpoint, "--local", "--name", "bench", check=False)
        with open(source, "rb") as content:
            words = [*self.gateway.prefix, "openshell", "sandbox", "exec", "-n", sandbox, "--no-tty", "--", "bash", "-c", f"cat > {target} && chmod 755 {target}"]
            subprocess.run(words, env=self.gateway.environment, stdin=content, check=True, timeout=60)

    def inside_words(self, sandbox, words):
        return ["openshell", "sandbox", "exec", "-n", sandbox, "--no-tty", "--", *words]

    def inside(self, verb, **options):
        """The load client in the sandbox; its own clock measures, the exec around it does not count."""
        words = self.inside_words(self.sandbox(), ["/sandbox/bench_client", *words_of(verb, options)])
        return run_json(words, env=self.gateway.environment, stdin=subprocess.DEVNULL)

    def start_inside(self, verb, **options):
        words = self.inside_words(self.sandbox(), ["/sandbox/bench_client", *words_of(verb, options)])
        return subprocess.Popen(words, env=self.gateway.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def processes_of(self, name):
        """pids of supervisor, runtime and monitor of a sandbox: found by its id, the monitor as the parent of both."""
        identity = self.client.get(name, workspace=WORKSPACE).id
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                parent = int(re.search(r"^PPid:\s+(\d+)", (folder / "status").read_text(), re.M).group(1))
            except (OSError, AttributeError):
                continue
            line = b" ".join(words)
            if b"openshell-supervisor" in words[0] and identity.encode() in line:
                found["supervisor"], found["monitor"] = int(folder.name), parent
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"PPid:\t{found.get('monitor')}\n" in (folder / "status").read_text() and int(folder.name) != found["supervisor"]:
                    found["runtime"] = int(folder.name)
            except OSError:
                continue
        if len(found) != 3:
            raise RuntimeError(f"the processes of sandbox {name} were not found: {found}")
        return found

    def grpc(self, verb, count, outstanding, name="", gateway=None):
        gateway = gateway or self.gateway
        tls = gateway.state / "tls"
        return run_json([LOAD / "bench_grpc", f"localhost:{gateway.port}", tls / "ca.crt", tls / "client/tls.crt", tls / "client/tls.key", verb, str(count), str(outstanding), name])

    def proxies(self, build):
        """The rivals among the proxies, started on first use: squid, mitmproxy, each or none."""
        if self._proxies is None:
            self._proxies = {}
            for made in (rivals.squid(self.report, self.root, self.upstream.ca), rivals.mitmproxy(self.report, build, self.root, self.upstream.ca)):
                if made:
                    self._proxies[made.name] = made
        return self._proxies

    def end(self):
        for proxy in (self._proxies or {}).values():
            proxy.end()
        if self._client:
            self._client.close()
        if self._gateway:
            self._gateway.end()
        if self._upstream:
            self._upstream.end()
        for folder in (self.root, *self.run_folders):
            shutil.rmtree(folder, ignore_errors=True)
