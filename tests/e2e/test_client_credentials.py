"""PY 28: ProviderClient.get_credentials: the one call that hands secrets out, for an operator's certificate on this very connection."""

import datetime
import subprocess

import grpc
import openshell
import pytest
from conftest import WORKSPACE, Gateway
from openshell._proto import openshell_pb2

VALUE = "operator-may-read-4711"


@pytest.fixture(scope="module")
def vault(scratch):
    """A gateway that knows operators, one provider with two keys, and a certificate with OU `operator` from the gateway's own CA."""
    folder = scratch / "vault"
    folder.mkdir(mode=0o711)
    gateway = Gateway(folder)
    gateway.file.write_text(gateway.file.read_text() + "[openshell.gateway.mtls_auth]\nenabled = true\noperator_enabled = true\n")
    gateway.start()
    for name, unit in (("ops", "operator"), ("Ops", "Operator"), ("sup", "openshell-sandbox")):
        certificate(gateway, name, unit)
    with gateway.client() as client:
        request = openshell_pb2.CreateProviderRequest()
        request.workspace_scope.workspace = WORKSPACE
        request.provider.metadata.name = "svc"
        request.provider.type = "generic"
        request.provider.credentials["API_TOKEN"] = VALUE
        request.provider.credentials["SHORT"] = "short-lived-value"
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=2)
        request.provider.credential_expiration_times["SHORT"].FromDatetime(soon)
        client._stub.CreateProvider(request)
    yield gateway
    gateway.end()


def certificate(gateway, name, unit):
    tls = gateway.state / "tls"
    run = lambda *words: subprocess.run(["openssl", *words], check=True, capture_output=True)
    run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", str(tls / f"{name}.key"), "-out", str(tls / f"{name}.csr"),
        "-subj", f"/CN={name}/OU={unit}")
    (tls / f"{name}.ext").write_text("extendedKeyUsage=clientAuth\n")
    run("x509", "-req", "-in", str(tls / f"{name}.csr"), "-CA", str(tls / "ca.crt"), "-CAkey", str(tls / "ca.key"), "-CAcreateserial",
        "-days", "1", "-out", str(tls / f"{name}.crt"), "-extfile", str(tls / f"{name}.ext"))


def providers(gateway, name, **options):
    tls = gateway.state / "tls"
    config = openshell.TlsConfig(ca_path=tls / "ca.crt", cert_path=tls / f"{name}.crt", key_path=tls / f"{name}.key")
    return openshell.SandboxClient(f"127.0.0.1:{gateway.port}", tls=config, **options).providers()


def code(call):
    with pytest.raises(openshell.GatewayError) as refused:
        call()
    assert VALUE not in str(refused.value)
    return refused.value.code()


def test_28_an_operator_gets_exactly_the_requested_keys(vault):
    client = providers(vault, "ops")
    one = client.get_credentials("svc", ["API_TOKEN"], workspace=WORKSPACE)
    assert set(one) == {"API_TOKEN"} and one["API_TOKEN"].value == VALUE and one["API_TOKEN"].expiration_time is None
    both = client.get_credentials("svc", ["SHORT", "API_TOKEN"], workspace=WORKSPACE)
    assert set(both) == {"SHORT", "API_TOKEN"} and both["SHORT"].expiration_time > datetime.datetime.now(datetime.timezone.utc)
    assert VALUE not in repr(one)


def test_28_all_or_nothing(vault):
    client = providers(vault, "ops")
    assert code(lambda: client.get_credentials("svc", ["API_TOKEN", "UNKNOWN"], workspace=WORKSPACE)) == grpc.StatusCode.FAILED_PRECONDITION
    assert code(lambda: client.get_credentials("none", ["API_TOKEN"], workspace=WORKSPACE)) == grpc.StatusCode.NOT_FOUND
    assert code(lambda: client.get_credentials("svc", ["API_TOKEN"], workspace="nowhere")) == grpc.StatusCode.NOT_FOUND


def test_28_a_value_that_ends_too_soon_is_not_handed_out(vault):
    client = providers(vault, "ops")
    ask = lambda hours: client.get_credentials("svc", ["SHORT"], workspace=WORKSPACE, minimum_remaining_lifetime=datetime.timedelta(hours=hours))
    assert ask(1)["SHORT"].value == "short-lived-value"
    assert code(lambda: ask(3)) == grpc.StatusCode.FAILED_PRECONDITION
    assert code(lambda: ask(24)) == grpc.StatusCode.FAILED_PRECONDITION


def test_28_nobody_else_gets_a_value(vault):
    ask = lambda client: lambda: client.get_credentials("svc", ["API_TOKEN"], workspace=WORKSPACE)
    assert code(ask(providers(vault, "Ops"))) == grpc.StatusCode.PERMISSION_DENIED, "the unit is case-sensitive"
    assert code(ask(providers(vault, "sup"))) == grpc.StatusCode.UNAUTHENTICATED
    with vault.client() as user:
        assert code(ask(user.providers())) == grpc.StatusCode.PERMISSION_DENIED
    ca = openshell.TlsConfig(ca_path=vault.state / "tls" / "ca.crt")
    with openshell.SandboxClient(f"127.0.0.1:{vault.port}", tls=ca) as nobody:
        assert code(ask(nobody.providers())) == grpc.StatusCode.UNAUTHENTICATED
    assert code(ask(providers(vault, "ops", bearer_token="x.y.z"))) == grpc.StatusCode.UNAUTHENTICATED, "a bearer excludes it"


def test_28_without_the_setting_an_operator_is_an_ordinary_user(gateway):
    certificate(gateway, "ops", "operator")
    ask = lambda: providers(gateway, "ops").get_credentials("svc", ["API_TOKEN"], workspace=WORKSPACE)
    assert code(ask) == grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("change", [
    {"name": ""}, {"name": "x" * 254}, {"name": " svc"}, {"credential_keys": []}, {"credential_keys": ["A"] * 2},
    {"credential_keys": [f"K{i}" for i in range(33)]}, {"credential_keys": ["bad-key"]}, {"credential_keys": ["K" * 257]}, {"workspace": ""},
    {"workspace": "default "}, {"seconds": 86_401}, {"seconds": -1},
])
def test_28_a_selection_that_is_not_well_formed_is_refused_without_an_echo(vault, change):
    request = openshell_pb2.GetProviderCredentialsRequest(name=change.get("name", "svc"), credential_keys=change.get("credential_keys", ["API_TOKEN"]))
    request.workspace_scope.workspace = change.get("workspace", WORKSPACE)
    if "seconds" in change:
        request.minimum_remaining_lifetime.seconds = change["seconds"]
    stub = providers(vault, "ops")._stub
    with pytest.raises(openshell.GatewayError) as refused:
        stub.GetProviderCredentials(request)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT and refused.value.field_violations
    assert "bad-key" not in refused.value.details() and "xxx" not in refused.value.details()


def test_28_each_attempt_leaves_a_line_without_the_value(vault):
    providers(vault, "ops").get_credentials("svc", ["API_TOKEN"], workspace=WORKSPACE)
    log = (vault.root / "gateway.log").read_text()
    assert "provider credentials requested by an operator" in log and "outcome=delivered" in log
    assert VALUE not in log and "short-lived-value" not in log
