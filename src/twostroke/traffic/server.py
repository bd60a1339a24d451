"""The server under load: its model, context and what it takes beside OpenAI's fields, found by asking.

Answers one request of the load at a time with an Outcome; never raises for what the server does.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from twostroke.errors import RemoteError
from twostroke.traffic.event_stream import DONE, EventDecoder, read_chunk
from twostroke.traffic.http_client import HttpClient
from twostroke.traffic.outcome import Outcome

HOLD_BYTES = 2**18  # of an answer, about a thousand tokens, are read after they came
PIECES_AT_ONCE = 32  # some tenths of a millisecond, in which no other answer's bytes get their time
LENGTH_FIELDS = ("ignore_eos", "min_tokens")


class Api(StrEnum):
    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self is Api.CHAT else "/v1/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a server takes beside the fields that all take."""

    has_lengths: bool  # ignore_eos and min_tokens: answers have the asked length
    has_usage: bool  # counts at the end of a stream
    counts_along: bool = False  # counts in every chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One model behind one address."""

    client: HttpClient
    model: str
    api: Api
    dialect: Dialect
    timeout_s: float
    extra: Mapping[str, Any]

    def body(self, text: str, *, output_tokens: int) -> bytes:
        """The request for one answer."""
        asked: dict[str, Any] = {"model": self.model, "max_tokens": output_tokens, "temperature": 0, "stream": True}
        if self.api is Api.CHAT:
            asked["messages"] = [{"role": "user", "content": text}]
        else:
            asked["prompt"] = text
        if self.dialect.has_usage:
            options = {"include_usage": True}
            asked["stream_options"] = options | ({"continuous_usage_stats": True} if self.dialect.counts_along else {})
        if self.dialect.has_lengths:
            asked |= {"ignore_eos": True, "min_tokens": output_tokens}
        return json.dumps(asked | dict(self.extra)).encode()

    async def answer(self, body: bytes, outcome: Outcome) -> Outcome:
        """Send a body and fill its outcome, `sent_s` to `end_s`."""
        now = self.client.clock.now
        outcome.sent_s = now()
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._read(body, outcome)
        except TimeoutError:
            outcome.error, outcome.problem = "timeout", f"no end after {self.timeout_s:g} s"
        except RemoteError as error:
            outcome.error, outcome.problem = error.kind, str(error)
        except asyncio.CancelledError:
            outcome.error, outcome.problem = "interrupted", "the load was ended before the answer"
            raise
        finally:
            if outcome.error is not None or not outcome.end_s:
                outcome.end_s = now()
        return outcome

    async def _read(self, body: bytes, outcome: Outcome) -> None:
        decoder, is_done = EventDecoder(), False
        async with self.client.ask("POST", self.api.path, body) as reply:
            if reply.status != 200:
                raise RemoteError(await reply.problem(), kind=f"http {reply.status}")
            if reply.kind != "text/event-stream":
                raise RemoteError(f"the reply is {reply.kind or 'of no kind'}, no event stream", kind="no stream")
            num_read = 0
            async for time_s, data in reply.pieces(hold_bytes=HOLD_BYTES):
                for event in decoder.feed(data):
                    if event == DONE:
                        is_done, outcome.end_s = True, time_s
                    else:
                        outcome.take(time_s, read_chunk(event))
                num_read += 1
                if num_read % PIECES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        outcome.num_comments = decoder.num_comments
        if not is_done and outcome.finish_reason is None:
            raise RemoteError("the stream ended without finish_reason or [DONE]", kind="stream cut")
        if not outcome.text_times:
            raise RemoteError("the answer has no text", kind="no text")


async def first_model(client: HttpClient) -> tuple[str, int | None]:
    """The first model of /v1/models and its context where it is told."""
    listed = await client.get("/v1/models")
    try:
        first = listed["data"][0]
        return str(first["id"]), _context(first)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise RemoteError("/v1/models lists no model: name one with --model", kind="no model") from None


async def context_of(client: HttpClient, model: str) -> int | None:
    """The context of a model where /v1/models tells it."""
    try:
        listed = await client.get("/v1/models")
        return next((_context(each) for each in listed["data"] if each["id"] == model), None)
    except (RemoteError, KeyError, TypeError, AttributeError):
        return None


def _context(model: Mapping[str, Any]) -> int | None:
    found = model.get("max_model_len")
    return found if type(found) is int else None


async def can_tokenize(client: HttpClient, model: str) -> bool:
    """Whether the server counts tokens at /tokenize, as this program's and vLLM's do."""
    try:
        return await count_tokens(client, model, "one two") > 0
    except RemoteError:
        return False


async def count_tokens(client: HttpClient, model: str, text: str) -> int:
    """Tokens of a text by the server's /tokenize. Raises RemoteError."""
    told = await client.post("/tokenize", {"model": model, "prompt": text})
    try:
        return int(told["count"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RemoteError("/tokenize tells no count", kind="no count") from None
