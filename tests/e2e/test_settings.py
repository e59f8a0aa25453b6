"""Settings and the global policy, from the command line to what the workload notices."""

import json

import pytest
from conftest import WORKSPACE, create_ready, delete_gone, running_gateway, wait_until
from test_approval import HOST, Listener

KEYS = {"ocsf_json_enabled", "ocsf_schema_version", "agent_policy_proposals_enabled", "proposal_approval_mode", "network.denied_http"}
POLICY = """\
version: 1
network_policies:
  listed:
    endpoints: [{{host: host.openshell.internal, port: {port}}}]
    binaries: [{{path: "**/bash"}}]
"""


@pytest.fixture(scope="module")
def own(scratch):
    """A gateway of its own: what is global here concerns nobody else."""
    with running_gateway(scratch, "set", "settings") as made:
        yield made


@pytest.fixture(scope="module")
def api(own):
    with own.client() as made:
        yield made


@pytest.fixture
def listener():
    made = Listener()
    yield made
    made.socket.close()


@pytest.fixture
def box(own, api, listener):
    policy = own.root / "policy.yaml"
    policy.write_text(POLICY.format(port=listener.port))
    own.cli("sandbox", "create", "--name", "box", "--policy", str(policy), "--detach")
    api.wait_ready("box", workspace=WORKSPACE, timeout_seconds=30)
    yield "box"
    delete_gone(api, "box")


def settings(own, *words):
    return json.loads(own.cli("settings", "get", *words, "--json").stdout)


def connect(own, port):
    return own.cli("sandbox", "exec", "-n", "box", "--no-tty", "--", "bash", "-c", f"exec 3<>/dev/tcp/{HOST}/{port} && echo connected", check=False)


def test_every_registered_key_is_shown_also_unset(own, box):
    shown = settings(own, box)
    assert set(shown["settings"]) == KEYS and {one["scope"] for one in shown["settings"].values()} == {"unset"}
    assert "network.denied_http = <unset> (unset)" in own.cli("settings", "get", box).stdout
    assert set(settings(own, "--global")["settings"]) == KEYS
    refused = own.cli("settings", "get", box, "--global", check=False)
    assert refused.returncode != 0 and "does not accept a sandbox name" in refused.stderr


def test_a_wrong_key_names_the_nearest_and_a_wrong_value_the_right_ones(own, box):
    wrong = own.cli("settings", "set", box, "--key", "network.denied_htp", "--value", "explain", check=False)
    assert wrong.returncode == 1 and "network.denied_http" in wrong.stderr
    wrong = own.cli("settings", "set", box, "--key", "proposal_approval_mode", "--value", "always", check=False)
    assert wrong.returncode == 1 and "manual" in wrong.stderr and "auto" in wrong.stderr
    wrong = own.cli("settings", "set", box, "--key", "ocsf_json_enabled", "--value", "perhaps", check=False)
    assert wrong.returncode == 1 and "perhaps" in wrong.stderr


def test_a_setting_changes_what_a_refused_program_is_told_and_its_deletion_takes_it_back(own, box):
    """network.denied_http: `explain` answers 403 with the reason where `refuse` refuses the connection."""
    ask = ["sandbox", "exec", "-n", "box", "--no-tty", "--", "curl", "-sS", "-m", "5", "http://not-listed.test/x"]
    assert own.cli(*ask, check=False).returncode == 7
    done = own.cli("settings", "set", box, "--key", "network.denied_http", "--value", "explain")
    assert "Set sandbox setting network.denied_http=explain for box (revision 1)" in done.stdout + done.stderr

    def explained():
        answer = own.cli(*ask, check=False)
        return answer.returncode == 0 and json.loads(answer.stdout)

    told = wait_until(explained, 20, "the structured answer")
    assert told["error"] == "policy_denied" and told["denial_id"]
    gone = own.cli("settings", "delete", box, "--key", "network.denied_http")
    assert "Deleted sandbox setting network.denied_http for box" in gone.stdout + gone.stderr
    wait_until(lambda: own.cli(*ask, check=False).returncode == 7, 20, "the plain refusal")
    again = own.cli("settings", "delete", box, "--key", "network.denied_http")
    assert "not found" in again.stdout + again.stderr


def test_a_global_setting_wins_and_locks_the_sandbox_s_own(own, box):
    own.cli("settings", "set", box, "--key", "ocsf_json_enabled", "--value", "yes")
    asked = own.cli("settings", "set", "--global", "--key", "ocsf_json_enabled", "--value", "no", check=False)
    assert asked.returncode == 1 and "require confirmation; pass --yes" in asked.stderr
    own.cli("settings", "set", "--global", "--key", "ocsf_json_enabled", "--value", "no", "--yes")
    try:
        assert settings(own, box)["settings"]["ocsf_json_enabled"] == {"scope": "global", "value": "false"}
        for words in (["set", box, "--key", "ocsf_json_enabled", "--value", "yes"], ["delete", box, "--key", "ocsf_json_enabled"]):
            locked = own.cli("settings", *words, check=False)
            assert locked.returncode == 1 and "is managed" in locked.stderr, locked.stderr
        own.end(9)
        own.start()
        assert settings(own, box)["settings"]["ocsf_json_enabled"] == {"scope": "global", "value": "false"}, "stored"
    finally:
        own.cli("settings", "delete", "--global", "--key", "ocsf_json_enabled", "--yes")
    assert settings(own, box)["settings"]["ocsf_json_enabled"] == {"scope": "sandbox", "value": "true"}, "the sandbox's own is back"


def test_a_global_policy_replaces_that_of_every_sandbox_until_it_is_deleted(own, api, box, listener):
    other = Listener()
    policy = own.root / "global.yaml"
    policy.write_text(POLICY.format(port=other.port))
    wait_until(lambda: connect(own, listener.port).stdout == "connected\n", 20, "the sandbox's own policy")
    assert connect(own, other.port).returncode != 0
    before = json.loads(own.cli("policy", "get", box, "-o", "json").stdout)
    try:
        waits = own.cli("policy", "set", "--global", "--policy", str(policy), "--wait", "--yes", check=False)
        assert waits.returncode != 0 and "effective immediately" in waits.stderr
        asked = own.cli("policy", "set", "--global", "--policy", str(policy), check=False)
        assert asked.returncode == 1 and "require confirmation" in asked.stderr
        done = own.cli("policy", "set", "--global", "--policy", str(policy), "--yes")
        assert "Global policy configured (hash:" in done.stderr
        wait_until(lambda: connect(own, other.port).stdout == "connected\n", 20, "the global policy")
        assert connect(own, listener.port).returncode != 0, "what only the sandbox's own policy allowed"
        shown = json.loads(own.cli("policy", "get", box, "-o", "json").stdout)
        assert shown["policy_source"] == "global" and shown["global_policy_version"] == 1
        stored = json.loads(own.cli("policy", "get", "--global", "--full", "-o", "json").stdout)
        assert stored["scope"] == "global" and stored["policy"]["network_policies"]["listed"]["endpoints"][0]["port"] == other.port
        assert len(json.loads(own.cli("policy", "list", "--global", "-o", "json").stdout)["revisions"]) == 1
        for words in (["set", box, "--policy", str(policy)], ["update", box, "--remove-rule", "listed"]):
            refused = own.cli("policy", *words, check=False)
            assert refused.returncode == 1 and "managed globally" in refused.stderr, refused.stderr
        create_ready(api, "later")
        assert json.loads(own.cli("policy", "get", "later", "-o", "json").stdout)["policy_source"] == "global", "for new ones too"
        delete_gone(api, "later")
    finally:
        gone = own.cli("policy", "delete", "--global", "--yes")
    assert gone.returncode == 0
    wait_until(lambda: connect(own, listener.port).stdout == "connected\n", 20, "the sandbox's own policy again")
    assert connect(own, other.port).returncode != 0
    after = json.loads(own.cli("policy", "get", box, "-o", "json").stdout)
    assert after["policy_source"] == "sandbox" and after["hash"] == before["hash"]
    other.socket.close()
