#!/usr/bin/env python3
"""A host-side API server that an agent in a sandbox may call: the builder or the provisioner of the quickstart.

The process contract: --port and --token, GET /healthz without a token, GET /tools.json that describes the tools, every other request with
`Authorization: Bearer TOKEN`, and an orderly end on SIGTERM. It listens on loopback: the supervisor reaches it from the host.
"""

import argparse
import hmac
import http.server
import json
import signal
import ssl
import sys
import threading

TOOLS = {
    "builder": [
        {"name": "build", "description": "Build a container image from a directory.", "method": "POST", "endpoint": "/build",
         "input_schema": {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}},
        {"name": "push", "description": "Push a built image to the registry.", "method": "POST", "endpoint": "/push",
         "input_schema": {"type": "object", "properties": {"image": {"type": "string"}}, "required": ["image"]}},
        {"name": "images", "description": "List the images that were built.", "method": "GET", "endpoint": "/images",
         "input_schema": {"type": "object", "properties": {}}},
    ],
    "provisioner": [
        {"name": "provision", "description": "Clone a repository for the agent.", "method": "POST", "endpoint": "/repo/provision",
         "input_schema": {"type": "object", "properties": {"repository": {"type": "string"}}, "required": ["repository"]}},
        {"name": "status", "description": "How far a repository's clone is.", "method": "GET", "endpoint": "/repo/status/{repository}",
         "input_schema": {"type": "object", "properties": {"repository": {"type": "string"}}, "required": ["repository"]}},
    ],
}
MAX_BODY = 1 << 20  # bytes


def openapi(role):
    """The same tools as an OpenAPI document: one source, two forms."""
    paths = {}
    for tool in TOOLS[role]:
        paths[tool["endpoint"]] = {tool["method"].lower(): {
            "operationId": tool["name"], "summary": tool["description"], "responses": {"200": {"description": "done"}},
            "requestBody": {"content": {"application/json": {"schema": tool["input_schema"]}}}}}
    return {"openapi": "3.0.3", "info": {"title": role, "version": "1"}, "paths": paths}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    role = ""
    token = ""

    def answer(self, status, body):
        data = (json.dumps(body) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def authorized(self):
        given = self.headers.get("Authorization", "").encode()
        if hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            return True
        self.answer(401, {"error": "a valid bearer token is required"})
        return False

    def do_GET(self):
        if self.path == "/healthz":
            self.answer(200, {"status": "ok"})
        elif self.authorized():
            if self.path == "/tools.json":
                self.answer(200, TOOLS[self.role])
            elif self.path == "/openapi.json":
                self.answer(200, openapi(self.role))
            elif self.path == "/images" and self.role == "builder":
                self.answer(200, [])
            elif self.path.startswith("/repo/status/") and self.role == "provisioner":
                self.answer(200, {"repository": self.path.removeprefix("/repo/status/"), "state": "unknown"})
            else:
                self.answer(404, {"error": f"no such path: {self.path}"})

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            return self.answer(413, {"error": f"body over {MAX_BODY} bytes"})
        body = self.rfile.read(length)
        if not self.authorized():
            return None
        if any(tool["endpoint"] == self.path and tool["method"] == "POST" for tool in TOOLS[self.role]):
            return self.answer(200, {"done": self.path, "received_bytes": len(body)})
        return self.answer(404, {"error": f"no such path: {self.path}"})

    def log_message(self, text, *values):
        sys.stderr.write(f"{self.role} {self.address_string()} {text % values}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", choices=sorted(TOOLS), required=True)
    parser.add_argument("--port", type=int, required=True, action="append", help="repeat it with --tls-* to serve HTTPS on the second port")
    parser.add_argument("--token", required=True)
    parser.add_argument("--bind-address", default="127.0.0.1")
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    options = parser.parse_args()
    if bool(options.tls_cert) != bool(options.tls_key):
        parser.error("--tls-cert and --tls-key go together")
    if len(options.port) != (2 if options.tls_cert else 1):
        parser.error("give one --port, or with --tls-cert two: plain HTTP first, then HTTPS")

    handler = type("Bound", (Handler,), {"role": options.role, "token": options.token})
    servers = [http.server.ThreadingHTTPServer((options.bind_address, port), handler) for port in options.port]
    if options.tls_cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.tls_cert, options.tls_key)
        servers[1].socket = context.wrap_socket(servers[1].socket, server_side=True)
    for server in servers:
        server.daemon_threads = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"{options.role} listens on {options.bind_address} ports {', '.join(map(str, options.port))}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    for server in servers:
        server.shutdown()
        server.server_close()  # waits for the requests in flight


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
