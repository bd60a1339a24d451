"""Server-sent events: one chunk per token, flushed at once, `[DONE]` at the end.

A token whose text is held back (half a character, the beginning of a stop string) has no chunk of its
own; its text comes with the token that completes it.
"""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from twostroke.core.event import FinishEvent
from twostroke.serve.answers import Answers
from twostroke.serve.api_error import ApiError
from twostroke.serve.openai import Wish
from twostroke.serve.replies import Reply, reason_of

logger = logging.getLogger("twostroke")
DONE = b"data: [DONE]\n\n"


def encode_event(value: dict[str, Any]) -> bytes:
    """One event; JSON escapes line ends, so it stays on its line."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def chunks(wish: Wish, answers: Answers) -> AsyncIterator[bytes]:
    """The stream of one request, from who speaks to `[DONE]`. Failures become one error event."""
    reply = Reply(wish)
    finishes: dict[int, FinishEvent] = {}
    try:
        first = reply.first_chunk()
        if first is not None:
            yield encode_event(first)
        async for index, event in answers.events():
            if event.text:
                yield encode_event(reply.text_chunk(index, event.text))
            if isinstance(event, FinishEvent):
                finishes[index] = event
                yield encode_event(reply.last_chunk(index, reason_of(event)))
        if wish.includes_usage:
            yield encode_event(reply.usage_chunk(finishes))
    except ApiError as error:
        yield encode_event(error.body)
    except Exception:
        logger.exception("a stream failed")
        yield encode_event(ApiError("internal error", status=500).body)
    yield DONE


class StreamedReply(Response):
    """Sends the chunks; the answers end when the client leaves or sending fails."""

    def __init__(self, wish: Wish, answers: Answers) -> None:
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self._wish = wish
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._answers.cancelled_when_client_leaves(receive):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in chunks(self._wish, self._answers):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
