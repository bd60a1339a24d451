"""A server in a process of its own, and a client on a bare socket that may leave at any moment."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
PATIENCE_S = 10.0  # two cores are shared with compilers; the promise itself is two seconds


@dataclass(frozen=True, slots=True)
class ServerProcess:
    process: subprocess.Popen[str]
    address: str

    def health(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.address}/health", timeout=PATIENCE_S) as response:
            body: dict[str, Any] = json.load(response)
        return body

    def post(self, path: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The JSON a route answers."""
        return self._ask(path, "POST", json.dumps(fields).encode())

    def get(self, path: str, *, method: str = "GET") -> dict[str, Any]:
        return self._ask(path, method, None)

    def _ask(self, path: str, method: str, body: bytes | None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def is_idle(self) -> bool:
        body = self.health()
        return (body["requests"], body["kv_blocks"]["held"]) == ({"running": 0, "waiting": 0}, 0)

    def connect(self, path: str, fields: dict[str, Any], *, request_id: str | None = None) -> socket.socket:
        """Send a request and return the open connection."""
        place = urlsplit(self.address)
        connection = socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)
        body = json.dumps(fields).encode()
        name = "" if request_id is None else f"\r\nX-Request-Id: {request_id}"
        kind = "Host: localhost\r\nContent-Type: application/json"
        head = f"POST {path} HTTP/1.1\r\n{kind}{name}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return connection

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and what stderr holds."""
        self.process.send_signal(number)
        _, problems = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, problems


@contextmanager
def running_server(command: Sequence[str]) -> Iterator[ServerProcess]:
    """Start `python COMMAND` and wait for the line of stderr with its address."""
    process = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if "http://" in line:
                break
        assert "http://" in said, said
        yield ServerProcess(process, said[said.find("http://") :].split("/v1")[0].split()[0])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline_s, "not true in time"
        time.sleep(0.02)


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    received = b""
    while mark not in received:
        more = connection.recv(65536)
        assert more, received
        received += more
    return received
