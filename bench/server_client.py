"""A server in a process of its own and a client on bare sockets, for the benches of the server. Run by them alone."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY_S = 120.0  # to load a model on a busy machine
ANSWER_S = 300.0  # the longest anybody waits for a reply
TWOSTROKE = "import sys; from twostroke.cli.entry import main; sys.exit(main())"


@dataclass
class Server:
    """`twostroke serve` on a port of its own; its log, a line of JSON for each request, goes to `log`."""

    options: Sequence[str]
    log: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if not self.port:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self.port = probe.getsockname()[1]
        options = ("serve", "--port", str(self.port), "--json-logs", *self.options)
        with self.log.open("ab") as file:
            self.process = subprocess.Popen([sys.executable, "-c", TWOSTROKE, *options], stdout=file, stderr=file)
        deadline_s = time.monotonic() + READY_S
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"the server did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return asyncio.run(get(self.port, "/ready")).status == 200
        return False

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=120)

    def lines(self) -> list[dict[str, Any]]:
        """Everything it logged; what is no JSON is the line of its start or a mistake."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def rss_bytes(self) -> int:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024


@dataclass
class Reply:
    """What a client saw. `events` are the data of a stream's events, `body` what came whole."""

    status: int = 0
    body: Any = None
    events: list[dict[str, Any]] = field(default_factory=list)
    is_done: bool = False  # the stream said so
    start_s: float = 0.0
    first_s: float | None = None
    end_s: float = 0.0

    @property
    def error(self) -> dict[str, Any] | None:
        found = [event["error"] for event in [*self.events, self.body] if isinstance(event, dict) and "error" in event]
        return found[0] if found else None

    def texts(self) -> dict[int, str]:
        """The text of each choice as far as it came."""
        texts: dict[int, str] = {}
        for event in [*self.events, self.body]:
            for choice in event.get("choices", ()) if isinstance(event, dict) else ():
                words = choice.get("text")
                if words is None:
                    words = choice.get("delta", choice.get("message", {})).get("content") or ""
                texts[choice["index"]] = texts.get(choice["index"], "") + words
        return texts

    def reasons(self) -> dict[int, str]:
        reasons = {}
        for event in [*self.events, self.body]:
            for choice in event.get("choices", ()) if isinstance(event, dict) else ():
                if choice.get("finish_reason"):
                    reasons[choice["index"]] = choice["finish_reason"]
        return reasons


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def head(path: str, *, method: str = "POST", length: int, headers: dict[str, str] | None = None) -> bytes:
    given = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(length)}
    lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {value}" for key, value in (given | (headers or {})).items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


async def get(port: int, path: str, *, method: str = "GET") -> Reply:
    async with asyncio.timeout(ANSWER_S), connection(port) as (reader, writer):
        writer.write(head(path, method=method, length=0))
        reply = Reply(start_s=time.perf_counter())
        await read_reply(reader, reply)
        return reply


async def ask(
    port: int, path: str, body: bytes, *, request_id: str | None = None, reply: Reply | None = None, pause_s: float = 0
) -> Reply:
    """Post a body and read the whole reply, `pause_s` slept before each event of a stream.

    A caller that hands in `reply` sees in it what came, should this be cancelled.
    """
    reply = reply or Reply()
    headers = {} if request_id is None else {"X-Request-Id": request_id}
    async with asyncio.timeout(ANSWER_S), connection(port) as (reader, writer):
        reply.start_s = time.perf_counter()
        writer.write(head(path, length=len(body), headers=headers) + body)
        await writer.drain()
        await read_reply(reader, reply, pause_s=pause_s)
    return reply


async def read_reply(reader: asyncio.StreamReader, reply: Reply, *, pause_s: float = 0) -> None:
    top = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    reply.status = int(top.split()[1])
    if "text/event-stream" in top:
        async for line in _lines(reader):
            if line.startswith(b"data: "):
                await asyncio.sleep(pause_s)
                _take_event(reply, line[6:])
        reply.end_s = time.perf_counter()
    else:
        raw = await (_whole_chunks(reader) if "chunked" in top else reader.readexactly(_length(top)))
        reply.end_s = time.perf_counter()
        reply.body = json.loads(raw) if "application/json" in top else raw.decode()


def _length(top: str) -> int:
    return int(top.split("content-length: ")[1].split("\r\n")[0])


def _take_event(reply: Reply, data: bytes) -> None:
    if data == b"[DONE]":
        reply.is_done = True
        return
    event = json.loads(data)
    if reply.first_s is None and any(
        choice.get("delta") != {"role": "assistant", "content": ""} for choice in event.get("choices", ())
    ):
        reply.first_s = time.perf_counter()
    reply.events.append(event)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while line := await reader.readline():
        if (size := int(line, 16)) == 0:
            return
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    raise ConnectionError("the reply was cut")


async def _whole_chunks(reader: asyncio.StreamReader) -> bytes:
    return b"".join([chunk async for chunk in _chunks(reader)])


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in _chunks(reader):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


def metrics_of(text: str) -> dict[str, float]:
    """Prometheus' text as numbers by name and labels, without the prefix and the name of the only model."""
    text = re.sub(r',?model_name="[^"]*"', "", text).replace("{,", "{").replace("{}", "")
    pairs = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name.removeprefix("twostroke_"): float(value) for name, value in pairs}
