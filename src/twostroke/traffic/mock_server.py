"""A server that answers on a schedule: what a load generator must find is known before it measures.

`python -m twostroke.traffic.mock_server --ttft-ms 50 --itl-ms 10` prints its address and serves until it is ended.
Token k of an answer leaves at (head read) + TTFT + k x ITL, whatever else goes on. A word of a prompt is a token.
"""

import argparse
import asyncio
import contextlib
import json
import selectors
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from twostroke.core.clock import WallClock

MODEL, CONTEXT = "mock", 1_000_000
CLOCK = WallClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class MockSchedule:
    """When tokens leave, and what goes wrong on purpose."""

    ttft_s: float = 0.05
    itl_s: float = 0.01
    tokens_per_chunk: int = 1  # after the first token
    fail_every: int = 0  # every n-th answer is a 503, 0 for none
    cut_every: int = 0  # every n-th stream breaks off after its second token, 0 for none
    is_strict: bool = False  # refuses fields that OpenAI does not have
    has_tokenize: bool = True


class MockServer:
    """One schedule behind the routes of OpenAI's API that a load generator asks."""

    def __init__(self, schedule: MockSchedule) -> None:
        self._schedule = schedule
        self._num_asked = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection until it closes."""
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                arrival_s = CLOCK.now()
                lines = head.split("\r\n")
                lengths = [line.split(":")[1] for line in lines if line.lower().startswith("content-length:")]
                body = await reader.readexactly(int(lengths[0]) if lengths else 0)
                path = lines[0].split(" ")[1]
                if not await self._answer(path, json.loads(body or b"{}"), arrival_s, writer):
                    break

    async def _answer(self, path: str, asked: dict[str, Any], arrival_s: float, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        if path == "/v1/models":
            return _send(writer, 200, {"data": [{"id": MODEL, "object": "model", "max_model_len": CONTEXT}]})
        if path == "/tokenize" and self._schedule.has_tokenize:
            count = len(str(asked["prompt"]).split())
            return _send(writer, 200, {"count": count, "tokens": list(range(count)), "max_model_len": CONTEXT})
        if path not in ("/v1/chat/completions", "/v1/completions"):
            return _send(writer, 404, {"error": {"message": f"no route {path}"}})
        self._num_asked += 1
        if self._schedule.fail_every and self._num_asked % self._schedule.fail_every == 0:
            return _send(writer, 503, {"error": {"message": "the mock fails on purpose"}})
        if self._schedule.is_strict and (extra := {"ignore_eos", "min_tokens"} & asked.keys()):
            return _send(writer, 400, {"error": {"message": f"unknown: {', '.join(sorted(extra))}"}})
        return await self._stream(asked, arrival_s, writer, is_chat=path == "/v1/chat/completions")

    async def _stream(
        self, asked: dict[str, Any], arrival_s: float, writer: asyncio.StreamWriter, *, is_chat: bool
    ) -> bool:
        schedule = self._schedule
        num_tokens = int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 16)
        cuts = schedule.cut_every and self._num_asked % schedule.cut_every == 0
        options = asked.get("stream_options") or {}
        prompt_tokens = _num_words(asked)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if is_chat:
            _send_event(writer, _chunk({"role": "assistant", "content": ""}, is_chat=True))
        sent = 0
        while sent < num_tokens:
            count = 1 if sent == 0 else min(schedule.tokens_per_chunk, num_tokens - sent)
            last = sent + count - 1  # a chunk leaves when its last token is there
            await asyncio.sleep(arrival_s + schedule.ttft_s + last * schedule.itl_s - CLOCK.now())
            sent += count
            text = " word" * count
            chunk = _chunk({"content": text} if is_chat else text, is_chat=is_chat)
            if options.get("continuous_usage_stats"):
                chunk["usage"] = _usage(prompt_tokens, sent)
            _send_event(writer, chunk)
            if cuts and sent >= 2:
                return False
        _send_event(writer, _chunk({} if is_chat else "", is_chat=is_chat, reason="length"))
        if options.get("include_usage"):
            _send_event(writer, {"choices": [], "usage": _usage(prompt_tokens, num_tokens)})
        _send_chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _num_words(asked: dict[str, Any]) -> int:
    texts = [message["content"] for message in asked["messages"]] if "messages" in asked else [asked["prompt"]]
    return sum(len(str(text).split()) for text in texts)


def _usage(prompt_tokens: int, sent: int) -> dict[str, int]:
    return {"prompt_tokens": prompt_tokens, "completion_tokens": sent, "total_tokens": prompt_tokens + sent}


def _chunk(content: dict[str, str] | str, *, is_chat: bool, reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta" if is_chat else "text": content, "finish_reason": reason}
    kind = "chat.completion.chunk" if is_chat else "text_completion"
    return {"id": "mock-1", "object": kind, "created": 0, "model": MODEL, "choices": [choice]}


def _send_event(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    _send_chunk(writer, b"data: " + json.dumps(value).encode() + b"\n\n")


def _send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _send(writer: asyncio.StreamWriter, status: int, value: dict[str, Any]) -> bool:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return True


@contextlib.asynccontextmanager
async def serving(schedule: MockSchedule, *, port: int = 0) -> AsyncIterator[str]:
    """The mock's address, on this event loop, while the block runs."""
    listening = await asyncio.start_server(MockServer(schedule).talk, "127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


async def _serve_for_ever(schedule: MockSchedule, port: int) -> None:
    async with serving(schedule, port=port) as address:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """The command: every field of the schedule as a flag."""
    parser = argparse.ArgumentParser(description="A server that answers on a schedule.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=50.0)
    parser.add_argument("--itl-ms", type=float, default=10.0)
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    options = parser.parse_args()
    schedule = MockSchedule(
        ttft_s=options.ttft_ms / 1000, itl_s=options.itl_ms / 1000, tokens_per_chunk=options.tokens_per_chunk
    )
    # select() waits to the microsecond, epoll and poll to the millisecond.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    with contextlib.suppress(KeyboardInterrupt):
        loop.run_until_complete(_serve_for_ever(schedule, options.port))


if __name__ == "__main__":
    main()
