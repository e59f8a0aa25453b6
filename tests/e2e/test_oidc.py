"""GW-01: users by bearer tokens of an OpenID Connect issuer, against a real gateway, with the published client."""

import concurrent.futures
import json
import socket
import ssl
import time
import urllib.request

import grpc
import openshell
import pytest
from conftest import WORKSPACE, Gateway, create_ready, delete_gone, wait_until
from oidc_issuer import Issuer, Key
from openshell._proto import openshell_pb2, openshell_pb2_grpc

OIDC = """
[openshell.gateway.oidc]
issuer = "{url}"
audience = "openshell-cli"
dangerously_allow_insecure_http = {http}
{more}
"""


def settings(issuer, more=""):
    return OIDC.format(url=issuer.url, http="true" if issuer.url.startswith("http:") else "false", more=more)


def oidc_gateway(folder, text, tls=True):
    folder.mkdir(mode=0o711)
    made = Gateway(folder)
    body = made.file.read_text() if tls else made.file.read_text().replace("[openshell.gateway]", "[openshell.gateway]\ndisable_tls = true")
    made.file.write_text(body + text)
    return made


@pytest.fixture
def own_issuer():
    """One that a test may change."""
    made = Issuer()
    yield made
    made.end()


@pytest.fixture(scope="module")
def guarded(scratch, issuer):
    """A gateway with TLS, client certificates known, users by token."""
    made = oidc_gateway(scratch / "oidc", settings(issuer, "jwks_ttl_secs = 3600"))
    made.start()
    yield made
    made.end()


def stub(gateway, token=None, certificate=True):
    """The bare stub: says what a call without the client's own checks gets."""
    folder = gateway.state / "tls"
    credentials = grpc.ssl_channel_credentials((folder / "ca.crt").read_bytes(),
                                               *([(folder / "client" / f).read_bytes() for f in ("tls.key", "tls.crt")] if certificate else []))
    channel = grpc.secure_channel(f"127.0.0.1:{gateway.port}", credentials)
    rpc = openshell_pb2_grpc.OpenShellStub(channel)
    metadata = [("authorization", f"Bearer {token}")] if token is not None else []
    return rpc, metadata


def whoami(gateway, token=None, **options):
    rpc, metadata = stub(gateway, token, **options)
    return rpc.GetCurrentUser(openshell_pb2.GetCurrentUserRequest(), metadata=metadata, timeout=20)


def refusal(gateway, token, **options):
    with pytest.raises(grpc.RpcError) as refused:
        whoami(gateway, token, **options)
    return refused.value.code(), refused.value.details()


def test_A19_a_valid_token_is_a_user_with_name_and_roles(guarded, issuer):
    user = whoami(guarded, issuer.access_token(sub="u-1", preferred_username="pat"))
    assert (user.subject, user.display_name, user.identity_provider) == ("u-1", "pat", "oidc")
    assert list(user.roles) == ["openshell-user", "openshell-admin"] and list(user.scopes) == []


def test_A20_tokens_that_are_not_for_us_are_refused_with_the_reason(guarded, issuer):
    now = int(time.time())
    stranger = Key()
    stranger.kid = issuer.signing.kid
    good = issuer.access_token()
    swapped = good.split(".")[0] + "." + issuer.access_token(sub="root").split(".")[1] + "." + good.split(".")[2]
    cases = {
        "InvalidSignature": [issuer.access_token(key=stranger), swapped],
        "ExpiredSignature": [issuer.access_token(exp=now - 3600), issuer.access_token(exp=now - 70)],
        "InvalidIssuer": [issuer.access_token(iss="https://evil.test"), issuer.access_token(iss=issuer.url + "/")],
        "InvalidAudience": [issuer.access_token(aud="other"), issuer.access_token(aud=["a", "b"])],
        "InvalidAlgorithm": [issuer.access_token(header={"alg": "none"}), issuer.access_token(header={"alg": "HS256"})],
        "unknown signing key": [Key().sign(issuer.claims())],
        "ImmatureSignature": [issuer.access_token(nbf=now + 120)],
        "Missing required claim: exp": [issuer.access_token(exp=None)],
        "missing kid": [issuer.access_token(header={"kid": ""})],
    }
    for reason, tokens in cases.items():
        for token in tokens:
            code, text = refusal(guarded, token)
            assert (code, text) == (grpc.StatusCode.UNAUTHENTICATED, f"invalid token: {reason}")
    whoami(guarded, issuer.access_token(exp=now - 30))  # a clock that is a little off is forgiven


def test_A16_A52_a_broken_bearer_is_never_replaced_by_the_certificate(guarded):
    for token in ("not.a.jwt", "", "x"):
        code, text = refusal(guarded, token)
        assert code == grpc.StatusCode.UNAUTHENTICATED and text.startswith("invalid token")
    code, text = refusal(guarded, None)
    assert (code, text) == (grpc.StatusCode.UNAUTHENTICATED, "missing authorization header"), "with OIDC a certificate alone is no user"
    rpc, _ = stub(guarded)
    assert rpc.Health(openshell_pb2.HealthRequest(), metadata=[("authorization", "Bearer junk")], timeout=20).version == "0.1.5"


def test_roles_decide_what_a_user_may_call(guarded, issuer):
    listing = openshell_pb2.ListSandboxesRequest(page_size=1)
    listing.workspace_scope.all_workspaces.SetInParent()
    info = openshell_pb2.GetGatewayInfoRequest()

    def code(call, request, roles):
        rpc, metadata = stub(guarded, issuer.access_token(realm_access={"roles": roles}))
        try:
            getattr(rpc, call)(request, metadata=metadata, timeout=20)
        except grpc.RpcError as error:
            return error.code(), error.details()
        return grpc.StatusCode.OK, ""

    assert code("GetGatewayInfo", info, ["openshell-admin"])[0] == grpc.StatusCode.OK
    assert code("GetGatewayInfo", info, ["openshell-user"]) == (grpc.StatusCode.PERMISSION_DENIED, "role 'openshell-admin' required")
    assert code("ListSandboxes", listing, ["openshell-admin"])[0] == grpc.StatusCode.OK
    assert code("ListSandboxes", listing, ["other"]) == (grpc.StatusCode.PERMISSION_DENIED, "role 'openshell-user' required")
    refused, text = code("ListSandboxes", listing, ["openshell-user"])
    assert refused == grpc.StatusCode.PERMISSION_DENIED and "platform admin role required" in text
    one = openshell_pb2.GetSandboxRequest(name="none")
    one.workspace_scope.workspace = WORKSPACE
    refused, text = code("GetSandbox", one, ["openshell-user"])
    assert refused == grpc.StatusCode.PERMISSION_DENIED and "not a member of workspace 'default'" in text, "no membership, not even NOT_FOUND"


def test_bearer_and_certificate_together_the_bearer_is_the_identity(guarded, issuer):
    with openshell.SandboxClient(f"127.0.0.1:{guarded.port}", tls=guarded.tls(), bearer_token=lambda: issuer.access_token()) as client:
        made = create_ready(client, "by-token")
        assert client.exec("by-token", ["echo", "hi"], workspace=WORKSPACE).stdout == "hi\n"
        assert made.name == "by-token"
        delete_gone(client, "by-token")
    ca_only = openshell.TlsConfig(ca_path=guarded.state / "tls" / "ca.crt")
    with openshell.SandboxClient(f"127.0.0.1:{guarded.port}", tls=ca_only, bearer_token=issuer.access_token()) as client:
        assert client.list_all(workspace=WORKSPACE) == []


def test_client_credentials_are_exchanged_once_and_reused(guarded, issuer):
    before = len(issuer.asked["token"])
    auth = openshell.ClientCredentialsAuth(client_secret="robot-secret", issuer=issuer.url, client_id="robot", audience="openshell-cli",
                                           scopes=["sandbox:read"])
    with openshell.SandboxClient(f"127.0.0.1:{guarded.port}", tls=guarded.tls(), client_credentials=auth) as client:
        for _ in range(3):
            assert client.list_all(workspace=WORKSPACE) == []
    asked = issuer.asked["token"][before:]
    assert [(each["grant_type"], each["scope"], each["audience"]) for each in asked] == [("client_credentials", "sandbox:read", "openshell-cli")]
    wrong = openshell.ClientCredentialsAuth(client_secret="wrong", issuer=issuer.url, client_id="robot")
    with openshell.SandboxClient(f"127.0.0.1:{guarded.port}", tls=guarded.tls(), client_credentials=wrong) as client:
        with pytest.raises(openshell.SandboxError, match="HTTP 401"):
            client.list_all(workspace=WORKSPACE)


def test_A21_a_new_key_is_fetched_once_and_unknown_keys_at_most_once_a_second(guarded, issuer):
    time.sleep(1.1)  # the fetch before may be younger than the spacing
    before = issuer.asked["keys"]
    fresh = Key("ES256")
    issuer.keys.append(fresh)
    assert whoami(guarded, issuer.access_token(key=fresh)).subject == "robot"
    assert issuer.asked["keys"] == before + 1
    started = time.monotonic()
    for _ in range(50):
        assert refusal(guarded, Key("EdDSA").sign(issuer.claims()))[1] == "invalid token: unknown signing key"
    assert issuer.asked["keys"] - before - 1 <= time.monotonic() - started + 1


def test_A22_A58_old_keys_are_fetched_once_for_all_and_serve_while_the_issuer_is_in_trouble(scratch, own_issuer):
    gateway = oidc_gateway(scratch / "o22", settings(own_issuer, "jwks_ttl_secs = 2"))
    begun = time.monotonic()
    gateway.start()

    def fetched_once_in_each_lifetime():
        return own_issuer.asked["keys"] <= 1 + (time.monotonic() - begun) // 2

    try:
        rpc, metadata = stub(gateway, own_issuer.access_token())

        def ask(_=None):
            try:
                rpc.GetCurrentUser(openshell_pb2.GetCurrentUserRequest(), metadata=metadata, timeout=20)
            except grpc.RpcError as error:
                return error.code(), error.details()
            return grpc.StatusCode.OK, ""

        assert ask() == (grpc.StatusCode.OK, "") and own_issuer.asked["keys"] >= 1 and fetched_once_in_each_lifetime()
        before = own_issuer.asked["keys"]
        time.sleep(2.2)  # older than their lifetime
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            assert set(pool.map(ask, range(20))) == {(grpc.StatusCode.OK, "")}
        assert own_issuer.asked["keys"] > before and fetched_once_in_each_lifetime()
        good = time.monotonic()
        own_issuer.key_answer = lambda: (200, {}, b'{"keys":[]}')
        while time.monotonic() < good + 4:
            assert ask() == (grpc.StatusCode.OK, ""), "the keys before serve for three lifetimes"
            time.sleep(0.2)
        wait_until(lambda: ask() == (grpc.StatusCode.INTERNAL, "OIDC key refresh failed"), 6, "refusal without keys")
        own_issuer.key_answer = lambda: (500, {}, b"down")
        assert ask()[0] == grpc.StatusCode.INTERNAL
        own_issuer.key_answer = None
        wait_until(lambda: ask()[0] == grpc.StatusCode.OK, 5, "recovery")
    finally:
        gateway.end()


def test_a_slow_issuer_holds_up_neither_others_nor_the_end(scratch, own_issuer):
    gateway = oidc_gateway(scratch / "slow", settings(own_issuer))
    gateway.start()
    try:
        time.sleep(1.1)  # the fetch before may be younger than the spacing
        before = own_issuer.asked["keys"]
        own_issuer.key_answer = lambda: time.sleep(30) or (200, {}, b"{}")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(refusal, gateway, Key("EdDSA").sign(own_issuer.claims())) for _ in range(3)]
            wait_until(lambda: own_issuer.asked["keys"] > before, what="the fetch that gets no answer")
            begun = time.monotonic()
            assert whoami(gateway, own_issuer.access_token()).subject == "robot"
            assert time.monotonic() - begun < 3, "a known key needs no fetch"
            begun = time.monotonic()
            gateway.end()
            assert time.monotonic() - begun < 8
            assert {each.result()[0] for each in waiting} <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAUTHENTICATED}
    finally:
        own_issuer.key_answer = None
        gateway.end()


def test_scopes_are_asked_for_where_a_claim_is_named(scratch, own_issuer):
    gateway = oidc_gateway(scratch / "osc", settings(own_issuer, 'scopes_claim = "scope"'))
    gateway.start()
    try:
        def code(scope, **claims):
            rpc, metadata = stub(gateway, own_issuer.access_token(scope=scope, **claims))
            request = openshell_pb2.ListSandboxesRequest(page_size=1)
            request.workspace_scope.workspace = WORKSPACE
            try:
                rpc.ListSandboxes(request, metadata=metadata, timeout=20)
            except grpc.RpcError as error:
                return error.code(), error.details()
            return grpc.StatusCode.OK, ""

        assert code("openid sandbox:read")[0] == grpc.StatusCode.OK
        assert code("openshell:all")[0] == grpc.StatusCode.OK
        assert code("sandbox:write openid") == (grpc.StatusCode.PERMISSION_DENIED, "scope 'sandbox:read' required")
        assert code("openshell:all", realm_access={"roles": []}) == (grpc.StatusCode.PERMISSION_DENIED, "role 'openshell-user' required")
        assert list(whoami(gateway, own_issuer.access_token(scope="openid profile email offline_access")).scopes) == []
    finally:
        gateway.end()


def test_oidc_on_and_tls_off_supervisors_connect_by_their_token(scratch, own_issuer):
    """A spare case of faults reported: with OIDC configured and TLS off the supervisor's methods took no sandbox token."""
    gateway = oidc_gateway(scratch / "opl", settings(own_issuer), tls=False)
    gateway.start()
    try:
        with openshell.SandboxClient(f"127.0.0.1:{gateway.port}", bearer_token=own_issuer.access_token) as client:
            create_ready(client, "plain")
            assert client.exec("plain", ["echo", "connected"], workspace=WORKSPACE).stdout == "connected\n"
            delete_gone(client, "plain")
        with openshell.SandboxClient(f"127.0.0.1:{gateway.port}") as nobody:
            with pytest.raises(openshell.GatewayError) as refused:
                nobody.list_all(workspace=WORKSPACE)
            assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    finally:
        gateway.end()


def test_oidc_config_tells_clients_where_to_go(guarded, issuer, gateway):
    def get(of, path, method="GET"):
        context = ssl.create_default_context(cafile=str(of.state / "tls" / "ca.crt"))
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{of.endpoint}{path}", method=method), context=context, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    status, body = get(guarded, "/auth/oidc-config")
    assert status == 200 and json.loads(body) == {"issuer": issuer.url, "audience": "openshell-cli"}
    assert get(guarded, "/auth/oidc-config", "POST")[0] == 405
    assert get(guarded, "/auth/other")[0] == 404
    assert get(gateway, "/auth/oidc-config") == (404, b""), "without OIDC there is nothing to tell"


def start_failure(scratch, name, text, **environment):
    gateway = oidc_gateway(scratch / name, text)
    gateway.environment.update(environment)
    result = gateway.command("openshell-gateway", "--config", str(gateway.file), check=False)
    assert result.returncode == 1
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", gateway.port)) != 0, "no socket is left open"
    return result.stderr


def test_A24_A25_A56_what_can_not_be_trusted_stops_the_start(scratch, own_issuer):
    unreachable = OIDC.format(url="http://127.0.0.1:1", http="true", more="")
    assert "OIDC initialization failed: http://127.0.0.1:1/" in start_failure(scratch, "f1", unreachable)
    assert "must start with https://" in start_failure(scratch, "f2", OIDC.format(url=own_issuer.url, http="false", more=""))
    by_name = own_issuer.url.replace("127.0.0.1", "localhost")
    assert "numeric loopback address" in start_failure(scratch, "f3", OIDC.format(url=by_name, http="true", more=""))
    assert 'OIDC RBAC misconfiguration: admin_role="openshell-admin", user_role=""' in start_failure(scratch, "f4", settings(own_issuer, 'user_role = ""'))
    own_issuer.changes = {"issuer": "https://evil.test"}
    assert f"OIDC discovery issuer mismatch: expected '{own_issuer.url}', got 'https://evil.test'" in start_failure(scratch, "f5", settings(own_issuer))
    other = Issuer()
    own_issuer.changes = {"jwks_uri": f"{other.url}/keys"}
    assert "is not on the issuer's origin" in start_failure(scratch, "f6", settings(own_issuer))
    own_issuer.changes = {}
    own_issuer.discovery_answer = lambda: (302, {"location": f"{other.url}/.well-known/openid-configuration"}, b"")
    assert "redirects are not followed" in start_failure(scratch, "f7", settings(own_issuer))
    assert other.asked["discovery"] == 0
    own_issuer.discovery_answer = lambda: (200, {}, b" " * (1 << 20) + b"{}")
    assert "is longer than 1048576 bytes" in start_failure(scratch, "f8", settings(own_issuer))
    other.end()


def test_A23_A56_an_https_issuer_by_ca_bundle_and_keys_on_an_allowed_origin(scratch, gateway):
    """The gateway's own CA stands in for the authority of the issuer."""
    server = gateway.state / "tls" / "server"
    issuer = Issuer((server / "tls.crt", server / "tls.key"))
    keys = Issuer((server / "tls.crt", server / "tls.key"))
    issuer.changes = {"issuer": issuer.url + "/", "jwks_uri": f"{keys.url}/keys"}
    keys.keys = issuer.keys
    allowed = f'jwks_allowed_origins = ["{keys.url}"]'
    assert "OIDC initialization failed" in start_failure(scratch, "h1", settings(issuer, allowed)), "its certificate is not trusted"
    bundle = f'{allowed}\nca_bundle = "{gateway.state}/tls/ca.crt"'
    made = oidc_gateway(scratch / "h2", settings(issuer, bundle))
    made.start()
    try:
        assert whoami(made, issuer.access_token()).subject == "robot"
        assert refusal(made, issuer.access_token(iss=issuer.url + "/"))[1] == "invalid token: InvalidIssuer"
        assert keys.asked["keys"] == 1 and issuer.asked["keys"] == 0
    finally:
        made.end()
        issuer.end()
        keys.end()
