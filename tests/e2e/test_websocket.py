"""WebSocket sessions of a program in a sandbox: a real client library inside, a real server on the host, each text message judged."""

import asyncio
import base64
import io
import json
import pathlib
import threading
import zipfile

import pytest
import websockets
from conftest import WORKSPACE, delete_gone, wait_until
from websockets.asyncio.server import serve

CLIENT = """
import json, sys
from websockets.sync.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
url, steps = sys.argv[1], json.loads(sys.argv[2])
said = []
try:
    with connect(url, open_timeout=10, close_timeout=5) as session:
        for step in steps:
            if step == "binary":
                session.send(b"\\x00\\xff")
            elif step == "pieces":
                session.send(iter(["in ", "three ", "pieces"]))
            elif step == "ping":
                session.ping().wait(5)
                said.append("pong")
                continue
            elif step == "large":
                session.send("x" * (5 << 20))
            elif step == "wait":
                print("waiting", flush=True)
                session.recv(60)
                continue
            else:
                session.send(step)
            answer = session.recv(10)
            said.append(answer if isinstance(answer, str) else answer.hex())
except ConnectionClosed as closed:
    said.append([closed.rcvd.code, closed.rcvd.reason] if closed.rcvd else "broken")
except InvalidStatus as refused:
    said.append(refused.response.status_code)
print(json.dumps(said))
"""


class Server:
    """Says back what it gets, and remembers it."""

    def __init__(self):
        self.got = []
        ready = threading.Event()

        async def echo(session):
            async for message in session:
                self.got.append(message)
                await session.send(message)

        async def run():
            async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
                self.port = server.sockets[0].getsockname()[1]
                self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
                ready.set()
                await self.stop.wait()

        self.thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
        self.thread.start()
        assert ready.wait(10)

    def end(self):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(10)


def library():
    """The client library as one archive, which python imports as it is."""
    out = io.BytesIO()
    root = pathlib.Path(websockets.__file__).parent
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in root.rglob("*.py"):
            archive.write(path, pathlib.Path("websockets") / path.relative_to(root))
    return out.getvalue()


def policy(port, texts="/chat/talk"):
    return f"""
version: 1
network_policies:
  chat:
    endpoints:
      - host: host.openshell.internal
        port: {port}
        protocol: websocket
        enforcement: enforce
        rules:
          - allow: {{method: GET, path: "/chat/**"}}
          - allow: {{method: WEBSOCKET_TEXT, path: {texts}}}
    binaries: [{{path: "**/python3*"}}]
"""


@pytest.fixture(scope="module")
def world(gateway, client):
    server = Server()
    file = gateway.root / "websocket-policy.yaml"
    file.write_text(policy(server.port))
    name = "websocket"
    gateway.cli("sandbox", "create", "--name", name, "--policy", str(file), "--detach")
    client.wait_ready(name, workspace=WORKSPACE, timeout_seconds=30)
    stored = client.exec(name, ["sh", "-c", "base64 -d > /sandbox/library.zip"], workspace=WORKSPACE, stdin=base64.b64encode(library()))
    assert stored.exit_code == 0, stored.stderr
    words = lambda path, steps: ["env", "PYTHONPATH=/sandbox/library.zip", "python3", "-c", CLIENT, f"ws://host.openshell.internal:{server.port}{path}", json.dumps(steps)]

    def talk(path, *steps):
        ran = client.exec(name, words(path, steps), workspace=WORKSPACE, timeout_seconds=60)
        assert ran.exit_code == 0, ran.stderr
        return json.loads(ran.stdout)

    yield {"server": server, "talk": talk, "words": words, "file": file, "name": name}
    delete_gone(client, name)
    server.end()


def test_a_session_carries_text_binary_and_pings(world):
    """L7-02, L7-03."""
    assert world["talk"]("/chat/talk", "hello", "pieces", "binary", "ping", "again") == ["hello", "in three pieces", "00ff", "pong", "again"]


def test_an_upgrade_that_no_rule_allows_is_refused(world):
    """L7-02."""
    assert world["talk"]("/other", "hello") == [403]


def test_a_text_that_no_rule_allows_ends_the_session_and_never_arrives(world, gateway):
    """L7-03."""
    world["server"].got.clear()
    said = world["talk"]("/chat/listen", "a s3cret text")
    assert len(said) == 1 and said[0][0] == 1008, said
    said = world["talk"]("/chat/listen", "pieces")
    assert said[0][0] == 1008
    assert not world["server"].got
    logs = wait_until(lambda: (lambda text: text if "WEBSOCKET_TEXT" in text else None)(gateway.cli("logs", world["name"], "-n", "50").stdout), what="the denial in the log")
    assert "s3cret" not in logs


def test_a_text_beyond_the_limit_ends_the_session(world):
    """L7-03: 4 MiB."""
    assert world["talk"]("/chat/talk", "large")[0][0] == 1009


def test_a_new_policy_ends_a_session_that_it_no_longer_allows(world, client, gateway):
    """FB-06: 1012, as soon as it is in force."""
    stream = client.exec_stream(world["name"], world["words"]("/chat/talk", ["hello", "wait"]), workspace=WORKSPACE, timeout_seconds=60)
    said = b""
    for piece in stream:
        said += getattr(piece, "data", b"") or b""
        if b"waiting" in said:
            break
    world["file"].write_text(policy(world["server"].port).replace('path: "/chat/**"', 'path: "/elsewhere/**"'))
    gateway.cli("policy", "set", world["name"], "--policy", str(world["file"]), "--wait")
    for piece in stream:
        said += getattr(piece, "data", b"") or b""
    assert json.loads(said.decode().split("waiting\n")[1]) == ["hello", [1012, "policy changed"]]
