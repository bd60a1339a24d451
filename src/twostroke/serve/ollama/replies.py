"""What Ollama's clients receive: whole replies and the lines of a stream, for both routes.

A reply takes every event of its answer and tells what to send for it; it never waits and never sends.
"""

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from twostroke.chat.answer import CallArguments, CallBegin, Content, Piece, Reasoning, ToolCall, answer_of
from twostroke.core.clock import utc_time
from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.serve.answers import Answers
from twostroke.serve.logprobs import chat_logprobs
from twostroke.serve.ollama.durations import durations
from twostroke.serve.ollama.wish import OllamaWish
from twostroke.serve.replies import reason_of
from twostroke.serve.served_model import ServedModel


class OllamaReply:
    """One answer as it grows. Tokens whose text is held back wait for the text that comes with a later one."""

    def __init__(self, wish: OllamaWish, answers: Answers, *, model: ServedModel) -> None:
        self._wish = wish
        self._answers = answers
        self._model = model
        self._reader = answers.asked[0].new_reader()
        self._pieces: list[Piece] = []
        self._token_ids: list[int] = []
        self._untold: list[TokenEvent] = []  # only where log-probabilities are told
        self._all: list[TokenEvent] = []
        self._name = ""  # of the call that began last
        self._finish: FinishEvent | None = None

    def take(self, index: int, event: Event) -> None:
        """An event of a reply that does not stream. Raises ApiError for an end that is no answer."""
        self._pieces += self._read(event)
        if isinstance(event, FinishEvent):
            reason_of(event, self._answers)
            self._finish = event
            return
        self._token_ids.append(event.token_id)
        if self._wish.params.logprobs is not None:
            self._all.append(event)

    def whole(self) -> dict[str, Any]:
        """The reply, once the answer has finished."""
        assert self._finish is not None, "the answer has not finished"
        answer = answer_of(self._pieces)
        calls = [_call(call, index) for index, call in enumerate(answer.tool_calls)]
        told = frame(self._wish, answer.content, thinking=answer.reasoning, calls=calls)
        return told | self._logprobs(self._all) | self._end(self._finish)

    def lines(self, event: Event) -> Iterator[dict[str, Any]]:
        """What to send for an event. Raises ApiError for an end that is no answer."""
        if isinstance(event, TokenEvent):
            self._token_ids.append(event.token_id)
            if self._wish.params.logprobs is not None:
                self._untold.append(event)
        for told in self._told(self._read(event)):
            yield told | self._untold_logprobs() | {"done": False}
        if isinstance(event, FinishEvent):
            reason_of(event, self._answers)
            yield frame(self._wish, "") | self._untold_logprobs() | self._end(event)

    def _read(self, event: Event) -> list[Piece]:
        """What of the answer became certain with an event."""
        pieces = self._reader.feed(event.text)
        return [*pieces, *self._reader.end()] if isinstance(event, FinishEvent) else pieces

    def _told(self, pieces: Iterable[Piece]) -> Iterator[dict[str, Any]]:
        """The beginnings of the lines that tell pieces; a call is told whole."""
        for piece in pieces:
            match piece:
                case Content(text):
                    yield frame(self._wish, text)
                case Reasoning(text):
                    yield frame(self._wish, "", thinking=text)
                case CallBegin(_, name):
                    self._name = name
                case CallArguments(index, text):
                    yield frame(self._wish, "", calls=[_call(ToolCall(self._name, text), index)])

    def _end(self, finish: FinishEvent) -> dict[str, Any]:
        tells_context = not self._wish.is_chat and not self._wish.is_raw
        context = {"context": [*self._answers.asked[0].prompt_token_ids, *self._token_ids]} if tells_context else {}
        reason = reason_of(finish, self._answers)
        return {"done": True, "done_reason": reason} | context | durations(finish, self._answers.ledgers[0])

    def _untold_logprobs(self) -> dict[str, Any]:
        """Those of the tokens since the last line."""
        tokens, self._untold = self._untold, []
        return self._logprobs(tokens)

    def _logprobs(self, tokens: list[TokenEvent]) -> dict[str, Any]:
        return {"logprobs": chat_logprobs(self._model, tokens)["content"]} if tokens else {}


def unasked(wish: OllamaWish) -> dict[str, Any]:
    """The reply to a request without a prompt: its model is loaded, or gone where it should stay for no time."""
    return frame(wish, "") | {"done": True, "done_reason": "unload" if wish.keep_alive_s == 0 else "load"}


def frame(
    wish: OllamaWish, text: str, *, thinking: str = "", calls: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """What every object of a reply begins with."""
    beside: dict[str, Any] = {"thinking": thinking} if thinking else {}
    if wish.is_chat:
        beside |= {"tool_calls": list(calls)} if calls else {}
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text, **beside}}
    else:
        said = {"response": text, **beside}
    return {"model": wish.model_as_asked, "created_at": utc_time().isoformat().replace("+00:00", "Z"), **said}


def _call(call: ToolCall, index: int) -> dict[str, Any]:
    function = {"index": index, "name": call.name, "arguments": json.loads(call.arguments)}
    return {"id": f"call_{secrets.token_hex(4)}", "function": function}
