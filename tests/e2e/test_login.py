"""The command line against a gateway with an identity provider: registration, login without a browser, renewal, and what fails when."""

import json
import os
import time

import openshell
import pytest
from conftest import WORKSPACE
from test_oidc import oidc_gateway, settings


@pytest.fixture(scope="module")
def guarded(scratch, issuer):
    made = oidc_gateway(scratch / "login", settings(issuer))
    made.start()
    yield made
    made.end()


@pytest.fixture
def home(guarded, tmp_path):
    """A configuration of its own for each test, and the environment of a user without a browser."""
    guarded.environment = {key: value for key, value in guarded.environment.items() if not key.startswith(("OPENSHELL_OIDC", "OPENSHELL_NO"))}
    guarded.environment["XDG_CONFIG_HOME"] = str(tmp_path)
    return tmp_path / "openshell"


def add(gateway, issuer, secret="robot-secret", client="robot", *more, **options):
    if secret is not None:
        gateway.environment["OPENSHELL_OIDC_CLIENT_SECRET"] = secret
    return gateway.cli("gateway", "add", gateway.endpoint, "--local", "--name", "id", "--oidc-issuer", issuer.url, "--oidc-client-id", client,
                       "--oidc-audience", "openshell-cli", "--oidc-scopes", "sandbox:read sandbox:write", *more, **options)


def stored(home):
    return json.loads((home / "gateways" / "id" / "oidc_token.json").read_text())


def expire(home, seconds=-60, **changes):
    path = home / "gateways" / "id" / "oidc_token.json"
    path.write_text(json.dumps({**stored(home), "expires_at": int(time.time()) + seconds, **changes}))


def test_client_credentials_log_in_and_every_command_carries_the_token(guarded, issuer, home):
    result = add(guarded, issuer)
    assert "Authenticated to gateway 'id' as robot@example.test" in result.stderr
    assert "robot-secret" not in result.stdout + result.stderr
    asked = issuer.asked["token"][-1]
    assert asked["scope"] == "sandbox:read sandbox:write" and asked["audience"] == "openshell-cli", "exactly the configured scopes"
    token = home / "gateways" / "id" / "oidc_token.json"
    assert token.stat().st_mode & 0o777 == 0o600
    assert set(stored(home)) == {"access_token", "expires_at", "issuer", "client_id"}
    metadata = json.loads((home / "gateways" / "id" / "metadata.json").read_text())
    assert metadata["auth_mode"] == "oidc" and metadata["oidc_issuer"] == issuer.url and metadata["oidc_client_id"] == "robot"
    assert guarded.cli("sandbox", "list").returncode == 0
    assert json.loads(guarded.cli("whoami", "-o", "json").stdout)["subject"] == "robot"
    status = json.loads(guarded.cli("status", "-o", "json").stdout)
    assert status["status"] == "connected" and status["authentication"]["status"] == "authenticated"
    assert "Authentication: Authenticated (OIDC)" in guarded.cli("status").stdout


def test_the_published_client_reads_the_same_registration_and_token(guarded, issuer, home, monkeypatch):
    add(guarded, issuer)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home.parent))
    monkeypatch.delenv("OPENSHELL_GATEWAY", raising=False)
    with openshell.SandboxClient.from_active_cluster() as client:
        assert client.list_all(workspace=WORKSPACE) == []
    auth = openshell.ClientCredentialsAuth(client_secret="robot-secret")
    with openshell.SandboxClient.from_active_cluster(client_credentials=auth) as client:
        assert client.list_all(workspace=WORKSPACE) == []
    issuer.refresh_tokens["r-python"] = "robot"
    expire(home, refresh_token="r-python")
    with openshell.SandboxClient.from_active_cluster() as client:
        assert client.list_all(workspace=WORKSPACE) == []
    assert "r-python" not in issuer.refresh_tokens, "it was used, and what replaced it is stored"
    assert guarded.cli("sandbox", "list").returncode == 0


def test_a_failed_login_takes_the_registration_back_and_fails(guarded, issuer, home):
    result = add(guarded, issuer, secret="wrong-secret", check=False)
    assert result.returncode == 1
    assert "refused (HTTP 401): invalid_client, wrong client" in result.stderr and "wrong-secret" not in result.stderr
    assert "Registration for 'id' removed. Fix the issue and retry gateway add." in result.stderr
    assert not (home / "gateways" / "id" / "metadata.json").exists() and not (home / "active_gateway").exists()


def test_without_secret_and_browser_it_says_what_to_set(guarded, issuer, home):
    result = add(guarded, issuer, secret=None, check=False)
    assert result.returncode == 1 and "OPENSHELL_OIDC_CLIENT_SECRET" in result.stderr and "OPENSHELL_NO_BROWSER=1" in result.stderr


def test_a_code_entered_on_another_device(guarded, issuer, home):
    guarded.environment["OPENSHELL_NO_BROWSER"] = "1"
    issuer.devices["polls"] = 2
    result = add(guarded, issuer, secret=None)
    assert f"Open {issuer.url}/activate on any device and enter the code WDJB-MJHT" in result.stderr
    assert "Authenticated to gateway 'id'" in result.stderr
    assert stored(home)["refresh_token"]
    issuer.devices["deny"] = True
    refused = guarded.cli("gateway", "login", "id", check=False)
    assert refused.returncode == 1 and "access_denied" in refused.stderr
    issuer.devices.clear()


def test_an_expiring_token_is_renewed_and_stored_before_the_command(guarded, issuer, home):
    add(guarded, issuer)
    issuer.refresh_tokens["r-1"] = "robot"
    expire(home, seconds=20, refresh_token="r-1")  # within the 30 s
    before = stored(home)["access_token"]
    guarded.cli("sandbox", "list")
    after = stored(home)
    assert after["access_token"] != before and after["refresh_token"] != "r-1" and after["expires_at"] > time.time() + 100
    del guarded.environment["OPENSHELL_OIDC_CLIENT_SECRET"]
    expire(home, seconds=20, refresh_token="used-up")
    result = guarded.cli("sandbox", "list")
    assert "Warning: OIDC token refresh failed; continuing with the cached token: " in result.stderr and "used up" in result.stderr


def test_refresh_failure_stops_before_create_sandbox_and_status_still_reports(guarded, issuer, home):
    """A spare case of faults reported: a command went on with a token that could not be renewed."""
    add(guarded, issuer)
    del guarded.environment["OPENSHELL_OIDC_CLIENT_SECRET"]
    expire(home, refresh_token="gone")
    made = guarded.cli("sandbox", "create", "--name", "never", check=False)
    assert made.returncode == 1
    assert "OIDC token refresh failed: " in made.stderr
    assert "cached OIDC token has expired; run `openshell gateway login id`" in made.stderr
    with openshell.SandboxClient(f"127.0.0.1:{guarded.port}", tls=guarded.tls(), bearer_token=issuer.access_token()) as client:
        assert client.list_all(workspace=WORKSPACE) == [], "nothing was created"
    status = guarded.cli("status")
    assert "Status: Connected" in status.stdout and "Authentication: Failed (OIDC token refresh failed" in status.stdout
    token = home / "gateways" / "id" / "oidc_token.json"
    for content in ("not json", "{}", None):
        token.write_text(content) if content else token.unlink()
        result = guarded.cli("sandbox", "list", check=False)
        assert result.returncode == 1 and "OIDC credentials are missing; run `openshell gateway login id`" in result.stderr
    assert json.loads(guarded.cli("status", "-o", "json").stdout)["authentication"]["status"] == "failed"


def test_logout_forgets_the_token_and_login_brings_it_back(guarded, issuer, home):
    add(guarded, issuer)
    assert "Logged out of gateway 'id'." in guarded.cli("gateway", "logout").stderr
    assert not (home / "gateways" / "id" / "oidc_token.json").exists()
    marker = home / "gateways" / "id" / "oidc_login_prompt_required"
    assert marker.read_text() == "1\n"
    assert guarded.cli("sandbox", "list", check=False).returncode == 1
    guarded.cli("gateway", "login", "id")
    assert not marker.exists() and guarded.cli("sandbox", "list").returncode == 0
    guarded.cli("gateway", "remove", "id")
    assert not (home / "gateways" / "id" / "oidc_token.json").exists()


def test_login_is_only_for_gateways_with_a_provider(guarded, home):
    guarded.cli("gateway", "add", guarded.endpoint, "--local", "--name", "certs")
    for verb, text in (("login", "does not use edge or OIDC authentication"), ("logout", "no stored credentials to clear")):
        result = guarded.cli("gateway", verb, "certs", check=False)
        assert result.returncode == 1 and text in result.stderr
    assert "Unknown gateway 'none'." in guarded.cli("gateway", "login", "none", check=False).stderr


def test_a_token_never_goes_to_a_remote_gateway_in_clear(guarded, issuer, home):
    add(guarded, issuer)
    path = home / "gateways" / "id" / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "gateway_endpoint": "http://gateway.example.test:80"}))
    result = guarded.cli("sandbox", "list", check=False)
    assert result.returncode == 1 and "would get the bearer token in clear" in result.stderr
    assert os.path.exists(path)
