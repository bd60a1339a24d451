"""What OpenAI's clients receive: whole replies and the chunks of a stream, for both routes.

A reply takes every event of its answers and tells what to send for it; it never waits and never sends.
"""

from collections.abc import Iterator
from typing import Any

from twostroke.core.clock import unix_time_s
from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.core.sequence import FinishReason
from twostroke.serve.answers import Answers
from twostroke.serve.api_error import ApiError
from twostroke.serve.logprobs import CompletionLogprobs, chat_logprobs
from twostroke.serve.openai import Wish
from twostroke.serve.served_model import ServedModel
from twostroke.view.json_report import json_ledger


class Choice:
    """One answer as it grows. Tokens whose text is held back wait for the text that comes with a later one."""

    def __init__(self, index: int, *, wish: Wish, model: ServedModel, prompt_text: str) -> None:
        self.index = index
        self.text = ""
        self.num_tokens = 0
        self.finish: FinishEvent | None = None
        self.all_tokens: list[TokenEvent] = []  # only where log-probabilities are told
        self._untold: list[TokenEvent] = []
        self._prompt_text = prompt_text
        self._wish = wish
        self._model = model
        self._old_form = CompletionLogprobs(model, num_characters=len(prompt_text))

    def take(self, event: Event) -> str:
        """The text to show for an event; an echoed prompt comes before the first."""
        text, self._prompt_text = self._prompt_text + event.text, ""
        self.text += text
        if isinstance(event, FinishEvent):
            self.finish = event
            return text
        self.num_tokens += 1
        if self._wish.params.logprobs is not None:
            self.all_tokens.append(event)
            self._untold.append(event)
        return text

    def untold_logprobs(self) -> dict[str, Any] | None:
        """Those of the tokens since the last call."""
        tokens, self._untold = self._untold, []
        return self._logprobs(tokens) if tokens else None

    def whole_logprobs(self) -> dict[str, Any] | None:
        return self._logprobs(self.all_tokens) if self._wish.params.logprobs is not None else None

    def _logprobs(self, tokens: list[TokenEvent]) -> dict[str, Any]:
        return chat_logprobs(self._model, tokens) if self._wish.is_chat else self._old_form.of(tokens)


class Reply:
    """The frame of one reply: id, time, model, and which of the two shapes it has."""

    def __init__(self, wish: Wish, answers: Answers, *, model: ServedModel) -> None:
        self._wish = wish
        self._answers = answers
        self._facts = {
            "id": answers.request_id,
            "created": unix_time_s(),
            "model": wish.model,
            "system_fingerprint": model.fingerprint,
        }
        self._choices = [
            Choice(index, wish=wish, model=model, prompt_text=_echo(wish, index, model))
            for index in range(wish.num_answers)
        ]

    def take(self, index: int, event: Event) -> None:
        """An event of a reply that does not stream. Raises ApiError for an end that is no answer."""
        self._choices[index].take(event)
        if isinstance(event, FinishEvent):
            reason_of(event, self._answers)

    def whole(self) -> dict[str, Any]:
        """The reply, once every answer has finished."""
        choices = [self._choice(choice) for choice in self._choices]
        return self._frame("chat.completion", choices) | {"usage": self.usage()} | self._extras()

    def _choice(self, choice: Choice) -> dict[str, Any]:
        assert choice.finish is not None, f"answer {choice.index} has not finished"
        if self._wish.is_chat:
            content: dict[str, Any] = {"message": {"role": "assistant", "content": choice.text, "refusal": None}}
        else:
            content = {"text": choice.text}
        reason = reason_of(choice.finish, self._answers)
        return {
            "index": choice.index,
            **content,
            "logprobs": choice.whole_logprobs(),
            "finish_reason": reason,
            "stop_reason": choice.finish.stop_reason,
        }

    def first_chunks(self) -> Iterator[dict[str, Any]]:
        """Who speaks, before the first token; only chats say that."""
        if self._wish.is_chat:
            for choice in self._choices:
                yield self._chunk(choice, {"role": "assistant", "content": ""})

    def chunks(self, index: int, event: Event) -> Iterator[dict[str, Any]]:
        """What to send for an event. Raises ApiError for an end that is no answer."""
        choice = self._choices[index]
        text = choice.take(event)
        if text:
            yield self._chunk(choice, {"content": text} if self._wish.is_chat else text)
        if isinstance(event, FinishEvent):
            yield self._chunk(choice, {} if self._wish.is_chat else "", reason=reason_of(event, self._answers))

    def progress_chunk(self, num_read: int) -> dict[str, Any]:
        """How much of the first prompt is read: no choices, as in a chunk of usage."""
        total = self._answers.asked[0].num_prompt_tokens
        return self._frame("chat.completion.chunk", []) | {"prompt_progress": {"read": num_read, "total": total}}

    def closing_chunk(self) -> dict[str, Any] | None:
        """The last chunk of a stream that asked for usage or a ledger: no choices."""
        usage = {"usage": self.usage()} if self._wish.stream.includes_usage else {}
        extras = usage | (self._extras() if self._wish.wants_ledger else {})
        return self._frame("chat.completion.chunk", []) | extras if extras else None

    def _chunk(self, choice: Choice, content: dict[str, str] | str, *, reason: str | None = None) -> dict[str, Any]:
        name = "delta" if self._wish.is_chat else "text"
        shown = {
            "index": choice.index,
            name: content,
            "logprobs": choice.untold_logprobs(),
            "finish_reason": reason,
        }
        if choice.finish is not None:
            shown["stop_reason"] = choice.finish.stop_reason
        stream = self._wish.stream
        usage = {"usage": self.usage() if stream.has_running_usage else None} if stream.includes_usage else {}
        return self._frame("chat.completion.chunk", [shown]) | usage

    def _frame(self, chat_object: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._facts, "object": chat_object if self._wish.is_chat else "text_completion", "choices": choices}

    def usage(self) -> dict[str, Any]:
        """Tokens so far: of each prompt once, of all answers together. What was cached is known at the end."""
        firsts = range(0, self._wish.num_answers, self._wish.num_choices)
        num_prompt = sum(self._answers.asked[index].num_prompt_tokens for index in firsts)
        num_completion = sum(choice.num_tokens for choice in self._choices)
        finishes = [self._choices[index].finish for index in firsts]
        num_cached = sum(finish.usage.cached_tokens for finish in finishes if finish is not None)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_completion,
            "total_tokens": num_prompt + num_completion,
            "prompt_tokens_details": {"cached_tokens": num_cached},
        }

    def _extras(self) -> dict[str, Any]:
        """The seed that repeats the answer, and the ledger of the answer that finished last where it was asked for."""
        finishes = self._answers.finishes
        last, _ = self._answers.last_finish
        ledger = {"ledger": json_ledger(self._answers.ledgers[last])} if self._wish.wants_ledger else {}
        return {"seed": finishes[last].seed} | ledger


def _echo(wish: Wish, index: int, model: ServedModel) -> str:
    if not wish.echoes:
        return ""
    prompt: Any = wish.prompts[index // wish.num_choices]
    return prompt if isinstance(prompt, str) else model.decode(prompt)


def reason_of(finish: FinishEvent, answers: Answers) -> str:
    """OpenAI's word for the end. Raises ApiError for an end that is no answer."""
    if finish.reason is FinishReason.ERROR:
        raise ApiError(finish.error or "the request failed", status=500)
    if finish.reason is FinishReason.CANCELLED:
        raise answers.failure()
    return finish.reason.value
