"""A hub on this machine: lists files and serves them the way the client of the real one asks."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Repositories = Mapping[str, Mapping[str, bytes]]  # ORG/REPO -> path -> content


@contextmanager
def serve_hub(repositories: Repositories) -> Iterator[str]:
    """Serve until the block ends; yields the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_door(repositories))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _make_door(repositories: Repositories) -> type[BaseHTTPRequestHandler]:
    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(has_body=True)

        def do_HEAD(self) -> None:
            self._answer(has_body=False)

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self, *, has_body: bool) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                repo = "/".join(parts[2:4])
                files = repositories.get(repo)
                self._send(_describe(repo, files) if files is not None else None, {}, has_body=has_body)
            else:
                data = repositories.get("/".join(parts[:2]), {}).get("/".join(parts[4:]))
                etag = hashlib.sha256(data or b"").hexdigest()
                self._send(data, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, has_body=has_body)

        def _send(self, data: bytes | None, headers: Mapping[str, str], *, has_body: bool) -> None:
            self.send_response(200 if data is not None else 404)
            if data is None:
                headers = {"X-Error-Code": "RepoNotFound"}
            for name, value in {**headers, "Content-Length": str(len(data or b""))}.items():
                self.send_header(name, value)
            self.end_headers()
            if has_body and data:
                self.wfile.write(data)

    return Door


def _describe(repo: str, files: Mapping[str, bytes]) -> bytes:
    siblings = [{"rfilename": path, "size": len(data)} for path, data in files.items()]
    return json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode()
