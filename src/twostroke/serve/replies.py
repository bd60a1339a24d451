"""What OpenAI's clients receive: whole replies and the chunks of a stream, for both routes."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.core.clock import unix_time_s
from twostroke.core.event import FinishEvent, Usage
from twostroke.core.sequence import FinishReason
from twostroke.serve.api_error import ApiError
from twostroke.serve.openai import Wish


class Reply:
    """The frame of one reply: id, time, model, and which of the two shapes it has."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        prefix = "chatcmpl" if wish.is_chat else "cmpl"
        self._facts = {"id": f"{prefix}-{secrets.token_hex(12)}", "created": unix_time_s(), "model": wish.model}

    def whole(self, texts: Sequence[str], finishes: Mapping[int, FinishEvent]) -> dict[str, Any]:
        """The reply of a request that did not stream."""
        choices = [self._choice(index, text, reason_of(finishes[index])) for index, text in enumerate(texts)]
        return self._frame("chat.completion", choices) | {"usage": usage_of(finishes)}

    def _choice(self, index: int, text: str, reason: str) -> dict[str, Any]:
        if self._wish.is_chat:
            content: dict[str, Any] = {"message": {"role": "assistant", "content": text, "refusal": None}}
        else:
            content = {"text": text}
        return {"index": index, **content, "logprobs": None, "finish_reason": reason}

    def first_chunk(self) -> dict[str, Any] | None:
        """Who speaks, before the first token; only chats say that."""
        return self._chunk(0, {"role": "assistant", "content": ""}) if self._wish.is_chat else None

    def text_chunk(self, index: int, text: str) -> dict[str, Any]:
        return self._chunk(index, {"content": text} if self._wish.is_chat else text)

    def last_chunk(self, index: int, reason: str) -> dict[str, Any]:
        return self._chunk(index, {} if self._wish.is_chat else "", reason=reason)

    def usage_chunk(self, finishes: Mapping[int, FinishEvent]) -> dict[str, Any]:
        """The last chunk of a stream that asked for it: no choices, only usage."""
        return self._frame("chat.completion.chunk", []) | {"usage": usage_of(finishes)}

    def _chunk(self, index: int, content: dict[str, str] | str, *, reason: str | None = None) -> dict[str, Any]:
        name = "delta" if self._wish.is_chat else "text"
        choice = {"index": index, name: content, "logprobs": None, "finish_reason": reason}
        usage = {"usage": None} if self._wish.includes_usage else {}
        return self._frame("chat.completion.chunk", [choice]) | usage

    def _frame(self, chat_object: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._facts, "object": chat_object if self._wish.is_chat else "text_completion", "choices": choices}


def reason_of(finish: FinishEvent) -> str:
    """OpenAI's word for the end. Raises ApiError for an end that is no answer."""
    if finish.reason is FinishReason.ERROR:
        raise ApiError(finish.error or "the request failed", status=500)
    if finish.reason is FinishReason.CANCELLED:
        raise ApiError("the request was cancelled before its end: the server is closing, ask again", status=503)
    return finish.reason.value


def usage_of(finishes: Mapping[int, FinishEvent]) -> dict[str, Any]:
    """Tokens of all choices together."""
    usages: list[Usage] = [finish.usage for finish in finishes.values()]
    num_prompt = sum(usage.prompt_tokens for usage in usages)
    num_completion = sum(usage.completion_tokens for usage in usages)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in usages)},
    }
