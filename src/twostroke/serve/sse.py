"""Server-sent events: one chunk per token, flushed at once, `[DONE]` at the end.

A token whose text is held back (half a character, the beginning of a stop string) has no chunk of its
own; its text comes with the token that completes it. Silence is broken by comments, which clients drop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from twostroke.core.event import TokenEvent
from twostroke.serve.answer_api import ReplyStream
from twostroke.serve.answers import Answers
from twostroke.serve.api_error import ApiError
from twostroke.serve.chunk_form import encode_event
from twostroke.serve.direct_body import DirectBody, direct_body_of
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import Wish
from twostroke.serve.replies import Reply
from twostroke.serve.served_model import ServedModel

logger = logging.getLogger("twostroke")
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


class EventStream:
    """The stream of one request, from who speaks to `[DONE]`. Failures become one error event."""

    def __init__(self, wish: Wish, answers: Answers, *, model: ServedModel, limits: LimitsConfig) -> None:
        self._wish = wish
        self._answers = answers
        self._model = model
        self._reply = Reply(wish, answers, model=model)
        self._idle_s = limits.progress_s if wish.stream.has_progress else limits.keep_alive_s
        self._has_started = False

    async def chunks(self, body: DirectBody | None = None) -> AsyncIterator[bytes]:
        def tell(index: int, event: TokenEvent) -> bool:
            if body is None or not body.is_open:
                return False
            self._has_started = True
            told = self._reply.told(index, event)
            if told:
                body.write(told)
            return True

        try:
            for chunk in self._reply.first_chunks():
                yield encode_event(chunk)
            async for each in self._answers.events_or_silence(self._idle_s, teller=tell):
                if each is None:
                    yield await self._sign_of_life()
                    continue
                self._has_started = True
                told = self._reply.told(*each)
                if told:
                    yield told
            closing = self._reply.closing_chunk()
            if closing is not None:
                yield encode_event(closing)
        except ApiError as error:
            yield encode_event(error.body)
        except Exception:
            logger.exception("a stream failed")
            yield encode_event(ApiError("internal error", status=500).body)
        yield DONE

    async def _sign_of_life(self) -> bytes:
        """A comment; before the first token how much of the prompt is read, where that was asked for."""
        asked = self._answers.asked.get(0)
        if not self._wish.stream.has_progress or self._has_started or asked is None:
            return KEEP_ALIVE
        num_read = await asyncio.to_thread(self._model.progress, asked.request_id)
        return KEEP_ALIVE if num_read is None else encode_event(self._reply.progress_chunk(num_read))


class StreamedReply(Response):
    """Sends the chunks; the answers end when the client leaves or sending fails."""

    def __init__(self, stream: ReplyStream, answers: Answers, *, media_type: str, headers: dict[str, str]) -> None:
        super().__init__(media_type=media_type, headers={"Cache-Control": "no-cache", **headers})
        del self.headers["content-length"]
        self._stream = stream
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._answers.cancelled_when_client_leaves(receive):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in self._stream.chunks(direct_body_of(scope)):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
