"""Questions to a policy file by the command line alone: explain, test, replay. No gateway, no configuration, no network."""

import json
import os
import subprocess

import pytest
from conftest import BIN

WEATHER = """\
version: 1
network_policies:
  weather:
    endpoints: [{host: api.weather.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}]
    binaries: [/usr/bin/curl]
"""
POST = ("--to", "api.weather.test:443", "--binary", "/usr/bin/curl", "--method", "POST", "--path", "/v1/items")


class Offline:
    """The command line alone: no configuration directory, no network."""

    def __init__(self, root):
        self.root = root

    def __call__(self, *words, stdin=None):
        command = ["unshare", "--net", "--map-root-user"] if os.geteuid() else ["unshare", "--net"]
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "NO_COLOR": "1"}
        return subprocess.run([*command, str(BIN / "openshell"), "policy", *words], cwd=self.root, env=environment, input=stdin, capture_output=True,
                              text=True, timeout=60)


@pytest.fixture
def offline(tmp_path):
    (tmp_path / "p.yaml").write_text(WEATHER)
    return Offline(tmp_path)


def test_explain_says_what_decides_what_is_near_and_what_would_help(offline):
    denied = offline("explain", "--policy", "p.yaml", *POST)
    assert denied.returncode == 1
    assert denied.stdout == """\
deny  POST api.weather.test:443/v1/items by /usr/bin/curl
rule:    weather endpoint 0 (rest, enforce)
reason:  POST /v1/items not permitted by policy
near:    weather: method
change:  openshell policy update --rule-name weather --binary /usr/bin/curl --add-allow 'api.weather.test:443:POST:/v1/items'
"""
    allowed = offline("explain", "--policy", "p.yaml", "-o", "json", "--to", "API.weather.test.:443", "--binary", "/usr/bin/curl", "--method", "GET",
                      "--path", "/v1/./items?a=b")
    assert allowed.returncode == 0
    assert json.loads(allowed.stdout) == {"decision": "allow", "rule": "weather", "endpoint_index": 0, "near": [], "smallest_change": None}
    as_document = offline("explain", "--policy", "p.yaml", "--input", "-", "-o", "json",
                          stdin='{"network": {"host": "api.weather.test", "port": 443}, "exec": {"path": "/usr/bin/wget"}}')
    assert as_document.returncode == 1
    assert json.loads(as_document.stdout)["near"] == [{"rule": "weather", "failed_field": "binary"}]


def test_whatever_keeps_the_answer_from_being_computed_ends_2(offline):
    (offline.root / "broken.yaml").write_text(WEATHER.replace("access:", "acess:"))
    broken = offline("explain", "--policy", "broken.yaml", *POST)
    assert broken.returncode == 2 and "broken.yaml:4:" in broken.stderr and "did you mean 'access'?" in broken.stderr
    for words in (("explain", "--policy", "absent.yaml", *POST), ("explain", "--policy", ".", *POST), ("explain", "--policy", "p.yaml"),
                  ("explain", "--policy", "p.yaml", "--to", "a.test", "--binary", "/b"), ("explain", *POST), ("explain", "box", "--policy", "p.yaml", *POST),
                  ("explain", "--policy", "p.yaml", "--input", "-", "--to", "a.test:1"), ("explain", "--policy", "p.yaml", *POST[:-2]),
                  ("test", "--policy", "p.yaml", "absent"), ("test", "p.yaml"), ("replay", "--policy", "p.yaml", "--decisions", "absent"),
                  ("replay", "box", "--policy", "p.yaml", "--decisions", "-"), ("replay", "--policy", "p.yaml", "--decisions", "-", "--since", "soon")):
        answer = offline(*words, stdin="")
        assert answer.returncode == 2, (words, answer)
        assert answer.stderr.strip(), words


TESTS = """\
tests:
  - name: post is refused
    input: {network: {host: api.weather.test, port: 443}, exec: {path: /usr/bin/curl}, request: {method: POST, path: /v1/items, query_params: {}}}
    expect: deny
    rule: weather
    reason: not permitted by policy
  - name: get passes
    input: {network: {host: api.weather.test, port: 443}, exec: {path: /usr/bin/curl}, request: {method: GET, path: /v1/items}}
    expect: allow
  - name: another program
    input: {network: {host: api.weather.test, port: 443}, exec: {path: /usr/bin/wget}}
    expect: %s
"""


def test_a_table_of_tests_is_an_exit_code(offline):
    (offline.root / "good.yaml").write_text(TESTS % "deny")
    good = offline("test", "--policy", "p.yaml", "good.yaml")
    assert good.returncode == 0 and good.stdout.endswith("3 passed, 0 failed\n")
    wrong = offline("test", "--policy", "p.yaml", "-", stdin=TESTS % "allow")
    assert wrong.returncode == 1
    assert "FAIL  another program: expected allow, got deny (no rule)" in wrong.stdout and wrong.stdout.endswith("2 passed, 1 failed\n")
    both = offline("test", "--policy", "p.yaml", "good.yaml", "-", "-o", "json", stdin=TESTS % "allow")
    answer = json.loads(both.stdout)
    assert both.returncode == 1 and (answer["passed"], answer["failed"], len(answer["tests"])) == (5, 1, 6)
    assert answer["tests"][0] == {"name": "post is refused", "ok": True, "expect": "deny", "decision": "deny", "rule": "weather",
                                  "reason": "POST /v1/items not permitted by policy"}
    relaxed = offline("test", "--policy", "p.yaml", "--relaxed", "-", stdin=TESTS % "allow")
    assert relaxed.returncode == 0, relaxed.stdout
    for fault, text in ((TESTS % "block", "<stdin>:12:13: expect is allow, deny or audit"), (TESTS.replace("another program", "get passes") % "deny", "two tests are named"),
                        ((TESTS % "deny").replace("expect: deny\n    rule", "because: x\n    rule"), "unknown field 'tests[0].because'"), ("tests: []", "at least one test")):
        refused = offline("test", "--policy", "p.yaml", "-", stdin=fault)
        assert refused.returncode == 2 and text in refused.stderr, (text, refused.stderr)


RECORD = ('{"time":"2026-01-02T03:04:05.678Z","generation":7,"policy_hash":"%s","input":{"network":{"host":"api.weather.test","port":443},'
          '"exec":{"path":"/usr/bin/curl","ancestors":[],"cmdline_paths":[]},"request":{"method":"GET","path":"/v1","query_params":{}}},"decision":"allow"}\n')


def test_replay_of_a_file(offline):
    (offline.root / "none.yaml").write_text("version: 1\n")
    records = RECORD % ("ab" * 32) * 3
    same = offline("replay", "--policy", "p.yaml", "--decisions", "-", stdin=records)
    assert same.returncode == 0 and same.stdout == "3 decisions, 0 changed, 0 unresolved (recorded under abababababab)\n"
    other = offline("replay", "--policy", "none.yaml", "--decisions", "-", "--save", "kept.jsonl", stdin=records)
    assert other.returncode == 1
    assert other.stdout.splitlines()[0] == "allow -> deny  3x  GET api.weather.test:443/v1 by /usr/bin/curl"
    assert (offline.root / "kept.jsonl").read_text() == records
    late = offline("replay", "--policy", "none.yaml", "--decisions", "kept.jsonl", "--since", "1h", "-o", "json")
    assert late.returncode == 0 and json.loads(late.stdout)["decisions"] == 0
    few = offline("replay", "--policy", "none.yaml", "--decisions", "kept.jsonl", "--limit", "2", "-o", "json")
    answer = json.loads(few.stdout)
    assert (answer["decisions"], answer["changed"], answer["changes"][0]["count"]) == (2, 2, 2)
    broken = offline("replay", "--policy", "p.yaml", "--decisions", "-", stdin=records + "{}\n")
    assert broken.returncode == 2 and "<stdin>:4:" in broken.stderr
