"""Revisions as a user sees them: each that is enforced becomes LOADED once, and nothing stays pending (cases B33 and B34)."""

import json

import pytest
from conftest import REPOSITORY, WORKSPACE, delete_gone

COMPLETE = (REPOSITORY / "examples/host-api/policy.yaml").read_text()
SPARSE = "version: 1\n\nnetwork_policies:" + COMPLETE.split("network_policies:")[1]


def revisions(gateway, name):
    found = json.loads(gateway.cli("policy", "list", name, "-o", "json").stdout)["revisions"]
    return {revision["version"]: revision["status"] for revision in found}


@pytest.fixture
def create(gateway, client, tmp_path):
    made = []

    def create(name, text, *extra):
        policy = tmp_path / f"{name}.yaml"
        policy.write_text(text)
        made.append(name)
        gateway.cli("sandbox", "create", "--name", name, "--policy", str(policy), "--detach", *extra)
        return policy, client.wait_ready(name, workspace=WORKSPACE, timeout_seconds=30)

    yield create
    for name in made:
        delete_gone(client, name)


def test_b33_a_sparse_policy_is_enriched_and_its_second_revision_loaded(gateway, create):
    """ACK-06, ACK-07, ACK-12, ACK-13, ACK-14, ACK-15."""
    _, ready = create("b33", SPARSE)
    assert ready.status.current_policy_version == 2
    assert revisions(gateway, "b33") == {1: "superseded", 2: "loaded"}


def test_b33_a_complete_policy_is_its_own_first_revision(gateway, create):
    """ACK-06, ACK-13, ACK-15; `policy set --wait` right after create returns."""
    policy, ready = create("b33-complete", COMPLETE)
    assert ready.status.current_policy_version == 1
    assert revisions(gateway, "b33-complete") == {1: "loaded"}
    policy.write_text(COMPLETE.replace("GET, path: /healthz", "GET, path: /health"))
    gateway.cli("policy", "set", "b33-complete", "--policy", str(policy), "--wait", "--timeout", "20")
    assert revisions(gateway, "b33-complete") == {1: "superseded", 2: "loaded"}


def test_b34_what_changes_nothing_is_acknowledged_all_the_same(gateway, client, create):
    """ACK-18, ACK-19: a provider that adds no rule, and the same file again, leave nothing pending."""
    policy, _ = create("b34", COMPLETE)
    gateway.cli("provider", "create", "--name", "b34", "--type", "generic", "--credential", "OTHER=value-b34")
    try:
        gateway.cli("sandbox", "provider", "attach", "b34", "b34")
        gateway.cli("policy", "set", "b34", "--policy", str(policy), "--wait", "--timeout", "20")
        states = revisions(gateway, "b34")
        assert states[max(states)] == "loaded" and "pending" not in states.values(), states
        assert client.get("b34", workspace=WORKSPACE).status.current_policy_version == max(states)
    finally:
        gateway.cli("sandbox", "provider", "detach", "b34", "b34", check=False)
        delete_gone(client, "b34")
        gateway.cli("provider", "delete", "b34")


def test_a_refused_policy_changes_neither_the_rules_nor_the_revisions(gateway, client, create, tmp_path):
    """FB-02: the running policy stays, and the sandbox stays Ready."""
    _, _ = create("kept-policy", COMPLETE)
    before = gateway.cli("policy", "get", "kept-policy", "--full").stdout
    broken = tmp_path / "broken.yaml"
    broken.write_text(COMPLETE.replace("port", "prt"))
    assert gateway.cli("policy", "set", "kept-policy", "--policy", str(broken), "--wait", check=False).returncode == 1
    assert gateway.cli("policy", "get", "kept-policy", "--full").stdout == before
    assert revisions(gateway, "kept-policy") == {1: "loaded"}
    assert client.get("kept-policy", workspace=WORKSPACE).status.phase == 2
