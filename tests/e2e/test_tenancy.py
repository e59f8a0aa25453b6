"""Workspaces, profiles, providers and services as a user has them: the command line against a real gateway and a real sandbox."""

import http.server
import json
import threading

import openshell
import pytest
from conftest import WORKSPACE, create_ready, wait_until


def document(result):
    return json.loads(result.stdout)


class Echo(http.server.BaseHTTPRequestHandler):
    """Remembers the Authorization and X-Api-Key fields of each request."""

    seen = []

    def do_GET(self):
        Echo.seen.append((self.headers.get("Authorization"), self.headers.get("X-Api-Key")))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def upstream():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


def profile(identifier, port, style="bearer", header="authorization"):
    return f"""
id: {identifier}
display_name: Test service
credentials:
  - {{name: token, env_vars: [{identifier.upper()}_TOKEN], required: true, auth_style: {style}, header_name: {header}}}
endpoints:
  - {{host: host.openshell.internal, port: {port}, protocol: rest, access: read-write, enforcement: enforce}}
binaries: ["**/curl"]
"""


def test_workspaces_and_members(gateway):
    gateway.cli("workspace", "create", "--name", "lab", "--label", "team=red")
    again = gateway.cli("workspace", "create", "--name", "lab", check=False)
    assert again.returncode == 1 and "workspace already exists" in again.stderr
    assert document(gateway.cli("workspace", "get", "lab", "-o", "json"))["labels"] == {"team": "red"}
    first = document(gateway.cli("workspace", "list", "--page-size", "1", "-o", "json"))
    assert len(first["workspaces"]) == 1 and first["next_page_token"]
    second = document(gateway.cli("workspace", "list", "--page-size", "1", "--page-token", first["next_page_token"], "-o", "json"))
    assert {first["workspaces"][0]["name"], second["workspaces"][0]["name"]} == {"default", "lab"}
    gateway.cli("workspace", "member", "add", "--workspace", "lab", "--subject", "alice", "--role", "admin")
    assert gateway.cli("workspace", "member", "add", "--workspace", "lab", "--subject", "bob", "--role", "boss", check=False).returncode == 1
    assert gateway.cli("workspace", "member", "add", "--subject", "bob", "--role", "user", check=False).returncode == 2
    assert document(gateway.cli("workspace", "member", "list", "--workspace", "lab", "-o", "json"))["members"] == [{"subject": "alice", "role": "admin"}]
    assert "Removed alice" in gateway.cli("workspace", "member", "remove", "--workspace", "lab", "--subject", "alice").stdout
    gateway.cli("--workspace", "lab", "provider", "create", "--name", "p", "--type", "generic", "--credential", "TOKEN=x")
    refused = gateway.cli("workspace", "delete", "lab", check=False)
    assert refused.returncode == 1 and "still contains resources: provider" in refused.stderr
    late = gateway.cli("--workspace", "lab", "provider", "create", "--name", "q", "--type", "generic", "--credential", "TOKEN=x", check=False)
    assert late.returncode == 1 and "being deleted" in late.stderr
    gateway.cli("--workspace", "lab", "provider", "delete", "p")
    assert "Deleted workspace lab" in gateway.cli("workspace", "delete", "lab").stdout
    missing = gateway.cli("workspace", "delete", "lab", check=False)
    assert missing.returncode == 1 and "Workspace lab not found" in missing.stderr


def test_profiles_are_files(gateway, tmp_path, upstream):
    tmp_path.chmod(0o755)
    file = tmp_path / "crm.yaml"
    file.write_text(profile("crm", upstream))
    assert "lint passed" in gateway.cli("profile", "lint", "-f", str(file)).stdout
    assert "Imported 1 provider profile." in gateway.cli("profile", "import", "-f", str(file)).stdout
    again = gateway.cli("profile", "import", "-f", str(file), check=False)
    assert again.returncode == 1 and "already exists" in again.stderr
    exported = tmp_path / "exported.yaml"
    exported.write_text(gateway.cli("profile", "export", "crm").stdout.replace("Test service", "Renamed"))
    assert "resource_version: 1" in exported.read_text()
    gateway.cli("profile", "update", "crm", "-f", str(exported))
    stale = gateway.cli("profile", "update", "crm", "-f", str(exported), check=False)
    assert stale.returncode == 1 and "modified concurrently (current resource_version: 2)" in stale.stderr
    assert [p["display_name"] for p in document(gateway.cli("profile", "list", "-o", "json"))] == ["Renamed"]
    assert "crm" in gateway.cli("provider", "profile", "describe", "crm").stdout
    broken = tmp_path / "broken.yaml"
    broken.write_text("id: x\ndisplay_name: X\nendpoint: []\n")
    refused = gateway.cli("profile", "import", "-f", str(broken), check=False)
    assert refused.returncode == 1 and "did you mean 'endpoints'" in refused.stderr
    assert "Deleted provider profile crm" in gateway.cli("profile", "delete", "crm").stdout
    assert "not found" in gateway.cli("profile", "delete", "crm").stdout


def test_a_profile_carries_its_credential_to_its_endpoint(gateway, client, tmp_path, upstream):
    # CR-02, CR-24, GW-06, INF-02, GW-22, GW-23
    tmp_path.chmod(0o755)
    file = tmp_path / "shop.yaml"
    file.write_text(profile("shop", upstream))
    gateway.cli("profile", "import", "-f", str(file), "--global")
    gateway.cli("provider", "create", "--name", "shop", "--type", "shop", "--global-profile", "--credential", "SHOP_TOKEN=first-value")
    create_ready(client, "buyer")
    ask = ["sandbox", "exec", "buyer", "--", "sh", "-c",
           f'curl -sS -m 10 -H "Authorization: Bearer $SHOP_TOKEN" http://host.openshell.internal:{upstream}/']
    assert gateway.cli(*ask, check=False).returncode != 0, "nothing is allowed before the provider is attached"
    attached = document(gateway.cli("sandbox", "provider", "attach", "buyer", "shop", "--wait", "-o", "json"))
    assert attached["targets"][0]["wait_outcome"] == "complete"
    assert gateway.cli(*ask).stdout == "ok"
    assert Echo.seen[-1][0] == "Bearer first-value"
    assert document(gateway.cli("sandbox", "provider", "list", "buyer", "-o", "json"))["providers"][0]["credential_keys"] == ["SHOP_TOKEN"]
    assert "_provider_shop" in gateway.cli("policy", "get", "buyer", "--full").stdout
    updated = document(gateway.cli("provider", "update", "shop", "--credential", "SHOP_TOKEN=second-value", "--wait", "-o", "json"))
    assert [t["wait_outcome"] for t in updated["targets"]] == ["complete"]
    gateway.cli(*ask)
    assert Echo.seen[-1][0] == "Bearer second-value"
    status = document(gateway.cli("sandbox", "provider", "status", "buyer", "shop", "-o", "json"))
    assert status["targets"][0]["state"] == "ready"
    used = gateway.cli("profile", "delete", "shop", "--global", check=False)
    assert used.returncode == 1 and "in use by providers: default/shop" in used.stderr
    detached = document(gateway.cli("sandbox", "provider", "detach", "buyer", "shop", "--wait", "-o", "json"))
    assert detached["targets"][0]["wait_outcome"] == "complete"
    count = len(Echo.seen)
    assert gateway.cli(*ask, check=False).returncode != 0
    assert len(Echo.seen) == count
    client.delete("buyer", workspace=WORKSPACE)
    gateway.cli("provider", "delete", "shop")
    gateway.cli("profile", "delete", "shop", "--global")


def test_services_of_a_sandbox(gateway, client):
    create_ready(client, "server")
    assert "Exposed service web on sandbox server" in gateway.cli("service", "expose", "server", "8080", "web").stdout
    listed = document(gateway.cli("service", "list", "-o", "json"))["services"]
    assert listed == [{"workspace": "default", "sandbox": "server", "service": "web", "target_port": 8080, "authorization_mode": "strip",
                       "url": f"https://default--server--web.openshell.localhost:{gateway.port}/"}]
    missing = gateway.cli("service", "get", "server", "nope", check=False)
    assert missing.returncode == 1 and "get service failed: service endpoint not found" in missing.stderr
    gateway.cli("service", "delete", "server", "web")
    assert "No services exposed." in gateway.cli("service", "list").stdout
    gateway.cli("service", "expose", "server", "9000")
    client.delete("server", workspace=WORKSPACE)
    wait_until(lambda: "No services exposed." in gateway.cli("service", "list").stdout, what="the end of the services of a deleted sandbox")


def test_services_named_at_creation_have_their_addresses_in_the_answer(gateway, client):
    """CX-22, CX-23, CX-24, CX-25: by the published client."""
    made = client.create(workspace=WORKSPACE, name="shown", service_exposures=[
        openshell.ServiceExposure(service="", target_port=8080), openshell.ServiceExposure(service="web", target_port=3000)])
    base = f"openshell.localhost:{gateway.port}/"
    assert dict(made.service_urls) == {"": f"https://default--shown.{base}", "web": f"https://default--shown--web.{base}"}
    stored = {s["service"]: s["target_port"] for s in document(gateway.cli("service", "list", "shown", "-o", "json"))["services"]}
    assert stored == {"": 8080, "web": 3000}
    client.delete("shown", workspace=WORKSPACE)
