"""What programs of a sandbox meet on their way out: links to interpreters, many connections, bulk, cuts. Servers are the host's own."""

import asyncio
import hashlib
import http.server
import os
import socket
import threading

import pytest
from conftest import WORKSPACE, delete_gone, wait_until

BULK = 64 << 20


class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = (os.urandom(1024) * (BULK // 1024)) if self.path == "/v1/bulk" else self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Digest", hashlib.sha256(body).hexdigest())
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


class Hold:
    """Greets each connection and holds it until its client ends."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=2048))
        self.port = self.server.sockets[0].getsockname()[1]
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    @staticmethod
    async def serve(reader, writer):
        writer.write(b"hello")
        await reader.read()
        writer.close()

    def end(self):
        self.loop.call_soon_threadsafe(self.server.close)


class Bulk:
    """Sends much, takes much, and knows the digest of both."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        peer, _ = self.listener.accept()
        back = hashlib.sha256()

        def take():
            while piece := peer.recv(1 << 16):
                back.update(piece)

        taker = threading.Thread(target=take)
        taker.start()
        block, digest = os.urandom(1 << 20), hashlib.sha256()
        for _ in range(BULK >> 20):
            peer.sendall(block)
            digest.update(block)
        peer.shutdown(socket.SHUT_WR)
        taker.join()
        peer.close()
        self.sent, self.received = digest.hexdigest(), back.hexdigest()

    def end(self):
        self.listener.close()


@pytest.fixture(scope="module")
def world(gateway, client):
    api = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    hold, bulk = Hold(), Bulk()
    policy = gateway.root / "egress-policy.yaml"
    policy.write_text(f"""
version: 1
network_policies:
  api:
    endpoints:
      - host: host.openshell.internal
        port: {api.server_port}
        protocol: rest
        enforcement: enforce
        rules:
          - allow: {{method: GET, path: "/v1/**"}}
    binaries: [/usr/bin/python3]
  raw:
    endpoints:
      - host: host.openshell.internal
        ports: [{hold.port}, {bulk.port}]
        protocol: tcp
    binaries: [/usr/bin/python3]
""")
    gateway.cli("sandbox", "create", "--name", "egress", "--policy", str(policy), "--detach")
    client.wait_ready("egress", workspace=WORKSPACE, timeout_seconds=30)
    yield {"api": api.server_port, "hold": hold, "bulk": bulk, "gateway": gateway}
    delete_gone(client, "egress")
    api.shutdown()
    hold.end()
    bulk.end()


def python(client, script, **options):
    return client.exec("egress", ["python3", "-c", script], workspace=WORKSPACE, **options)


def test_b06_a_rule_that_names_a_link_admits_what_it_leads_to(world, client):
    """B06: the rule says /usr/bin/python3, the kernel says python3.N. A copy under the workload's own link gains nothing."""
    fetch = f"import urllib.request; print(urllib.request.urlopen('http://host.openshell.internal:{world['api']}/v1/x').read().decode())"
    result = python(client, fetch)
    assert result.stdout.strip() == "/v1/x", result.stdout + result.stderr
    script = f"cp $(readlink -f /usr/bin/python3) /sandbox/python3; /sandbox/python3 -c \"{fetch}\""
    copied = client.exec("egress", ["bash", "-c", script], workspace=WORKSPACE)
    # bash is not listed, the copy is not: neither it nor an ancestor may connect.
    assert copied.exit_code != 0 and "Permission denied" in copied.stderr, copied.stdout + copied.stderr


def test_f9_the_connection_that_is_too_many_is_refused_at_once(world, client):
    result = python(client, f"""
import errno, resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
address = socket.getaddrinfo('host.openshell.internal', {world['hold'].port}, socket.AF_INET, socket.SOCK_STREAM)[0][4]
held = []
for i in range(1100):
    s = socket.socket()
    start = time.monotonic()
    try:
        s.connect(address)
    except OSError as e:
        print(i, errno.errorcode[e.errno], time.monotonic() - start < 2)
        break
    assert s.recv(5) == b'hello'
    held.append(s)
for s in held: s.close()
end = time.monotonic() + 10
while True:
    try:
        s = socket.create_connection(address); break
    except OSError:
        assert time.monotonic() < end
        time.sleep(0.05)
print('again', s.recv(5).decode())
""", timeout_seconds=120)
    lines = result.stdout.split("\n")
    assert lines[0] == "1024 EAGAIN True", result.stdout + result.stderr
    assert lines[1] == "again hello"


def test_bulk_is_carried_byte_for_byte_both_ways_at_once(world, client):
    """Raw relays of handed-over sockets are spliced once they are bulk; nothing is lost, doubled or reordered, and each end is seen."""
    result = python(client, f"""
import hashlib, os, socket, threading
s = socket.create_connection(('host.openshell.internal', {world['bulk'].port}))
block, sent = os.urandom(1 << 20), hashlib.sha256()
def pour():
    for _ in range({BULK} >> 20):
        s.sendall(block); sent.update(block)
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=pour); t.start()
got, count = hashlib.sha256(), 0
while piece := s.recv(1 << 16): got.update(piece); count += len(piece)
t.join()
print(got.hexdigest(), sent.hexdigest(), count)
""", timeout_seconds=120)
    got, sent, count = result.stdout.split()
    wait_until(lambda: hasattr(world["bulk"], "received"), what="the server's end")
    assert (got, sent, int(count)) == (world["bulk"].sent, world["bulk"].received, BULK), result.stderr
    result = python(client, f"""
import hashlib, urllib.request
r = urllib.request.urlopen('http://host.openshell.internal:{world['api']}/v1/bulk')
body = r.read()
print(len(body), hashlib.sha256(body).hexdigest() == r.headers['X-Digest'])
""", timeout_seconds=120)
    assert result.stdout.split() == [str(BULK), "True"], result.stdout + result.stderr
