"""The programs that agents use, inside a sandbox, against a site of the network: by name and by address, over HTTP and HTTPS through
interception, allowed and refused. What each says when it is refused stands in docs/programs.md."""

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest
from conftest import WORKSPACE, Gateway, create_ready, delete_gone
from program_servers import ADDRESS, GIT_BACKEND, NAME, Names, Neighbour, Site

SITE = """
version: 1
network_policies:
  site:
    endpoints:
      - host: {name}
        ports: [{http}, {https}]
        protocol: rest
        enforcement: enforce
        rules: &rules
          - allow: {{method: GET, path: /hello}}
          - allow: {{method: GET, path: "/simple/**"}}
          - allow: {{method: GET, path: "/wheels/**"}}
          - allow: {{method: GET, path: "/npm/**"}}
          - allow: {{method: GET, path: "/git/**"}}
          - allow: {{method: POST, path: "/git/demo.git/git-upload-pack"}}
      - host: "{address}"
        ports: [{http}, {https}]
        protocol: rest
        enforcement: enforce
        rules: *rules
    binaries:
      - path: "/**"
"""

JAVA = """
import java.net.URI; import java.net.http.*;
public class Get { public static void main(String[] a) throws Exception {
  var client = HttpClient.newBuilder();  // by default it asks plain HTTP servers to change to HTTP/2, which no inspected endpoint does
  if (a[0].startsWith("http:") && a.length == 1) client.version(HttpClient.Version.HTTP_1_1);
  var answer = client.build().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString());
  System.out.print(answer.statusCode() == 200 ? answer.body() : answer.statusCode() + " " + answer.body());
  System.exit(answer.statusCode() == 200 ? 0 : 1);
} }
"""
URLLIB = "import sys,urllib.request as u; print(u.urlopen(sys.argv[1],timeout=20).read().decode(),end='')"
REQUESTS = "import sys,requests; r=requests.get(sys.argv[1],timeout=20); print(r.text,end=''); r.raise_for_status()"
ASYNCIO = """
import sys,asyncio,ssl,urllib.parse
async def main(url):
    u=urllib.parse.urlsplit(url)
    r,w=await asyncio.open_connection(u.hostname,u.port,ssl=ssl.create_default_context() if u.scheme=='https' else None)
    w.write(f'GET {u.path} HTTP/1.1\\r\\nHost: {u.netloc}\\r\\nConnection: close\\r\\n\\r\\n'.encode())
    head,_,body=(await r.read()).partition(b'\\r\\n\\r\\n')
    print(body.decode(),end=''); sys.exit(0 if b' 200 ' in head.split(b'\\r\\n')[0] else 1)
asyncio.run(main(sys.argv[1]))
"""
AIOHTTP = """
import sys,asyncio,aiohttp
async def main(url):
    async with aiohttp.ClientSession() as s, s.get(url) as r:
        print(await r.text(),end=''); r.raise_for_status()
asyncio.run(main(sys.argv[1]))
"""
FETCH = "fetch(process.argv[1]).then(async r=>{process.stdout.write(await r.text());process.exitCode=r.ok?0:1})"
PYTHON = "/usr/bin/python3"

PROGRAMS = {
    "curl": ("curl", lambda url: ["curl", "-sS", "--fail-with-body", "--max-time", "20", url]),
    "wget": ("wget", lambda url: ["wget", "-nv", "-T", "20", "-t", "1", "--content-on-error", "-O", "-", url]),
    "python urllib": (PYTHON, lambda url: [PYTHON, "-c", URLLIB, url]),
    "python requests": (PYTHON, lambda url: [PYTHON, "-c", REQUESTS, url]),
    "python asyncio": (PYTHON, lambda url: [PYTHON, "-c", ASYNCIO, url]),
    "python aiohttp": (PYTHON, lambda url: [PYTHON, "-c", AIOHTTP, url]),
    "node fetch": ("node", lambda url: ["node", "-e", FETCH, url]),
    "java HttpClient": ("java", lambda url: ["java", "-Xint", "-cp", "/sandbox/java", "Get", url]),
}
PRESENT = {name: program for name, program in PROGRAMS.items() if shutil.which(program[0])}
OURS = {}  # what each program said when it was refused; written to BUILD/programs.json for docs/programs.md


@pytest.fixture(scope="module")
def site(scratch):
    if os.geteuid() != 0:
        pytest.skip("needs root, to add an address to the host")
    folder = scratch / "site"
    folder.mkdir(mode=0o711)
    with Neighbour():
        made = Site(folder)
        yield made
        made.end()


@pytest.fixture(scope="module")
def names():
    made = Names()
    yield made
    made.end()


@pytest.fixture(scope="module")
def home(scratch, site, names):
    folder = scratch / "programs"
    folder.mkdir(mode=0o711)
    made = Gateway(folder)
    made.file.write_text(made.file.read_text() + f"""
[openshell.supervisor.network]
additional_ca_bundle = "{site.ca}"
resolver = ["{names.address}"]
""")
    made.start()
    made.cli("gateway", "add", made.endpoint, "--local", "--name", "programs")
    yield made
    made.end()


@pytest.fixture(scope="module")
def libraries():
    """requests and aiohttp for the sandbox's python3, as a tar; None where they can not be had."""
    target = pathlib.Path(os.environ["OPENSHELL_BUILD_DIR"]) / "e2e-programs"
    if not (target / "aiohttp").exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(target), "requests==2.32.3",
                        "aiohttp==3.11.11"], capture_output=True)
    if not (target / "aiohttp").exists():
        return None
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        tar.add(target, "lib", filter=lambda info: None if "__pycache__" in info.name else info)
    return out.getvalue()


@pytest.fixture(scope="module")
def agent(home, site, libraries):
    """The sandbox, with what a person would have put into it. Returns a function that runs a command there."""
    policy = home.root / "site.yaml"
    policy.write_text(SITE.format(name=NAME, address=ADDRESS, http=site.http, https=site.https))
    home.cli("sandbox", "create", "--name", "agent", "--policy", str(policy), "--detach")
    with home.client() as client:
        client.wait_ready("agent", workspace=WORKSPACE, timeout_seconds=60)

        def run(words, stdin=None, limit=90, **env):
            env = {"PYTHONPATH": "/sandbox/lib", "HOME": "/sandbox", **env}
            return client.exec("agent", words, workspace=WORKSPACE, env=env, stdin=stdin, timeout_seconds=limit)

        if libraries:
            size = 512 * 1024  # a request holds 1 MiB at most
            for at in range(0, len(libraries), size):
                assert run(["sh", "-c", "cat >> /sandbox/lib.tgz"], libraries[at:at + size]).exit_code == 0
            assert run(["tar", "-xzf", "/sandbox/lib.tgz", "-C", "/sandbox"]).exit_code == 0
        if shutil.which("javac"):
            compiled = run(["sh", "-c", "mkdir -p /sandbox/java && cat > /sandbox/java/Get.java && javac -J-Xint -d /sandbox/java /sandbox/java/Get.java"],
                           JAVA.encode(), 120)
            assert compiled.exit_code == 0, compiled.stderr
        yield run
        delete_gone(client, "agent")
    (pathlib.Path(os.environ["OPENSHELL_BUILD_DIR"]) / "programs.json").write_text(json.dumps(OURS, indent=1, ensure_ascii=False))


def needs(name, libraries):
    if name not in PRESENT:
        pytest.skip(f"{PROGRAMS[name][0]} is not on this machine")
    if name in ("python requests", "python aiohttp") and libraries is None:
        pytest.skip("requests and aiohttp could not be installed from the package index")


def trust(agent, name, scheme):
    """Java has a store of its own: docs/programs.md tells how it gets the sandbox's certificate."""
    if not name.startswith("java") or scheme == "http":
        return {}
    made = agent(["sh", "-c", 'test -f /sandbox/trust.p12 || keytool -J-Xint -importcert -noprompt -alias openshell -file "$NODE_EXTRA_CA_CERTS" '
                  "-keystore /sandbox/trust.p12 -storepass changeit"], limit=120)
    assert made.exit_code == 0, made.stdout + made.stderr
    return {"JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStore=/sandbox/trust.p12 -Djavax.net.ssl.trustStorePassword=changeit"}


def urls(site, host, path):
    return {"http": f"http://{host}:{site.http}{path}", "https": f"https://{host}:{site.https}{path}"}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", [NAME, ADDRESS], ids=["by-name", "by-address"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_allowed_works(agent, site, libraries, name, host, scheme):
    """NET-01: without proxy variables. DRV-45: wget reads no variable and trusts the mounted bundle."""
    needs(name, libraries)
    site.seen.clear()
    result = agent(PROGRAMS[name][1](urls(site, host, "/hello")[scheme]), **trust(agent, name, scheme))
    assert result.exit_code == 0, result.stdout + result.stderr
    assert result.stdout == f"hello over {scheme}\n"
    assert [(each[0], each[2]) for each in site.seen] == [(scheme, "/hello")]


def test_java_s_default_upgrade_to_http_2_is_refused_in_so_many_words(agent, site, libraries):
    needs("java HttpClient", libraries)
    site.seen.clear()
    result = agent([*PROGRAMS["java HttpClient"][1](urls(site, NAME, "/hello")["http"]), "default-version"])
    OURS.setdefault("java HttpClient", {})["its default version over http"] = result.stdout
    assert result.exit_code == 1 and "HTTP/2 cleartext upgrade (h2c) is not supported" in result.stdout and site.seen == []


REFUSALS = {
    "a path that no rule allows": lambda site, scheme: urls(site, NAME, "/secret")[scheme],
    "a host that no rule names": lambda site, scheme: urls(site, "other.programs.test", "/hello")[scheme],
    "a port that no rule names": lambda site, scheme: f"{scheme}://{NAME}:8099/hello",
    "an address that no rule names": lambda site, scheme: f"{scheme}://10.253.77.2:{site.http if scheme == 'http' else site.https}/hello",
}


def telling(output):
    """Words from which a person sees that it was refused, as docs/programs.md lists them. A connect that does not wait is told EACCES only
    where the answer comes within its 5 ms; on a busy host it is told ECONNREFUSED."""
    low = output.lower()
    return any(word in low for word in ("policy", "403", "forbidden", "permission denied", "eacces", "not permitted", "could not resolve",
                                        "unable to resolve", "name or service not known", "name resolution", "enotfound", "failed to connect",
                                        "couldn't connect", "connection refused", "econnrefused", "connect call failed", "connectexception"))


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("what", REFUSALS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_refused_fails_at_once_with_an_error_that_tells(agent, site, libraries, name, what, scheme):
    needs(name, libraries)
    site.seen.clear()
    result = agent(PROGRAMS[name][1](REFUSALS[what](site, scheme)), limit=60, **trust(agent, name, scheme))
    output = (result.stdout + result.stderr).strip()
    OURS.setdefault(name, {})[f"{what}, {scheme}"] = output if len(output) < 700 else output[:250] + " ... " + output[-450:]
    assert result.exit_code not in (0, 124), output
    assert site.seen == [], "nothing arrives"
    assert telling(output), output
    if what.startswith("a path"):
        assert "403" in output or "policy" in output.lower()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", [NAME, ADDRESS], ids=["by-name", "by-address"])
def test_git_clones_and_may_not_push(agent, site, host, scheme):
    if not shutil.which("git") or not GIT_BACKEND.exists():
        pytest.skip("git, or its http backend, is not on this machine")
    site.seen.clear()
    url, folder = urls(site, host, "/git/demo.git")[scheme], f"/sandbox/clone-{scheme}-{host}"
    result = agent(["git", "clone", "-q", url, folder])
    assert result.exit_code == 0, result.stderr
    assert agent(["cat", f"{folder}/README"]).stdout == "hello from git\n"
    push = agent(["sh", "-c", f"cd {folder} && echo x > x && git add x && git -c user.name=a -c user.email=a@b commit -qm x && git push -q"])
    OURS.setdefault("git", {})[f"push, {scheme}"] = (push.stdout + push.stderr).strip()[-700:]
    assert push.exit_code != 0 and "403" in push.stderr, push.stderr
    assert not [each for each in site.seen if each[1] == "POST" and "receive-pack" in each[2]], "no push arrives"
    other = agent(["git", "clone", "-q", urls(site, "other.programs.test", "/git/demo.git")[scheme], "/sandbox/never"])
    OURS["git"][f"clone from a host that no rule names, {scheme}"] = other.stderr.strip()[-700:]
    assert other.exit_code != 0 and telling(other.stderr), other.stderr


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_pip_installs_from_the_index_it_may_use(agent, site, scheme):
    if agent([PYTHON, "-m", "pip", "--version"]).exit_code != 0:
        pytest.skip("the host's python3 has no pip")
    index = urls(site, NAME, "/simple/")[scheme]
    words = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--retries", "1", "--timeout", "15"]
    words += ["--trusted-host", NAME, "--trusted-host", "pypi.example"] if scheme == "http" else []
    target = f"/sandbox/pip-{scheme}"
    result = agent([*words, "--target", target, "--index-url", index, "demo-wheel"], limit=120)
    assert result.exit_code == 0, result.stderr
    assert agent([PYTHON, "-c", "import demo_wheel; print(demo_wheel.WORDS)"], PYTHONPATH=target).stdout == "hello from pip\n"
    refused = agent([*words, "--target", f"{target}-2", "--index-url", urls(site, NAME, "/other/")[scheme], "demo-wheel"], limit=120)
    OURS.setdefault("pip", {})[f"an index whose path no rule allows, {scheme}"] = refused.stderr.strip()[-700:]
    assert refused.exit_code != 0
    foreign = agent([*words, "--target", f"{target}-3", "--index-url", f"{scheme}://pypi.example/simple/", "demo-wheel"], limit=120)
    OURS["pip"][f"an index that no rule names, {scheme}"] = foreign.stderr.strip()[-700:]
    assert foreign.exit_code != 0 and telling(foreign.stderr), foreign.stderr


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_npm_installs_from_the_registry_it_may_use(agent, site, scheme):
    if not shutil.which("npm") or agent(["npm", "--version"]).exit_code != 0:
        pytest.skip("npm is not on this machine")
    words = ["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=0", "--cache", f"/tmp/npm-{scheme}", "--prefix"]
    folder = f"/sandbox/npm-{scheme}"
    agent(["mkdir", "-p", folder])
    result = agent([*words, folder, f"--registry={urls(site, NAME, '/npm/')[scheme]}", "demo-npm"], limit=120)
    assert result.exit_code == 0, result.stderr
    assert agent(["node", "-p", f"require('{folder}/node_modules/demo-npm')"]).stdout == "hello from npm\n"
    refused = agent([*words, f"{folder}-2", f"--registry={urls(site, NAME, '/other/')[scheme]}", "demo-npm"], limit=120)
    OURS.setdefault("npm", {})[f"a registry whose path no rule allows, {scheme}"] = refused.stderr.strip()[-700:]
    assert refused.exit_code != 0 and telling(refused.stderr), refused.stderr
    foreign = agent([*words, f"{folder}-3", f"--registry={scheme}://npm.example/", "demo-npm"], limit=120)
    OURS["npm"][f"a registry that no rule names, {scheme}"] = foreign.stderr.strip()[-700:]
    assert foreign.exit_code != 0 and telling(foreign.stderr), foreign.stderr


def test_M3_one_connection_carries_many_requests_and_a_refusal_is_honest_about_it(agent, site):
    """The plain path closed after each answer without saying so, and the client's next request broke."""
    script = f"""
import http.client
for scheme, port, kind in (('http', {site.http}, http.client.HTTPConnection), ('https', {site.https}, http.client.HTTPSConnection)):
    c = kind('{NAME}', port, timeout=20)
    sockets = set()
    for path in ('/hello', '/hello', '/hello', '/secret', '/hello', '/nothing'):
        c.request('GET', path)
        r = c.getresponse()
        body = r.read()
        closing = (r.getheader('connection') or '').lower() == 'close'
        print(scheme, path, r.status, 'close' if closing else 'keep')
        if c.sock is not None: sockets.add(c.sock.fileno())
        if closing: assert c.sock is None
        else: assert c.sock is not None, 'closed without a word'
    c.close()
"""
    result = agent([PYTHON, "-c", script])
    assert result.exit_code == 0, result.stdout + result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[2] for line in lines] == ["200", "200", "200", "403", "200", "403"] * 2, result.stdout
    assert all(line[3] == "keep" for line in lines if line[2] == "200"), result.stdout


def test_curl_reuses_a_connection_after_answers_of_every_kind(agent, site):
    for scheme in ("http", "https"):
        base = urls(site, NAME, "")[scheme]
        result = agent(["curl", "-sS", "-w", "%{http_code} %{num_connects}\\n", "-o", "/dev/null", f"{base}/hello", "-o", "/dev/null", f"{base}/hello",
                        "-o", "/dev/null", f"{base}/simple/none", "-o", "/dev/null", f"{base}/hello"])
        assert result.exit_code == 0, result.stderr
        assert result.stdout.splitlines() == ["200 1", "200 0", "404 0", "200 0"], result.stdout
