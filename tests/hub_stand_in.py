"""A stand-in for the Hub's HTTP interface, as far as clients use it to publish: everything that it is sent is kept."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]


@dataclass
class Repository:
    private: bool
    branches: dict[str, Files]


@dataclass
class Commit:
    branch: str
    message: str
    sent: Files
    deleted: list[str]


@dataclass
class StandIn:
    """What is on the Hub, and what came in. `lfs` are the endings of names that go by LFS."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    answers: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    """What to answer to a request instead, by its method and the beginning of its path: a status and a text."""
    lfs: tuple[str, ...] = (".so",)
    endpoint: str = ""


class Handler(BaseHTTPRequestHandler):
    hub: StandIn

    def handle_one(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append((self.command, path))
        for (method, beginning), (status, text) in self.hub.answers.items():
            if method == self.command and path.startswith(beginning):
                self.answer(status, text)
                return
        self.route(path, body)

    do_GET = do_POST = do_PUT = do_HEAD = handle_one  # noqa: N815

    def route(self, path: str, body: bytes) -> None:
        parts = path.strip("/").split("/")
        if path == "/api/repos/create":
            self.create(json.loads(body))
        elif path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif parts[0] == "lfs":
            self.hub.objects[parts[1]] = body
            self.answer(200, {})
        elif path.endswith(".git/info/lfs/objects/batch"):
            self.batch(json.loads(body))
        elif parts[:2] == ["api", "kernels"]:
            repository = self.hub.repositories.get("/".join(parts[2:4]))
            if repository is None:
                self.answer(404, "Repository not found", {"X-Error-Code": "RepoNotFound"})
            else:
                self.repository(repository, parts[4] if len(parts) > 4 else "", "/".join(parts[5:]), body)
        else:
            self.answer(404, f"no such page: {path}")

    def create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        assert wanted["type"] == "kernel"
        status = 409 if name in self.hub.repositories else 200
        private = wanted.get("visibility") == "private" or wanted.get("private") is True
        self.hub.repositories.setdefault(name, Repository(private, {"main": {".gitattributes": b"*.so lfs\n"}}))
        self.answer(status, {"url": f"{self.hub.endpoint}/kernels/{name}", "name": name, "id": name})

    def repository(self, repository: Repository, action: str, rest: str, body: bytes) -> None:
        if action in ("", "revision"):
            self.answer(200, {"id": "owner/name", "sha": "0" * 40, "private": repository.private, "siblings": []})
        elif action == "refs":
            refs = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": "0" * 40} for n in repository.branches]
            self.answer(200, {"branches": refs, "converts": [], "tags": [], "pullRequests": []})
        elif action == "branch":
            repository.branches[rest] = dict(repository.branches["main"])
            self.answer(200, {})
        elif action == "tree":
            files = repository.branches[rest.split("/")[0]]
            listed = [{"type": "file", "path": p, "size": len(c), "oid": "0" * 40} for p, c in files.items()]
            self.answer(200, listed)
        elif action == "preupload":
            self.preupload(repository.branches[rest], json.loads(body)["files"])
        elif action == "commit":
            self.commit(repository.branches[rest], rest, body)
        else:
            self.answer(404, f"no such action: {action}")

    def preupload(self, files: Files, wanted: list[dict[str, Any]]) -> None:
        answers = []
        for one in wanted:
            lfs, path = one["path"].endswith(self.hub.lfs or ("/",)), one["path"]
            oid = None
            if path in files and lfs:
                oid = hashlib.sha256(files[path]).hexdigest()
            elif path in files:
                oid = hashlib.sha1(b"blob %d\0%s" % (len(files[path]), files[path])).hexdigest()  # noqa: S324
            answers.append({"path": path, "uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False, "oid": oid})
        self.answer(200, {"files": answers})

    def batch(self, wanted: dict[str, Any]) -> None:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.hub.endpoint}/lfs/{one['oid']}"}}}
            for one in wanted["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects}, {"Content-Type": "application/vnd.git-lfs+json"})

    def commit(self, files: Files, branch: str, body: bytes) -> None:
        made = Commit(branch, "", {}, [])
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                made.message = value["summary"]
            elif item["key"] == "file":
                made.sent[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                made.sent[value["path"]] = self.hub.objects[value["oid"]]
                assert hashlib.sha256(made.sent[value["path"]]).hexdigest() == value["oid"]
            else:
                assert item["key"] == "deletedFile"
                made.deleted.append(value["path"])
        for path in made.deleted:
            del files[path]
        files.update(made.sent)
        self.hub.commits.append(made)
        url = f"{self.hub.endpoint}/kernels/owner/name/commit/{'1' * 40}"
        self.answer(200, {"success": True, "commitUrl": url, "commitOid": "1" * 40})

    def answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        kind = "text/plain" if isinstance(content, str) else "application/json"
        said = {"X-Error-Message": content} if isinstance(content, str) and status >= 400 else {}
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **said, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing on the test's terminal."""


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """Serve a Hub without any repository on a free port, for as long as the context lasts."""
    hub = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
