"""The part of the hub's HTTP API that an upload uses, in memory; it can be told to fail."""

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml
from huggingface_hub import constants
from huggingface_hub.utils import _http


class FakeHub:
    """What was asked and what is stored; ``failures`` maps a part of a path to (status, headers, message)."""

    def __init__(self):
        self.requests = []
        self.repositories = {}
        self.objects = {}
        self.failures = {}
        self.large = ()  # suffixes of files that the hub wants in large-file storage
        self.token = "hf_secret"


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, content=None, headers=()):
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        self.hub.objects[self.path.rpartition("/")[2]] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append((self.path, self.headers.get("Authorization")))
        for part, (status, headers, message) in self.hub.failures.items():
            if part in self.path:
                return self.answer(status, {"error": message}, headers)
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self.answer(401, {"error": "Invalid credentials"})
        if self.path.endswith("/commit/main"):
            return self.commit(body)
        given = json.loads(body)
        host = f"http://{self.headers['Host']}"
        if self.path == "/api/repos/create":
            name = f"{given['organization']}/{given['name']}" if given.get("organization") else given["name"]
            private = given.get("private") or given.get("visibility") == "private"  # before huggingface_hub 2, and now
            self.hub.repositories.setdefault(name, {"private": private, "files": {}})
            return self.answer(200, {"url": f"{host}/{name}"})
        if self.path == "/api/validate-yaml":
            head = yaml.safe_load(given["content"].split("---\n")[1])
            errors = [] if isinstance(head.get("license", ""), str) else [{"message": "license is no string"}]
            return self.answer(400 if errors else 200, {"errors": errors, "warnings": []})
        if "/preupload/" in self.path:
            modes = {
                one["path"]: "lfs" if one["path"].endswith(self.hub.large) else "regular" for one in given["files"]
            }
            files = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
            return self.answer(200, {"files": files})
        if self.path.endswith("/info/lfs/objects/batch"):
            found = [
                {**one, "actions": {"upload": {"href": f"{host}/objects/{one['oid']}"}}} for one in given["objects"]
            ]
            return self.answer(200, {"transfer": "basic", "objects": found})
        return self.answer(404, {"error": f"no {self.path}"})

    def do_GET(self):
        self.hub.requests.append((self.path, self.headers.get("Authorization")))
        name = self.path.removeprefix("/api/models/")
        if name not in self.hub.repositories:
            return self.answer(404, {"error": f"no {self.path}"})
        siblings = [{"rfilename": file} for file in self.hub.repositories[name]["files"]]
        return self.answer(200, {"id": name, "private": self.hub.repositories[name]["private"], "siblings": siblings})

    def commit(self, body):
        name = self.path.removeprefix("/api/models/").removesuffix("/commit/main")
        files = self.hub.repositories[name]["files"]
        for line in map(json.loads, body.decode().splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self.answer(200, {"commitUrl": f"https://huggingface.co/{name}/commit/1", "commitOid": "1" * 40})


@contextmanager
def serving(hub):
    """Serve a hub on a port of this machine; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def reached(monkeypatch):
    """Let the hub's library talk to a new hub of this process; yield it."""
    made = FakeHub()
    with serving(made) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(_http.time, "sleep", lambda _: None)
        monkeypatch.setenv("HF_TOKEN", made.token)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield made
