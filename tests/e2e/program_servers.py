"""What the programs of a sandbox talk to: one site over HTTP and HTTPS with a git repository, a Python index and an npm registry; and a DNS
server that knows its name. On an address of this host that is not its loopback, as a neighbour of the network would be."""

import base64
import hashlib
import http.server
import io
import json
import os
import pathlib
import socket
import socketserver
import ssl
import struct
import subprocess
import tarfile
import threading
import zipfile

ADDRESS = "10.253.77.1"
NAME = "tools.programs.test"
GIT_BACKEND = pathlib.Path("/usr/lib/git-core/git-http-backend")


def run(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


class Neighbour:
    """The address; taken from the host again at the end."""

    def __enter__(self):
        subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=False, capture_output=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "address", "del", f"{ADDRESS}/32", "dev", "lo"], check=False, capture_output=True)


def make_certificate(folder, names=(NAME, "other.programs.test")):
    """A CA of its own and a certificate for the names and the address. Returns (CA, certificate, key)."""
    ca, key, csr, crt = (folder / name for name in ("up-ca.crt", "up.key", "up.csr", "up.crt"))
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "up-ca.key", "-out", ca, "-days", "2", "-subj",
        "/CN=programs test CA")
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", csr, "-subj", f"/CN={names[0]}")
    (folder / "up.ext").write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in names) + f",IP:{ADDRESS}\n")
    run("openssl", "x509", "-req", "-in", csr, "-CA", ca, "-CAkey", folder / "up-ca.key", "-CAcreateserial", "-days", "2", "-out", crt,
        "-extfile", folder / "up.ext")
    return ca, crt, key


def make_repository(folder):
    work, bare = folder / "work", folder / "git" / "demo.git"
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.test",
                   "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.test"}
    run("git", "init", "-q", "-b", "main", work)
    (work / "README").write_text("hello from git\n")
    run("git", "-C", work, "add", ".")
    run("git", "-C", work, "commit", "-q", "-m", "first", env=environment)
    run("git", "clone", "-q", "--bare", work, bare)
    (bare / "git-daemon-export-ok").touch()
    return bare.parent


def make_wheel():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as wheel:
        wheel.writestr("demo_wheel.py", "WORDS = 'hello from pip'\n")
        wheel.writestr("demo_wheel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo-wheel\nVersion: 1.0\n")
        wheel.writestr("demo_wheel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("demo_wheel-1.0.dist-info/RECORD", "demo_wheel.py,,\ndemo_wheel-1.0.dist-info/METADATA,,\n"
                       "demo_wheel-1.0.dist-info/WHEEL,,\ndemo_wheel-1.0.dist-info/RECORD,,\n")
    return out.getvalue()


def make_npm_tarball():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in {"package.json": '{"name":"demo-npm","version":"1.0.0","main":"index.js"}',
                           "index.js": "module.exports = 'hello from npm'\n"}.items():
            data = text.encode()
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Site:
    def __init__(self, folder):
        self.ca, certificate, key = make_certificate(folder)
        self.git_root = make_repository(folder)
        self.wheel, self.tarball = make_wheel(), make_npm_tarball()
        self.seen = []  # (scheme, method, path, User-Agent, authorization) of every request that arrived
        self.servers = []
        self.http = self.serve("http", None)
        self.https = self.serve("https", (certificate, key))

    def serve(self, scheme, certificate):
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self):
                site.seen.append((scheme, self.command, self.path, self.headers.get("user-agent", ""), self.headers.get("authorization", "")))
                body = self.body()
                path, _, query = self.path.partition("?")
                if path.startswith("/git/"):
                    return self.git(path.removeprefix("/git"), query, body)
                status, kind, data = site.answer(f"{scheme}://{self.headers.get('host')}", path)
                self.reply(status, {"content-type": kind}, data)

            do_GET = do_POST = do_HEAD = do_PUT = do

            def body(self):
                if self.headers.get("transfer-encoding", "").lower() == "chunked":
                    data = b""
                    while size := int(self.rfile.readline(), 16):
                        data += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                    return data
                return self.rfile.read(int(self.headers.get("content-length", 0)))

            def git(self, path, query, body):
                environment = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(site.git_root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                               "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("content-type", ""),
                               "CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                               "GIT_PROTOCOL": self.headers.get("git-protocol", ""), "GIT_CONFIG_COUNT": "1",
                               "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
                head, _, data = subprocess.run([GIT_BACKEND], input=body, env=environment, capture_output=True).stdout.partition(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
                status = int(headers.pop("Status", "200 OK").split()[0])
                self.reply(status, headers, data)

            def reply(self, status, headers, data):
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        server = Server((ADDRESS, 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.servers.append(server)
        return server.server_address[1]

    def answer(self, origin, path):
        if path == "/hello":
            return 200, "text/plain", f"hello over {origin.split(':')[0]}\n".encode()
        if path == "/simple/demo-wheel/":
            return 200, "text/html", b'<!DOCTYPE html><html><body><a href="../../wheels/demo_wheel-1.0-py3-none-any.whl">demo_wheel</a></body></html>'
        if path == "/wheels/demo_wheel-1.0-py3-none-any.whl":
            return 200, "application/octet-stream", self.wheel
        if path == "/npm/demo-npm":
            dist = {"tarball": f"{origin}/npm/demo-npm/-/demo-npm-1.0.0.tgz", "shasum": hashlib.sha1(self.tarball).hexdigest(),
                    "integrity": "sha512-" + base64.b64encode(hashlib.sha512(self.tarball).digest()).decode()}
            version = {"name": "demo-npm", "version": "1.0.0", "dist": dist}
            return 200, "application/json", json.dumps({"name": "demo-npm", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}).encode()
        if path == "/npm/demo-npm/-/demo-npm-1.0.0.tgz":
            return 200, "application/octet-stream", self.tarball
        return 404, "text/plain", b"no such page\n"

    def end(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()


class Names:
    """DNS over UDP: every name below `domain` is ADDRESS, AAAA is empty, everything else NXDOMAIN."""

    def __init__(self, domain="programs.test"):
        self.asked, self.domain = [], domain
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                query, sender = self.socket.recvfrom(4096)
            except OSError:
                return
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            name, kind = ".".join(labels).lower(), struct.unpack(">H", query[at + 1:at + 3])[0]
            self.asked.append(name)
            known = name.endswith(f".{self.domain}")
            answers = [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(ADDRESS)] if known and kind == 1 else []
            header = query[:2] + struct.pack(">HHHHH", 0x8580 if known else 0x8583, 1, len(answers), 0, 0)
            self.socket.sendto(header + query[12:at + 5] + b"".join(answers), sender)

    def end(self):
        self.socket.close()
