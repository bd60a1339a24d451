"""Outcomes, items and servers with tiny numbers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from twostroke.traffic.event_stream import Chunk
from twostroke.traffic.http_client import Address, HttpClient
from twostroke.traffic.mock_server import MODEL, MockSchedule, serving
from twostroke.traffic.outcome import Outcome
from twostroke.traffic.server import Api, Dialect, Server
from twostroke.traffic.workload import Item, Piece

T = TypeVar("T")
SAMPLES = Path(__file__).parent / "samples"
FAST = MockSchedule(ttft_s=0.02, itl_s=0.002)
RICH = Dialect(has_lengths=True, has_usage=True)


def make_item(prompt: int = 8, output: int = 4, **changes: Any) -> Item:
    return Item(pieces=(Piece("a prompt", prompt),), output_tokens=output, **changes)


def make_outcome(
    times: tuple[float, ...] = (1.1, 1.2, 1.3), *, sent_s: float = 1.0, tokens: int | None = None, **changes: Any
) -> Outcome:
    """Text at `times`, the role just after sending, the end and usage just after the last text."""
    outcome = Outcome(place=0, wanted_prompt=8, wanted_output=len(times), sent_s=sent_s)
    outcome.take(sent_s + 0.01, make_chunk(""))
    for time_s in times:
        outcome.take(time_s, make_chunk("x"))
    end_s = (times[-1] if times else sent_s) + 0.02
    outcome.take(end_s, make_chunk("", finish_reason="length"))
    count = len(times) if tokens is None else tokens
    outcome.take(end_s, make_chunk("", has_choices=False, sent=count))
    outcome.end_s = end_s
    for name, value in changes.items():
        setattr(outcome, name, value)
    return outcome


def make_chunk(
    text: str,
    *,
    reasoning: str = "",
    has_choices: bool = True,
    finish_reason: str | None = None,
    sent: int | None = None,
    **usage: Any,
) -> Chunk:
    """`sent` tokens so far, told with what else `usage` has."""
    told = None if sent is None else {"prompt_tokens": 8, "completion_tokens": sent, **usage}
    return Chunk(
        text=text,
        reasoning=reasoning,
        has_choices=has_choices,
        finish_reason=finish_reason,
        usage=told,
        ledger=None,
    )


@asynccontextmanager
async def mocked(
    schedule: MockSchedule = FAST, *, api: Api = Api.COMPLETIONS, dialect: Dialect = RICH, timeout_s: float = 20.0
) -> AsyncIterator[Server]:
    """A server that answers on schedule, and a client for it, on one event loop."""
    async with serving(schedule) as address:
        client = HttpClient(Address.of(address))
        try:
            yield Server(client=client, model=MODEL, api=api, dialect=dialect, timeout_s=timeout_s, extra={})
        finally:
            await client.close()


@asynccontextmanager
async def talking(talk: Callable[[bytes], bytes | None], *, api_key: str | None = None) -> AsyncIterator[HttpClient]:
    """A client of a server that answers each request's bytes with `talk`'s; None closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
            answer = talk(head + await reader.readexactly(length))
            if answer is None:
                break
            writer.write(answer)

    async def serve_quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)

    listening = await asyncio.start_server(serve_quietly, "127.0.0.1", 0)
    client = HttpClient(Address.of(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"), api_key=api_key)
    try:
        yield client
    finally:
        await client.close()
        listening.close()


def reply(body: bytes, *, status: int = 200, kind: str = "application/json") -> bytes:
    return b"HTTP/1.1 %d -\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (
        status,
        kind.encode(),
        len(body),
        body,
    )


def json_reply(value: object, *, status: int = 200) -> bytes:
    return reply(json.dumps(value).encode(), status=status)


def stream_reply(*events: object) -> bytes:
    """Whole events; text stands as it is, other values as JSON."""
    data = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return reply("".join(f"data: {each}\n\n" for each in data).encode(), kind="text/event-stream")


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await asyncio.wait_for(work, 30)

    return asyncio.run(main())
