"""PY: errors as the published package reads them: code, text, trailing metadata, and the details that belong to this very call."""

import grpc
import openshell
import pytest
from conftest import WORKSPACE, Gateway, create_ready, delete_gone
from google.rpc import status_pb2
from openshell._proto import openshell_pb2, openshell_pb2_grpc


def refused(call, *arguments, **options):
    with pytest.raises(openshell.GatewayError) as error:
        call(*arguments, **options)
    return error.value


def test_20_invalid_argument_names_the_field_and_keeps_text_and_metadata(client):
    error = refused(client.create, workspace=WORKSPACE, name="Not A Name")
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.field_violations] == ["name"]
    assert error.field_violations[0].description == error.details(), "one sentence, in both places"
    assert error.error_info.reason == "INVALID_ARGUMENT" and error.error_info.domain == "openshell.nvidia.com"
    assert error.retry_delay is None
    trailing = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    assert (status.code, status.message) == (error.code().value[0], error.details()), "else the client drops the details"
    assert error.raw_status == status and isinstance(error.raw_error, grpc.RpcError)


@pytest.mark.parametrize("request_, field", [
    (lambda: openshell_pb2.CreateSandboxRequest(name="x"), "workspace_scope"),
    (lambda: scoped(openshell_pb2.CreateSandboxRequest(name="x")), "spec"),
    (lambda: scoped(openshell_pb2.CreateSandboxRequest(name="x" * 64, spec={})), "name"),
    (lambda: scoped(openshell_pb2.CreateSandboxRequest(name="x", spec={}, labels={"bad key": "v"})), "labels"),
    (lambda: scoped(openshell_pb2.CreateSandboxRequest(name="x", spec={}, request_id="not-a-uuid")), "request_id"),
])
def test_20_each_wrong_field_is_named(client, request_, field):
    error = refused(client._stub.CreateSandbox, request_())
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    assert error.field_violations and error.field_violations[0].field.startswith(field), error.field_violations


def scoped(request):
    request.workspace_scope.workspace = WORKSPACE
    return request


def test_20_not_found_already_exists_and_failed_precondition(client):
    assert refused(client.get, "nobody", workspace=WORKSPACE).code() == grpc.StatusCode.NOT_FOUND
    assert refused(client.get, "nobody", workspace="nowhere").code() == grpc.StatusCode.NOT_FOUND
    assert refused(client.stop, "nobody", workspace=WORKSPACE).code() == grpc.StatusCode.NOT_FOUND
    assert refused(client.exec, "nobody", ["true"], workspace=WORKSPACE).code() == grpc.StatusCode.NOT_FOUND
    create_ready(client, "twice")
    try:
        again = refused(client.create, workspace=WORKSPACE, name="twice")
        assert again.code() == grpc.StatusCode.ALREADY_EXISTS and "twice" in again.details()
        client.stop("twice", workspace=WORKSPACE)
        client.wait_stopped("twice", workspace=WORKSPACE, timeout_seconds=30)
        stopped = refused(client.exec, "twice", ["true"], workspace=WORKSPACE)
        assert stopped.code() == grpc.StatusCode.FAILED_PRECONDITION
    finally:
        delete_gone(client, "twice")


def test_20_errors_of_a_stream_are_the_same_class(client, sandbox):
    stream = client.exec_stream("shared", ["true"], workspace=WORKSPACE, env={"BAD=KEY": "1"})
    error = refused(lambda: list(stream))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and error.field_violations
    gone = refused(lambda: list(client.exec_stream("nobody", ["true"], workspace=WORKSPACE)))
    assert gone.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("command, options", [
    ([], {}), (["x"], {"env": {"": "v"}}), (["x"], {"env": {"K": "a\0b"}}), (["x"], {"workdir": "a\0b"}), (["a\0b"], {}),
])
def test_20_what_exec_refuses_it_refuses_by_name(client, sandbox, command, options):
    with pytest.raises((openshell.GatewayError, openshell.SandboxError, ValueError)) as error:
        client.exec("shared", command, workspace=WORKSPACE, **options)
    if isinstance(error.value, openshell.GatewayError):
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT, error.value


def test_20_unauthenticated_and_permission_denied(gateway):
    ca = openshell.TlsConfig(ca_path=gateway.state / "tls" / "ca.crt")
    with openshell.SandboxClient(f"127.0.0.1:{gateway.port}", tls=ca) as stranger:
        error = refused(stranger.list_all, workspace=WORKSPACE)
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED and error.details() == "missing client certificate"
    with gateway.client(bearer_token="junk") as forged:
        assert refused(forged.list_all, workspace=WORKSPACE).code() == grpc.StatusCode.UNAUTHENTICATED, "never the certificate instead"
    with gateway.client() as user:
        error = refused(user._stub.ReportMainProcessExit, openshell_pb2.ReportMainProcessExitRequest())
        assert error.code() == grpc.StatusCode.PERMISSION_DENIED and error.details() == "this method requires a sandbox principal"


def test_20_unimplemented_and_unavailable(gateway):
    with gateway.client() as client:
        channel = client._channel
        unknown = channel.unary_unary("/openshell.v1.OpenShell/NoSuchMethod")
        with pytest.raises(grpc.RpcError) as error:
            unknown(b"", timeout=10)
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
    with openshell.SandboxClient("127.0.0.1:1", timeout=5) as nobody:
        assert refused(nobody.health).code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_20_a_message_over_the_limit_is_resource_exhausted_and_harms_nobody(client, sandbox):
    error = refused(client.exec, "shared", ["cat"], workspace=WORKSPACE, stdin=b"x" * (2 << 20))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.exec("shared", ["echo", "still here"], workspace=WORKSPACE).stdout == "still here\n"


def test_20_a_conflict_is_aborted_with_the_version_to_look_at(client, gateway):
    made = create_ready(client, "versioned")
    try:
        request = scoped(openshell_pb2.AttachSandboxProviderRequest(sandbox="versioned", provider="none", expected_resource_version=10**6))
        error = refused(client._stub.AttachSandboxProvider, request)
        assert error.code() in (grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)
        if error.code() == grpc.StatusCode.ABORTED:
            assert error.error_info.reason == "RESOURCE_VERSION_CONFLICT" and error.error_info.metadata["recovery"] == "REFRESH_STATE"
            assert int(error.error_info.metadata["current_resource_version"]) >= 1
        assert client.get("versioned", workspace=WORKSPACE).id == made.id
    finally:
        delete_gone(client, "versioned")


def test_21_a_limit_says_when_to_try_again(scratch):
    """RetryInfo with a delay that is valid, so that the client shows it."""
    folder = scratch / "limited"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder)
    text = gateway.file.read_text()
    gateway.file.write_text(text.replace("[openshell.gateway]", "[openshell.gateway]\ngrpc_rate_limit_requests = 5\ngrpc_rate_limit_window_seconds = 60"))
    gateway.start()
    try:
        with gateway.client() as client:
            errors = []
            for _ in range(8):
                try:
                    client.list_all(workspace=WORKSPACE)
                except openshell.GatewayError as error:
                    errors.append(error)
            assert errors and all(error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED for error in errors)
            assert all(error.retry_delay is not None and 0 < error.retry_delay <= 60 for error in errors), errors[0].raw_status
    finally:
        gateway.end()


def test_an_error_with_two_details_keeps_both_and_unknown_ones_do_not_hide_them(client):
    """What the package promises of decoding, seen on the wire form our gateway sends."""
    error = refused(client.create, workspace=WORKSPACE, name="-")
    kinds = {detail.type_url.rsplit(".", 1)[-1] for detail in error.raw_status.details}
    assert {"BadRequest", "ErrorInfo"} <= kinds
    assert openshell_pb2_grpc.OpenShellStub  # the stub used above is the package's own
