"""Streams of JSON objects, one a line, flushed at once: answers as they grow, downloads as they come.

Silence is broken by blanks, which stand before the next object on its line.
"""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from twostroke.core.event import TokenEvent
from twostroke.serve.answers import Answers
from twostroke.serve.api_error import ApiError
from twostroke.serve.direct_body import DirectBody
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.ollama.replies import OllamaReply

logger = logging.getLogger("twostroke")
NDJSON = "application/x-ndjson"
KEEP_ALIVE = b" "


def encode_line(value: dict[str, Any]) -> bytes:
    """One object; JSON escapes line ends, so it stays on its line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class AnswerLines:
    """The stream of one answer, a line per token. A failure is its last line."""

    def __init__(self, reply: OllamaReply, answers: Answers, *, limits: LimitsConfig) -> None:
        self._reply = reply
        self._answers = answers
        self._idle_s = limits.keep_alive_s

    async def chunks(self, body: DirectBody | None = None) -> AsyncIterator[bytes]:
        def tell(index: int, event: TokenEvent) -> bool:
            if body is None or not body.is_open:
                return False
            for line in self._reply.lines(event):
                body.write(encode_line(line))
            return True

        try:
            async for each in self._answers.events_or_silence(self._idle_s, teller=tell):
                if each is None:
                    yield KEEP_ALIVE
                    continue
                for line in self._reply.lines(each[1]):
                    yield encode_line(line)
        except ApiError as error:
            yield encode_line(error.ollama_body)
        except Exception:
            logger.exception("a stream failed")
            yield encode_line(ApiError("internal error", status=500).ollama_body)
