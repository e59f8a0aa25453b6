"""An OpenID Connect issuer on loopback: discovery, keys that rotate, client credentials, refresh and device grants. Counts what it was asked."""

import base64
import hashlib
import http.server
import json
import socketserver
import ssl
import threading
import time
import urllib.parse
import uuid

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, size=None):
    return base64url(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


class Key:
    def __init__(self, algorithm="RS256"):
        self.kid, self.algorithm = uuid.uuid4().hex[:8], algorithm
        if algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        elif algorithm == "ES256":
            self.private = ec.generate_private_key(ec.SECP256R1())
        else:
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def jwk(self):
        base = {"kid": self.kid, "use": "sig", "alg": self.algorithm}
        public = self.private.public_key()
        if self.algorithm == "EdDSA":
            return {**base, "kty": "OKP", "crv": "Ed25519", "x": base64url(public.public_bytes_raw())}
        numbers = public.public_numbers()
        if self.algorithm == "ES256":
            return {**base, "kty": "EC", "crv": "P-256", "x": number(numbers.x, 32), "y": number(numbers.y, 32)}
        return {**base, "kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}

    def sign(self, claims, **header):
        head = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT", **header}
        text = f"{base64url(json.dumps(head).encode())}.{base64url(json.dumps(claims).encode())}"
        data = text.encode()
        if self.algorithm == "EdDSA":
            signature = self.private.sign(data)
        elif self.algorithm == "ES256":
            r, s = decode_dss_signature(self.private.sign(data, ec.ECDSA(hashes.SHA256())))
            signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        else:
            signature = self.private.sign(data, padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{base64url(signature)}"


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class Issuer:
    """`certificate`: (cert file, key file) for https. Everything below may be changed while it runs."""

    AUDIENCE = "openshell-cli"

    def __init__(self, certificate=None):
        self.keys = [Key()]
        self.signing = self.keys[0]
        self.asked = {"discovery": 0, "keys": 0, "token": []}
        self.clients = {"robot": "robot-secret"}  # client id: secret
        self.roles, self.subject, self.lifetime = ["openshell-user", "openshell-admin"], "robot", 300
        self.refresh_tokens = {}  # token: subject; rotated on use
        self.devices = {}  # "polls": how often the user is not done yet, "deny": the user says no
        self.changes = {}  # keys of the discovery document that are said otherwise
        self.key_answer = None  # a function that answers instead of the key set: -> (status, headers, body)
        self.discovery_answer = None
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.reply(*issuer.get(self.path))

            def do_POST(self):
                form = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                fields = dict(urllib.parse.parse_qsl(form))
                self.reply(*(issuer.device(fields) if self.path == "/device" else issuer.token(fields)))

            def reply(self, status, headers, body):
                self.send_response(status)
                for name, value in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificate:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()

    def get(self, path):
        if path == "/.well-known/openid-configuration":
            self.asked["discovery"] += 1
            if self.discovery_answer:
                return self.discovery_answer()
            document = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", "token_endpoint": f"{self.url}/token",
                        "device_authorization_endpoint": f"{self.url}/device", **self.changes}
            return 200, {}, json.dumps(document).encode()
        if path == "/keys":
            self.asked["keys"] += 1
            if self.key_answer:
                return self.key_answer()
            return 200, {}, json.dumps({"keys": [key.jwk() for key in self.keys]}).encode()
        return 404, {}, b"{}"

    def token(self, form):
        self.asked["token"].append(form)
        grant, client = form.get("grant_type"), form.get("client_id")
        if grant == "client_credentials":
            if self.clients.get(client) != form.get("client_secret") or client is None:
                return 401, {}, b'{"error":"invalid_client","error_description":"wrong client"}'
            return self.granted(self.subject, form)
        if grant == "refresh_token":
            subject = self.refresh_tokens.pop(form.get("refresh_token"), None)
            if subject is None:
                return 400, {}, b'{"error":"invalid_grant","error_description":"refresh token is used up"}'
            fresh = uuid.uuid4().hex
            self.refresh_tokens[fresh] = subject
            return self.granted(subject, form, refresh_token=fresh)
        if grant == "urn:ietf:params:oauth:grant-type:device_code":
            challenge = base64url(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
            if form.get("device_code") != "device-code" or challenge != self.challenge:
                return 400, {}, b'{"error":"invalid_grant"}'
            if self.devices.get("deny"):
                return 400, {}, b'{"error":"access_denied"}'
            self.devices["polls"] = self.devices.get("polls", 0) - 1
            if self.devices["polls"] > 0:
                return 400, {}, b'{"error":"authorization_pending"}'
            fresh = uuid.uuid4().hex
            self.refresh_tokens[fresh] = self.subject
            return self.granted(self.subject, form, refresh_token=fresh)
        return 400, {}, b'{"error":"unsupported_grant_type"}'

    def device(self, form):
        self.challenge = form.get("code_challenge")
        answer = {"device_code": "device-code", "user_code": "WDJB-MJHT", "verification_uri": f"{self.url}/activate", "expires_in": 60,
                  "interval": 1}
        return 200, {}, json.dumps(answer).encode()

    def granted(self, subject, form, **more):
        access = self.access_token(sub=subject, scope=form.get("scope", ""))
        return 200, {}, json.dumps({"access_token": access, "token_type": "Bearer", "expires_in": self.lifetime, **more}).encode()

    def claims(self, **changes):
        now = int(time.time())
        claims = {"iss": self.url, "aud": self.AUDIENCE, "sub": self.subject, "preferred_username": f"{self.subject}@example.test",
                  "jti": uuid.uuid4().hex, "iat": now, "exp": now + self.lifetime, "realm_access": {"roles": self.roles}}
        claims.update(changes)
        return {name: value for name, value in claims.items() if value is not None}

    def access_token(self, key=None, header=None, **changes):
        return (key or self.signing).sign(self.claims(**changes), **(header or {}))
