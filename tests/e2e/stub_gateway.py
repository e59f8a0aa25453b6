"""The page with made-up actors: as many sandboxes as wanted, in every state, without running one. Same files, same headers as the gateway's."""

import http.server
import json
import pathlib
import socketserver
import threading

PAGE = pathlib.Path(__file__).resolve().parents[2] / "api" / "operator" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
SUPERVISOR = ("boundary", "denial_aggregator", "endpoint_observer", "log_push", "policy_poller", "runtime_publisher", "session", "status_outbox")
RUNTIME = ("boundary", "broker_control", "exec_registry", "launcher_control", "mediation_lease", "tree_control")
GATEWAY = ("compute_reconciler", "global_configuration", "relay_registry", "sandbox_bus", "sandbox_index", "session_registry")


def actor(name, parent, summary="", kind=None, **more):
    return {"id": name, "parent": parent, "kind": kind or name, "summary": summary, "mailbox": 0, "waiting": 0, "handled": 120, "failed": 0, "restarts": 0, "oldest_ms": 0,
            "last_error": "", "rates": {}, **more}


class World:
    """`count` sandboxes; some of them, always the same ones, have something."""

    def __init__(self, count):
        self.count, self.seq, self.processes = count, 1, {}
        gateway = [actor("gateway_root", "", "7 children"), actor("directory", "gateway_root", f"{count + 7} actors")]
        gateway += [actor(name, "gateway_root", f"{count} of what it holds", rates={"heard": 1.5} if name == "session_registry" else {}) for name in GATEWAY]
        for number in range(count):
            gateway.append(self.entity(number))
            self.add(number)
        self.processes["gateway:openshell"] = {"id": "gateway:openshell", "kind": "gateway", "sandbox": "", "stale_ms": 0, "actors": gateway}

    @staticmethod
    def name(number):
        return f"{('crawler', 'builder', 'reviewer', 'analyst', 'tester')[number % 5]}-{number}"

    def entity(self, number):
        state = "error, no session, policy 3" if number % 97 == 41 else "ready, connected, policy 3"
        return actor(f"sandbox_entity:id-{number}", "sandbox_index", f"{self.name(number)}: {state}", "sandbox_entity")

    def add(self, number):
        box = f"default/{self.name(number)}"
        actors = [actor("supervisor", "", "0 restarts", "root"), actor("directory", "supervisor", "9 actors")] + [actor(name, "supervisor", "at rest") for name in SUPERVISOR]
        by = {one["id"]: one for one in actors}
        if number % 7 == 1:
            by["policy_poller"].update(rates={"config": 0.1, "nudge": 2.4}, summary="41 polls, version 3, 0 nudges waiting")
            by["log_push"].update(rates={"wake": 12, "reported": 4}, summary="9120 lines sent, 0 lost")
        if number % 31 == 2:
            by["denial_aggregator"].update(failed=2, failed_ms=4000, waiting=5, oldest_ms=8000, summary="5 keys waiting, 12 summaries submitted", last_error="UNAVAILABLE: the gateway answers nothing for 10 s")
        if number % 53 == 5:
            by["status_outbox"].update(failed=19, failed_ms=1000, waiting=3, oldest_ms=94000, restarts=1, rates={"pump": 0.3, "wake": 1.1}, summary="3 statuses waiting, 4 delivered, 0 refused, 0 dropped",
                                       last_error="DEADLINE_EXCEEDED: ReportPolicyStatus was not answered within 10 s")
        supervisor = {"id": f"supervisor:id-{number}", "kind": "supervisor", "sandbox": box, "stale_ms": 200, "actors": actors}
        if number % 89 == 60:
            supervisor.update(stale=True, stale_ms=32000)
        runtime = {"id": f"sandbox:id-{number}", "kind": "sandbox", "sandbox": box, "stale_ms": 700, "actors": [actor(name, "sandbox", "at rest") for name in RUNTIME]}
        self.processes[supervisor["id"]], self.processes[runtime["id"]] = supervisor, runtime

    def message(self):
        return {"epoch": "00000000deadbeef", "seq": self.seq, "processes": list(self.processes.values())}


class Stub:
    def __init__(self, count):
        stub = self
        self.world, self.changes, self.changed = World(count), [], threading.Condition()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.split("?")[0]
                if path == "/actors/stream":
                    return stub.stream(self)
                if path == "/denials":
                    return self.reply(200, "application/json", b'{"denials":[]}')
                file = PAGE / ("index.html" if path == "/" else path.removeprefix("/static/"))
                if path != "/" and not path.startswith("/static/") or not file.is_file():
                    return self.reply(404, "text/plain", b"")
                self.reply(200, TYPES[file.suffix], file.read_bytes())

            def reply(self, status, kind, body):
                self.send_response(status)
                self.begin(kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def begin(self, kind):
                self.send_header("Content-Type", kind)
                self.send_header("Content-Security-Policy", POLICY)
                self.send_header("Cache-Control", "no-store")

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stream(self, handler):
        handler.send_response(200)
        handler.begin("text/event-stream")
        handler.end_headers()
        try:
            self.event(handler, "snapshot", self.world.message())
            with self.changed:
                told = len(self.changes)
            while not self.ended:
                with self.changed:
                    self.changed.wait_for(lambda: len(self.changes) > told or self.ended, 1)
                    fresh, told = self.changes[told:], len(self.changes)
                for change in fresh:
                    self.event(handler, "change", change)
        except OSError:
            pass  # the page went

    ended = False

    @staticmethod
    def event(handler, name, message):
        handler.wfile.write(f"event: {name}\nid: {message['epoch']}-{message['seq']}\ndata: {json.dumps(message)}\n\n".encode())
        handler.wfile.flush()

    def change(self, *processes, gone=()):
        with self.changed:
            self.world.seq += 1
            for process in processes:
                self.world.processes[process["id"]] = process
            for name in gone:
                self.world.processes.pop(name, None)
            self.changes.append({"epoch": "00000000deadbeef", "seq": self.world.seq, "processes": list(processes), "gone": list(gone)})
            self.changed.notify_all()

    def close(self):
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        self.server.shutdown()
