"""What OpenAI's clients receive: whole replies and the chunks of a stream, for both routes.

A reply takes every event of its answers and tells what to send for it; it never waits and never sends. Chunks that
tell text and nothing else come from a form, as they come with every token.
"""

from collections.abc import Callable, Iterator
from typing import Any

from twostroke.chat.reader import AnswerReader
from twostroke.core.clock import unix_time_s
from twostroke.core.event import Beam, Event, FinishEvent, TokenEvent
from twostroke.core.likeliest import Tried, likeliest
from twostroke.core.sequence import FinishReason
from twostroke.core.step import DeadEnd
from twostroke.presets import Preset
from twostroke.serve.answers import Answers
from twostroke.serve.api_error import ApiError
from twostroke.serve.chat_message import ChatMessage
from twostroke.serve.chunk_form import GAP, ChunkForm, encode_event
from twostroke.serve.draft_counts import prediction_details, speculation_of
from twostroke.serve.logprobs import CompletionLogprobs, chat_logprobs
from twostroke.serve.openai import Wish
from twostroke.serve.prompt_scores import Scores, echoed_logprobs, told_scores
from twostroke.serve.served_model import ServedModel
from twostroke.view.json_report import json_ledger


class Choice:
    """One answer as it grows. Tokens whose text is held back wait for the text that comes with a later one."""

    def __init__(
        self,
        index: int,
        *,
        wish: Wish,
        model: ServedModel,
        prompt_text: str,
        new_reader: Callable[[], AnswerReader],
        first: "Choice | None" = None,
    ) -> None:
        """`first` is the choice of the same prompt for which the prompt was scored; None: this one."""
        self.index = index
        self.new_reader = new_reader
        self.message = ChatMessage(new_reader(), has_reasoning=wish.has_reasoning)
        self.text = ""
        self.num_tokens = 0
        self.logprob_sum = 0.0  # where it is known
        self.prompt_text = prompt_text
        self.finish: FinishEvent | None = None
        self.form: ChunkForm | None = None  # of chunks that only tell text
        self.all_tokens: list[TokenEvent] = []  # only where log-probabilities are told
        self._untold: list[TokenEvent] = []
        self._is_prompt_told = False
        self._tells_scores = wish.prompt.echoes and wish.shows_logprobs
        self._owes_scores = self._tells_scores
        self._scores: Scores = ()
        self._first = first
        self._wish = wish
        self._model = model
        self._old_form = CompletionLogprobs(model, num_characters=len(prompt_text))

    def take(self, event: Event) -> str:
        """The text to show for an event; an echoed prompt comes before the first."""
        text = event.text if self._is_prompt_told else self.prompt_text + event.text
        self._is_prompt_told = True
        self._scores = self._scores or event.prompt_logprobs
        self.text += text
        if isinstance(event, FinishEvent):
            self.finish = event
            if event.beams:
                self.num_tokens = event.usage.completion_tokens  # of all that were asked for, not of the best alone
            return text
        self.num_tokens += 1
        self.logprob_sum += event.logprob or 0.0
        if self._wish.shows_logprobs:
            self.all_tokens.append(event)
            self._untold.append(event)
        return text

    @property
    def scores(self) -> Scores:
        """Of the tokens of its prompt, where they were asked for."""
        return self._scores or (self._first.scores if self._first is not None else ())

    def deltas(self, event: Event) -> list[dict[str, Any]]:
        """What an event adds to a chat's message."""
        self.take(event)
        return self.message.take(event)

    def untold_logprobs(self) -> dict[str, Any] | None:
        """Those of the tokens since the last call; of an echoed prompt's too in the first."""
        tokens, self._untold = self._untold, []
        with_prompt, self._owes_scores = self._owes_scores, False
        return self._logprobs(tokens, with_prompt=with_prompt) if tokens or with_prompt else None

    def whole_logprobs(self) -> dict[str, Any] | None:
        return self._logprobs(self.all_tokens, with_prompt=self._tells_scores) if self._wish.shows_logprobs else None

    def _logprobs(self, tokens: list[TokenEvent], *, with_prompt: bool) -> dict[str, Any]:
        if self._wish.is_chat:
            return chat_logprobs(self._model, tokens)
        own = self._old_form.of(tokens)
        if not with_prompt:
            return own
        num_best = self._wish.params.logprobs or 0
        prompt = echoed_logprobs(self._model, self.scores, num_best=num_best, prompt_text=self.prompt_text)
        return {name: [*prompt[name], *own[name]] for name in own}


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
        self._model = model
        self._untold_preset = {"preset": _preset_facts(wish.preset)} if wish.preset is not None else {}
        self._choices: list[Choice] = []
        for index in range(wish.num_answers):
            place = index % wish.num_choices
            first = self._choices[index - place] if place else None
            text = _echo(wish, index, model)
            new_reader = answers.asked[index - place].new_reader
            self._choices.append(
                Choice(index, wish=wish, model=model, prompt_text=text, new_reader=new_reader, first=first)
            )

    def take(self, index: int, event: Event) -> None:
        """An event of a reply that does not stream. Raises ApiError for an end that is no answer."""
        self._choices[index].deltas(event)
        if isinstance(event, FinishEvent):
            reason_of(event, self._answers)

    def whole(self) -> dict[str, Any]:
        """The reply, once every answer has finished."""
        shown = [shown for choice in self._told() for shown in self._shown(choice)]
        choices = [{"index": index, **facts} for index, facts in enumerate(shown)]
        scores = self._prompt_scores(self._choices[0]) if self._wish.is_chat else {}
        return self._frame("chat.completion", choices) | {"usage": self.usage()} | self._extras() | scores

    def _told(self) -> list[Choice]:
        """The answers a client hears of: all, or the best of each prompt."""
        num_tried, num_told = self._wish.num_choices, self._wish.num_told
        if num_told is None:
            return self._choices
        told: list[Choice] = []
        for start in range(0, self._wish.num_answers, num_tried):
            tried = self._choices[start : start + num_tried]
            scored = [Tried(choice.index, choice.logprob_sum, choice.num_tokens) for choice in tried]
            told += [self._choices[number] for number in likeliest(scored, num_told=num_told)]
        return told

    def _shown(self, choice: Choice) -> list[dict[str, Any]]:
        """What is told of an answer: one choice, or one for each answer of a search."""
        assert choice.finish is not None, f"answer {choice.index} has not finished"
        scores = {} if self._wish.is_chat else self._prompt_scores(choice)
        if choice.finish.beams:
            return [self._beam(choice, beam) | scores for beam in choice.finish.beams]
        end = {
            "logprobs": choice.whole_logprobs(),
            "finish_reason": self._reason(choice),
            "stop_reason": choice.finish.stop_reason,
        }
        return [self._content(choice.text, choice.message) | end | scores]

    def _beam(self, choice: Choice, beam: Beam) -> dict[str, Any]:
        """One answer of a search."""
        message = ChatMessage(choice.new_reader(), has_reasoning=self._wish.has_reasoning)
        message.read(beam.text)
        reason = message.reason(beam.finish_reason.value)
        end = {"logprobs": None, "finish_reason": reason, "stop_reason": beam.stop_reason, "score": beam.score}
        return self._content(choice.prompt_text + beam.text, message) | end

    def _content(self, text: str, message: ChatMessage) -> dict[str, Any]:
        return {"message": message.whole()} if self._wish.is_chat else {"text": text}

    def _prompt_scores(self, choice: Choice) -> dict[str, Any]:
        """vLLM's field, where it was asked for."""
        if self._wish.prompt.num_told is None:
            return {}
        num_best = int(self._wish.prompt.num_told)
        return {"prompt_logprobs": told_scores(self._model, choice.scores, num_best=num_best)}

    def first_chunks(self) -> Iterator[dict[str, Any]]:
        """Who speaks, before the first token; only chats say that."""
        if self._wish.is_chat:
            for choice in self._choices:
                yield self._chunk(choice, {"role": "assistant", "content": ""})

    def told(self, index: int, event: Event) -> bytes:
        """What to send for an event, nothing for held text. Raises ApiError for an end that is no answer."""
        choice = self._choices[index]
        contents: list[Any] = choice.deltas(event) if self._wish.is_chat else [choice.take(event)]
        chunks = [self._encoded(choice, content) for content in contents if content]
        if isinstance(event, FinishEvent):
            end = self._chunk(choice, {} if self._wish.is_chat else "", reason=self._reason(choice))
            chunks.append(encode_event(end))
        return b"".join(chunks)

    def _encoded(self, choice: Choice, content: dict[str, Any] | str) -> bytes:
        text = content if isinstance(content, str) else content.get("content")
        if text is None or choice.finish is not None or self._untold_preset or self._wish.shows_logprobs:
            return encode_event(self._chunk(choice, content))
        counts = self._wish.stream.includes_usage and self._wish.stream.has_running_usage
        if choice.form is None:
            chunk = self._chunk(choice, {"content": GAP} if self._wish.is_chat else GAP)
            choice.form = ChunkForm(chunk | {"usage": GAP} if counts else chunk)
        return choice.form.filled(text, self.usage()) if counts else choice.form.filled(text)

    def _reason(self, choice: Choice) -> str:
        assert choice.finish is not None, f"answer {choice.index} has not finished"
        return choice.message.reason(reason_of(choice.finish, self._answers))

    def progress_chunk(self, num_read: int) -> dict[str, Any]:
        """How much of the first prompt is read: no choices, as in a chunk of usage."""
        total = self._answers.asked[0].num_prompt_tokens
        return self._frame("chat.completion.chunk", []) | {"prompt_progress": {"read": num_read, "total": total}}

    def closing_chunk(self) -> dict[str, Any] | None:
        """The last chunk of a stream that asked for usage or a ledger: no choices."""
        usage = {"usage": self.usage()} if self._wish.stream.includes_usage else {}
        extras = usage | (self._extras() if self._wish.wants_ledger else {})
        return self._frame("chat.completion.chunk", []) | extras if extras else None

    def _chunk(self, choice: Choice, content: dict[str, Any] | str, *, reason: str | None = None) -> dict[str, Any]:
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
        preset, self._untold_preset = self._untold_preset, {}
        return {
            **self._facts,
            **preset,
            "object": chat_object if self._wish.is_chat else "text_completion",
            "choices": choices,
        }

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
        } | self._completion_details()

    def _completion_details(self) -> dict[str, Any]:
        """Tokens of reasoning, where the model's answers may hold any, and of drafts, where some could be made."""
        details: dict[str, Any] = {}
        messages = [choice.message for choice in self._choices]
        if any(message.may_think for message in messages):
            details["reasoning_tokens"] = sum(message.num_reasoning_tokens for message in messages)
        details |= prediction_details(choice.finish for choice in self._choices)
        return {"completion_tokens_details": details} if details else {}

    def _extras(self) -> dict[str, Any]:
        """The seed that repeats the answer; where it was asked for, the ledger of the answer that finished last."""
        finishes = self._answers.finishes
        last, _ = self._answers.last_finish
        extras: dict[str, Any] = {"seed": finishes[last].seed}
        if self._wish.wants_ledger:
            extras |= {"ledger": json_ledger(self._answers.ledgers[last]), **speculation_of(finishes[last])}
        return extras


def _echo(wish: Wish, index: int, model: ServedModel) -> str:
    if not wish.prompt.echoes:
        return ""
    prompt: Any = wish.prompts[index // wish.num_choices]
    return prompt if isinstance(prompt, str) else model.decode(prompt)


def _preset_facts(preset: Preset) -> dict[str, str]:
    return {"name": preset.name, "settings": preset.settings, "reason": preset.reason}


def reason_of(finish: FinishEvent, answers: Answers) -> str:
    """OpenAI's word for the end. Raises ApiError for an end that is no answer."""
    if finish.reason is FinishReason.ERROR:
        if isinstance(finish.error, DeadEnd):  # asked again it would end there again
            raise ApiError(finish.error, code="no_token_left")
        raise ApiError(finish.error or "the request failed", status=500)
    if finish.reason is FinishReason.CANCELLED:
        raise answers.failure()
    return finish.reason.value
