"""PY: workspaces, templates and service exposures of the published package; numbers are lines of what it relies on."""

import time

import grpc
import openshell
import pytest
from conftest import WORKSPACE, create_ready, delete_gone
from openshell._proto import openshell_pb2


@pytest.fixture(scope="module")
def workspaces(client):
    return openshell.WorkspaceClient.from_sandbox_client(client)


@pytest.fixture(scope="module")
def red(workspaces):
    made = workspaces.create("py-red", labels={"team": "red"})
    yield made
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if workspaces.delete("py-red", allow_missing=True).outcome == openshell.DeletionOutcome.ALREADY_ABSENT:
                return
        except openshell.GatewayError as error:
            assert error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED), error
        time.sleep(0.2)


def test_26_a_workspace_has_name_labels_and_a_phase_that_has_a_name(workspaces, red):
    assert (red.name, red.labels) == ("py-red", {"team": "red"}) and red.phase == "WORKSPACE_PHASE_ACTIVE"
    assert workspaces.get("py-red") == red
    assert {"py-red", WORKSPACE} <= {each.name for each in workspaces.list_all()}
    assert [each.name for each in workspaces.list_all(label_selector="team=red")] == ["py-red"]
    pages = list(workspaces.list(page_size=1))
    assert len(pages) >= 2 and pages[-1].next_page_token == "" and all(len(page.items) == 1 for page in pages)


def test_26_wrong_workspaces_are_refused_by_the_matching_code(workspaces, red):
    def code(call, *arguments):
        with pytest.raises(openshell.GatewayError) as refused:
            call(*arguments)
        return refused.value.code()

    assert code(workspaces.create, "py-red") == grpc.StatusCode.ALREADY_EXISTS
    assert code(workspaces.create, "Not A Name") == grpc.StatusCode.INVALID_ARGUMENT
    assert code(workspaces.get, "py-none") == grpc.StatusCode.NOT_FOUND
    assert code(workspaces.delete, WORKSPACE) == grpc.StatusCode.FAILED_PRECONDITION


def test_7_a_sandbox_of_another_workspace_is_another_sandbox(client, red):
    try:
        here = create_ready(client, "py-twin")
        there = client.create(workspace="py-red", name="py-twin")
        client.wait_ready("py-twin", workspace="py-red", timeout_seconds=30)
        assert here.id != there.id and there.workspace == "py-red"
        assert client.exec("py-twin", ["echo", "red"], workspace="py-red").stdout == "red\n"
        both = client.list_all_for_all_workspaces()
        assert {here.id, there.id} <= {each.id for each in both}
        assert there.id not in client.list_ids(workspace=WORKSPACE) and there.id in client.list_ids(workspace="py-red")
        assert {here.id, there.id} <= set(client.list_ids_for_all_workspaces(page_size=1))
    finally:
        delete_gone(client, "py-twin")
        client.delete("py-twin", workspace="py-red", allow_missing=True)
        client.wait_deleted("py-twin", workspace="py-red", timeout_seconds=30)


def test_27_deleting_a_workspace_twice_is_told_apart(workspaces):
    workspaces.create("py-gone")
    assert workspaces.delete("py-gone").outcome in (openshell.DeletionOutcome.COMPLETED, openshell.DeletionOutcome.ACCEPTED)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        outcome = workspaces.delete("py-gone", allow_missing=True).outcome
        if outcome == openshell.DeletionOutcome.ALREADY_ABSENT:
            break
        time.sleep(0.1)
    assert outcome == openshell.DeletionOutcome.ALREADY_ABSENT
    with pytest.raises(openshell.GatewayError) as refused:
        workspaces.delete("py-gone")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.fixture(scope="module")
def templates(client):
    return client.sandbox_templates()


@pytest.fixture
def template(templates):
    made = templates.create(workspace=WORKSPACE, name="py-template", labels={"kind": "t"}, environment={"FROM_TEMPLATE": "yes"}, memory="512Mi")
    yield made
    templates.delete("py-template", workspace=WORKSPACE, allow_missing=True)


def test_25_a_template_comes_back_as_it_was_made(templates, template):
    assert template.metadata.name == "py-template" and template.metadata.id and template.spec.HasField("workload")
    assert dict(template.spec.workload.environment) == {"FROM_TEMPLATE": "yes"} and template.spec.workload.resources.memory == "512Mi"
    assert templates.get("py-template", workspace=WORKSPACE) == template
    assert [each.metadata.name for each in templates.list_all(workspace=WORKSPACE, label_selector="kind=t")] == ["py-template"]
    assert "py-template" in {each.metadata.name for each in templates.list_all_for_all_workspaces()}
    bare = templates.create(workspace=WORKSPACE, name="py-bare")
    try:
        assert bare.spec.HasField("workload"), "an empty workload is a workload"
    finally:
        assert templates.delete("py-bare", workspace=WORKSPACE).outcome == openshell.DeletionOutcome.COMPLETED
    assert templates.delete("py-bare", workspace=WORKSPACE, allow_missing=True).outcome == openshell.DeletionOutcome.ALREADY_ABSENT


def test_5_a_sandbox_from_a_template_says_so_and_has_what_the_template_gives(client, template):
    made = client.create_from_template(workspace=WORKSPACE, workload_template="py-template", name="py-from", labels={"own": "label"})
    try:
        assert made.created_from_workload_template.name == "py-template" and made.created_from_workload_template.resource_version
        assert dict(made.labels)["own"] == "label", "the template's labels are its own (PY-19)"
        ready = client.wait_ready("py-from", workspace=WORKSPACE, timeout_seconds=30)
        assert ready.created_from_workload_template == made.created_from_workload_template
        assert client.exec("py-from", ["sh", "-c", "echo $FROM_TEMPLATE"], workspace=WORKSPACE).stdout == "yes\n"
    finally:
        delete_gone(client, "py-from")
    plain = client.create(workspace=WORKSPACE, name="py-plain")
    try:
        assert plain.created_from_workload_template is None
    finally:
        delete_gone(client, "py-plain")


def test_5_sessions_and_the_context_manager_take_a_template(gateway, client, template, monkeypatch):
    session = client.create_session_from_template(workspace=WORKSPACE, workload_template="py-template", name="py-ses")
    try:
        assert session.sandbox.created_from_workload_template.name == "py-template"
    finally:
        delete_gone(client, "py-ses")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(gateway.config))
    monkeypatch.delenv("OPENSHELL_GATEWAY", raising=False)
    with openshell.Sandbox(workspace=WORKSPACE, workload_template="py-template") as made:
        assert made.exec(["sh", "-c", "echo $FROM_TEMPLATE"]).stdout == "yes\n"


def test_5_an_unknown_template_is_not_found_and_makes_nothing(client, templates):
    with pytest.raises(openshell.GatewayError) as refused:
        client.create_from_template(workspace=WORKSPACE, workload_template="py-none", name="py-never")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    with pytest.raises(openshell.GatewayError):
        client.get("py-never", workspace=WORKSPACE)


@pytest.fixture(scope="module")
def exposures(client):
    request = openshell_pb2.ListServicesRequest(sandbox="none") if hasattr(openshell_pb2, "ListServicesRequest") else None
    if request is None:
        return
    request.workspace_scope.workspace = WORKSPACE
    try:
        client._stub.ListServices(request)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error


def test_3_4_service_exposures_are_in_the_answer_by_name(client, exposures):
    services = [openshell.ServiceExposure(target_port=8080),
                openshell.ServiceExposure(target_port=8081, service="api", authorization_mode=openshell.ServiceAuthorizationMode.BEARER_PASSTHROUGH)]
    made = client.create(workspace=WORKSPACE, name="py-services", service_exposures=services)
    try:
        assert set(made.service_urls) == {"", "api"}, "the empty name is the unnamed service"
        for name, url in made.service_urls.items():
            assert url.startswith(("http://", "https://")) and "py-services" in url and (name in url), url
        with pytest.raises(TypeError):
            made.service_urls["x"] = "y"
        assert dict(client.get("py-services", workspace=WORKSPACE).service_urls) == {}, "only create answers with them"
    finally:
        delete_gone(client, "py-services")


def test_4_a_wrong_exposure_is_refused_and_makes_no_sandbox(client, exposures):
    for services in ([openshell.ServiceExposure(target_port=0)], [openshell.ServiceExposure(target_port=65_536)],
                     [openshell.ServiceExposure(target_port=80), openshell.ServiceExposure(target_port=81)],
                     [openshell.ServiceExposure(target_port=80, service="Not A Name")]):
        with pytest.raises(openshell.GatewayError) as refused:
            client.create(workspace=WORKSPACE, name="py-wrong", service_exposures=services)
        assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ALREADY_EXISTS), refused.value
        with pytest.raises(openshell.GatewayError):
            client.get("py-wrong", workspace=WORKSPACE)
