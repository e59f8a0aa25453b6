"""PY-01 to PY-20: names, labels and selectors of the published package, against a real gateway."""

import copy
import dataclasses

import openshell
import pytest
from conftest import WORKSPACE, create_ready, delete_gone


@pytest.fixture(scope="module")
def labelled(client):
    made = client.create(workspace=WORKSPACE, name="py-labels", labels={"team": "blue", "tier": "1"})
    yield made
    delete_gone(client, "py-labels")


@pytest.fixture
def registered(gateway, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(gateway.config))
    monkeypatch.delenv("OPENSHELL_GATEWAY", raising=False)


def test_PY_01_PY_02_PY_09_create_takes_name_and_labels_and_every_answer_has_them(client, labelled):
    answers = [labelled, client.get("py-labels", workspace=WORKSPACE)]
    answers += client.list_all(workspace=WORKSPACE, label_selector="team=blue")
    assert len(answers) == 3
    for each in answers:
        assert each.name == "py-labels" and dict(each.labels) == {"team": "blue", "tier": "1"}


def test_PY_03_create_session_takes_both(client):
    session = client.create_session(workspace=WORKSPACE, name="py-session", labels={"team": "red"})
    try:
        assert session.sandbox.name == "py-session" and dict(session.sandbox.labels) == {"team": "red"}
    finally:
        delete_gone(client, "py-session")


def test_PY_04_PY_16_the_context_manager_takes_both_and_copies_the_labels(registered, client):
    labels = {"team": "green"}
    context = openshell.Sandbox(workspace=WORKSPACE, name="py-context", labels=labels)
    labels["team"] = "changed meanwhile"
    with context as session:
        assert session.sandbox.name == "py-context" and dict(session.sandbox.labels) == {"team": "green"}


def test_PY_05_PY_06_lists_take_a_selector(client, labelled):
    assert [each.id for each in client.list_all(workspace=WORKSPACE, label_selector="team=blue,tier=1")] == [labelled.id]
    assert client.list_ids(workspace=WORKSPACE, label_selector="team=blue") == [labelled.id]
    assert client.list_ids(workspace=WORKSPACE, label_selector="team=blue,tier=2") == []


def test_PY_07_PY_11_PY_19_older_forms_and_defaults_hold(client, labelled):
    """Calls as they were written before labels existed, names by position too; a reference made by hand has no labels."""
    status = labelled.status
    made = openshell.SandboxRef("id-1", "by-hand", WORKSPACE, status)
    assert made.labels == {} and made.service_urls == {} and made.host_key_fingerprint is None
    assert client.get("py-labels", workspace=WORKSPACE).id == labelled.id
    assert labelled.id in [each.id for each in client.list_all(workspace=WORKSPACE)] and labelled.id in client.list_ids(workspace=WORKSPACE)
    unnamed = client.create(workspace=WORKSPACE)
    try:
        assert dict(unnamed.labels) == {} and unnamed.created_from_workload_template is None
    finally:
        delete_gone(client, unnamed.name)


def test_PY_08_the_command_line_finds_what_python_made(gateway, labelled):
    found = gateway.cli("sandbox", "list", "--selector", "team=blue").stdout
    assert "py-labels" in found
    assert "py-labels" not in gateway.cli("sandbox", "list", "--selector", "team=red").stdout


def test_PY_10_PY_14_a_reference_can_not_be_changed(labelled):
    with pytest.raises(TypeError):
        labelled.labels["team"] = "other"
    with pytest.raises(dataclasses.FrozenInstanceError):
        labelled.name = "other"
    assert dict(copy.deepcopy(labelled).labels) == dict(labelled.labels)


def test_PY_12_PY_13_labels_do_not_make_a_sandbox_another(labelled):
    other = dataclasses.replace(labelled, labels={"x": "y"})
    assert other == labelled and len({other, labelled}) == 1


def test_PY_15_the_caller_s_mapping_is_not_kept(client):
    labels = {"team": "copy"}
    made = client.create(workspace=WORKSPACE, name="py-copy", labels=labels)
    try:
        labels["team"] = "changed"
        assert dict(made.labels) == dict(client.get("py-copy", workspace=WORKSPACE).labels) == {"team": "copy"}
    finally:
        delete_gone(client, "py-copy")


@pytest.mark.parametrize("options", [{"name": "x"}, {"labels": {"a": "b"}}])
def test_PY_17_PY_18_attaching_takes_neither_and_asks_nobody(registered, client, options):
    create_ready(client, "py-attach")
    try:
        with pytest.raises(openshell.SandboxError, match="cannot be set when attaching"):
            with openshell.Sandbox(workspace=WORKSPACE, sandbox="py-attach", delete_on_exit=False, **options):
                pass
    finally:
        delete_gone(client, "py-attach")


def test_PY_20_the_fields_are_those_of_our_wire():
    from openshell._proto import openshell_pb2
    assert {"name", "labels"} <= set(openshell_pb2.CreateSandboxRequest.DESCRIPTOR.fields_by_name)
    assert "label_selector" in openshell_pb2.ListSandboxesRequest.DESCRIPTOR.fields_by_name
