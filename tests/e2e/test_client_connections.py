"""How the published client reaches a gateway and who it is then: lines 29 to 32 of the list of server behaviours."""

import json
import shutil

import grpc
import openshell
import pytest
from conftest import WORKSPACE
from oidc_issuer import Issuer
from openshell._proto import openshell_pb2
from test_oidc import oidc_gateway, settings


@pytest.fixture(scope="module")
def guarded(scratch, issuer):
    made = oidc_gateway(scratch / "conn", settings(issuer))
    made.start()
    yield made
    made.end()


@pytest.fixture(scope="module")
def plain(scratch, issuer):
    """The same without TLS: only for a gateway that nobody else can reach."""
    made = oidc_gateway(scratch / "connplain", settings(issuer), tls=False)
    made.start()
    yield made
    made.end()


def subject(client):
    return client._stub.GetCurrentUser(openshell_pb2.GetCurrentUserRequest()).subject


def code(call):
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return refused.value.code()


def ca_only(gateway):
    return openshell.TlsConfig(ca_path=gateway.state / "tls" / "ca.crt")


def test_29_health_answers_anybody_with_status_and_version(guarded, gateway):
    for each, options in ((gateway, {}), (guarded, {}), (guarded, {"bearer_token": "broken"})):
        with openshell.SandboxClient(f"127.0.0.1:{each.port}", tls=ca_only(each), **options) as stranger:
            answer = stranger.health()
            assert answer.version == "0.1.5" and answer.status == openshell_pb2.SERVICE_STATUS_HEALTHY
            assert code(lambda: stranger.list_all(workspace=WORKSPACE)) == grpc.StatusCode.UNAUTHENTICATED


def test_30_a_bearer_is_the_identity_on_every_kind_of_channel(guarded, plain, issuer, monkeypatch, tmp_path):
    token = issuer.access_token(sub="on-each-channel")
    channels = {"mutual TLS": (guarded, guarded.tls()), "CA only": (guarded, ca_only(guarded)), "plaintext": (plain, None)}
    for name, (gateway, tls) in channels.items():
        with openshell.SandboxClient(f"127.0.0.1:{gateway.port}", tls=tls, bearer_token=token) as client:
            assert subject(client) == "on-each-channel", name
            assert client.list_all(workspace=WORKSPACE) == [], name
        with openshell.SandboxClient(f"127.0.0.1:{gateway.port}", tls=tls, bearer_token="broken") as client:
            assert code(lambda: client.list_all(workspace=WORKSPACE)) == grpc.StatusCode.UNAUTHENTICATED, name


SYSTEM_ROOTS = """
import sys, openshell
with openshell.SandboxClient(sys.argv[1], tls=openshell.TlsConfig(), bearer_token=sys.argv[2]) as client:
    print(client.list_all(workspace="default"))
"""


def test_30_system_roots_are_enough_where_they_know_the_gateway_s_authority(guarded, issuer):
    """In a process of its own: gRPC reads the roots once, from the file that this variable names."""
    import os
    import subprocess
    import sys
    words = [sys.executable, "-c", SYSTEM_ROOTS, f"127.0.0.1:{guarded.port}", issuer.access_token()]
    roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(guarded.state / "tls" / "ca.crt")}
    found = subprocess.run(words, env={**os.environ, **roots}, capture_output=True, text=True, timeout=60)
    assert found.stdout == "[]\n", found.stderr
    stranger = subprocess.run(words, env=dict(os.environ), capture_output=True, text=True, timeout=60)
    assert stranger.returncode != 0 and issuer.access_token()[:20] not in stranger.stderr


def test_30_a_callable_is_asked_for_each_call_and_a_stream_carries_it_too(guarded, issuer):
    asked = []

    def token():
        asked.append(None)
        return issuer.access_token(sub=f"turn-{len(asked)}")

    with openshell.SandboxClient(f"127.0.0.1:{guarded.port}", tls=ca_only(guarded), bearer_token=token) as client:
        assert [subject(client), subject(client)] == ["turn-1", "turn-2"]
        request = openshell_pb2.ExecSandboxRequest(sandbox="nobody", command=["true"])
        request.workspace_scope.workspace = WORKSPACE
        assert code(lambda: list(client._stub.ExecSandbox(request))) == grpc.StatusCode.NOT_FOUND, "known, so it is looked for"
        assert len(asked) == 3


@pytest.fixture
def registered(guarded, issuer, tmp_path, monkeypatch):
    """A registration as the command line writes it, with nobody logged in; the package finds it by its own rules."""
    guarded.environment["XDG_CONFIG_HOME"] = str(tmp_path)
    guarded.environment["OPENSHELL_OIDC_CLIENT_SECRET"] = "robot-secret"
    guarded.cli("gateway", "add", guarded.endpoint, "--local", "--name", "registered", "--oidc-issuer", issuer.url, "--oidc-client-id", "robot",
                "--oidc-audience", "openshell-cli", "--oidc-scopes", "sandbox:read sandbox:write")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OPENSHELL_GATEWAY", raising=False)
    return tmp_path / "openshell"


def test_31_the_registration_holds_what_the_client_reads(registered, guarded, issuer):
    folder = registered / "gateways" / "registered"
    metadata = json.loads((folder / "metadata.json").read_text())
    assert {key: metadata[key] for key in ("gateway_endpoint", "auth_mode", "oidc_issuer", "oidc_client_id", "oidc_audience")} == {
        "gateway_endpoint": guarded.endpoint, "auth_mode": "oidc", "oidc_issuer": issuer.url, "oidc_client_id": "robot", "oidc_audience": "openshell-cli"}
    assert metadata["oidc_scopes"].split() == ["sandbox:read", "sandbox:write"]
    assert (registered / "active_gateway").read_text().strip() == "registered"
    assert (folder / "mtls" / "ca.crt").is_file() and (folder / "oidc_token.json").is_file()
    with openshell.SandboxClient.from_active_cluster() as client:
        assert subject(client) == "robot"


def test_31_the_variable_wins_over_the_file_and_an_unknown_name_is_said(registered, monkeypatch):
    (registered / "active_gateway").write_text("elsewhere\n")
    with pytest.raises(openshell.SandboxError, match="gateway 'elsewhere' not found"):
        openshell.SandboxClient.from_active_cluster()
    monkeypatch.setenv("OPENSHELL_GATEWAY", "registered")
    with openshell.SandboxClient.from_active_cluster() as client:
        assert subject(client) == "robot"
    (registered / "active_gateway").unlink()
    monkeypatch.delenv("OPENSHELL_GATEWAY")
    with pytest.raises(openshell.SandboxError, match="no active gateway configured"):
        openshell.SandboxClient.from_active_cluster()


def test_31_a_stale_token_beside_a_gateway_of_certificates_is_not_sent(gateway, registered, tmp_path, monkeypatch):
    """auth_mode decides: the certificate is the identity there, and a broken bearer would be refused."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(gateway.config))
    folder = next((gateway.config / "openshell" / "gateways").iterdir())
    stale = folder / "oidc_token.json"
    shutil.copy(registered / "gateways" / "registered" / "oidc_token.json", stale)
    try:
        with openshell.SandboxClient.from_active_cluster() as client:
            client.list_all(workspace=WORKSPACE)
    finally:
        stale.unlink()


def credentials(issuer, **options):
    return openshell.ClientCredentialsAuth(**{"client_secret": "robot-secret", "issuer": issuer.url, "client_id": "robot", "audience": "openshell-cli", **options})


def failure(guarded, auth):
    with openshell.SandboxClient(f"127.0.0.1:{guarded.port}", tls=guarded.tls(), client_credentials=auth) as client:
        with pytest.raises(openshell.SandboxError) as refused:
            client.list_all(workspace=WORKSPACE)
    assert "robot-secret" not in str(refused.value)
    return str(refused.value)


def test_32_client_credentials_become_a_bearer_that_our_gateway_takes(guarded, issuer):
    with openshell.SandboxClient(f"127.0.0.1:{guarded.port}", tls=ca_only(guarded), client_credentials=credentials(issuer)) as client:
        assert subject(client) == "robot"
    scoped = credentials(issuer, scopes=["sandbox:read"])
    with openshell.SandboxClient(f"127.0.0.1:{guarded.port}", tls=guarded.tls(), client_credentials=scoped) as client:
        assert client.list_all(workspace=WORKSPACE) == []
    assert issuer.asked["token"][-1]["scope"] == "sandbox:read"


def test_32_an_issuer_that_is_not_what_it_should_be_is_refused_by_its_fault(guarded):
    def of(change):
        broken = Issuer()
        try:
            change(broken)
            return failure(guarded, credentials(broken))
        finally:
            broken.end()

    assert "issuer mismatch" in of(lambda i: i.changes.update(issuer="https://elsewhere.test"))
    assert "missing token_endpoint" in of(lambda i: i.changes.update(token_endpoint=""))
    assert "must use HTTPS" in of(lambda i: i.changes.update(token_endpoint="http://issuer.example.test/token"))
    assert "HTTP 302" in of(lambda i: setattr(i, "discovery_answer", lambda: (302, {"location": "/elsewhere"}, b"")))
    assert "too large" in of(lambda i: setattr(i, "discovery_answer", lambda: (200, {}, b"x" * (1 << 21))))
    assert "positive finite expires_in" in of(lambda i: setattr(i, "lifetime", 0))
    assert "HTTP 401" in of(lambda i: i.clients.clear())
