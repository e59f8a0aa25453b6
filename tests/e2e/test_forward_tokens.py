"""`forward service` against a gateway that wants a session token for TCP targets as well (ours takes the caller's own right): served here, with the
published package's messages."""

import concurrent.futures
import os
import socket
import subprocess
import threading

import grpc
import pytest
from conftest import BIN, free_port, wait_until
from openshell._proto import openshell_pb2, openshell_pb2_grpc


class Strict(openshell_pb2_grpc.OpenShellServicer):
    """Echoes what is forwarded under a token that it gave out and that is not given back."""

    def __init__(self):
        self.lock = threading.Lock()
        self.refused, self.given, self.returned, self.slow = 0, [], [], threading.Event()

    def GetSandbox(self, request, context):
        answer = openshell_pb2.SandboxResponse()
        answer.sandbox.metadata.name = request.name
        answer.sandbox.status.phase = openshell_pb2.SANDBOX_PHASE_READY
        return answer

    def CreateSshSession(self, request, context):
        with self.lock:
            self.given.append(f"token-{len(self.given)}")
            token = self.given[-1]
        if token == "token-0":
            self.slow.wait(20)  # the first waits: others must not wait for it
        return openshell_pb2.CreateSshSessionResponse(sandbox_id="id-1", token=token, gateway_host="127.0.0.1", gateway_port=1, gateway_scheme="http")

    def RevokeSshSession(self, request, context):
        with self.lock:
            self.returned.append(request.token)
        return openshell_pb2.RevokeSshSessionResponse()

    def ForwardTcp(self, frames, context):
        init = next(frames).init
        if init.authorization_token not in set(self.given) - set(self.returned):
            self.refused += 1
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "authorization_token is required for ForwardTcp")
        for frame in frames:
            yield openshell_pb2.TcpForwardFrame(data=frame.data)


@pytest.fixture
def strict():
    servicer = Strict()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
    openshell_pb2_grpc.add_OpenShellServicer_to_server(servicer, server)
    servicer.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer
    servicer.slow.set()
    server.stop(None).wait()


def ask(port, question):
    """The answer, None where the connection broke."""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        answer = b""
        try:
            connection.sendall(question)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                answer += piece
        except OSError as broken:
            assert not isinstance(broken, TimeoutError)
            return None
        return answer


def test_it_takes_a_session_for_each_connection_and_gives_it_back(strict, tmp_path):
    local = free_port()
    words = [BIN / "openshell", "--gateway-endpoint", f"http://127.0.0.1:{strict.port}", "forward", "service", "box", "--target-port", "80", "--local", str(local)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_COLOR": "1"}
    with subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            assert b"via gRPC" in process.stderr.readline()
            assert ask(local, b"lost") is None, "the connection that met the demand is broken, not ended"
            assert strict.refused == 1
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                held = pool.submit(ask, local, b"first")
                wait_until(lambda: strict.given, what="the first session")
                assert ask(local, b"second") == b"second", "while another connection waits for its session"
                assert not held.done()
                strict.slow.set()
                assert held.result(20) == b"first"
            wait_until(lambda: sorted(strict.returned) == strict.given == ["token-0", "token-1"], what="both sessions given back")
            assert strict.refused == 1 and process.poll() is None
        finally:
            process.kill()
