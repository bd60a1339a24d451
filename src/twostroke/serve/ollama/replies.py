"""What Ollama's clients receive: whole replies and the lines of a stream, for both routes.

A reply takes every event of its answer and tells what to send for it; it never waits and never sends.
"""

from collections.abc import Iterator
from typing import Any

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
        self._text = ""
        self._token_ids: list[int] = []
        self._untold: list[TokenEvent] = []  # only where log-probabilities are told
        self._all: list[TokenEvent] = []
        self._finish: FinishEvent | None = None

    def take(self, index: int, event: Event) -> None:
        """An event of a reply that does not stream. Raises ApiError for an end that is no answer."""
        self._text += event.text
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
        return frame(self._wish, self._text) | self._logprobs(self._all) | self._end(self._finish)

    def lines(self, event: Event) -> Iterator[dict[str, Any]]:
        """What to send for an event. Raises ApiError for an end that is no answer."""
        if isinstance(event, TokenEvent):
            self._token_ids.append(event.token_id)
            if self._wish.params.logprobs is not None:
                self._untold.append(event)
        if event.text:
            yield frame(self._wish, event.text) | self._untold_logprobs() | {"done": False}
        if isinstance(event, FinishEvent):
            reason_of(event, self._answers)
            yield frame(self._wish, "") | self._untold_logprobs() | self._end(event)

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


def frame(wish: OllamaWish, text: str) -> dict[str, Any]:
    """What every object of a reply begins with."""
    said = {"message": {"role": "assistant", "content": text}} if wish.is_chat else {"response": text}
    return {"model": wish.model_as_asked, "created_at": utc_time().isoformat().replace("+00:00", "Z"), **said}
