"""OpenAI's requests, read strictly: a field this server would ignore is an error that names it.

Null is absent, 0 is 0. Absent fields have the loaded model's defaults, the same at every door: temperature 0 (not
OpenAI's 1) and max_tokens 256, unless the model brings its own. Called by the routes; never touches the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twostroke.chat.chat import Chat
from twostroke.params import SamplingParams
from twostroke.presets import Preset
from twostroke.serve.api_error import ApiError
from twostroke.serve.chat_fields import read_chat
from twostroke.serve.fields import MAX_LISTED, Fields, shown, wrong
from twostroke.serve.harmless import take_harmless
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.prompt_scores import PromptWish, read_prompt_wish
from twostroke.serve.sampling_fields import read_params
from twostroke.serve.strategy_fields import read_strategy

Prompt = str | Sequence[int] | Chat


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWish:
    """What a stream carries beside its tokens."""

    includes_usage: bool = False  # a last chunk with the counts
    has_running_usage: bool = False  # counts in every chunk
    has_progress: bool = False  # chunks that tell how much of the prompt is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One HTTP request, understood. A chat is one prompt. Answers are prompts x choices."""

    model: str
    prompts: tuple[Prompt, ...]
    params: SamplingParams
    is_chat: bool
    is_stream: bool
    stream: StreamWish = field(default_factory=StreamWish)
    num_choices: int = 1
    num_told: int | None = None  # of them, where only the best are told
    hides_logprobs: bool = False  # they are computed to find the best
    prompt: PromptWish = field(default_factory=PromptWish)
    preset: Preset | None = None
    has_reasoning: bool = True  # what the model thought is told too
    wants_ledger: bool = False
    timeout_s: float | None = None
    keep_alive_s: float | None = None  # not asked for in OpenAI's API
    salt: str = ""
    structure_field: str = "response_format"  # where the answer's form was given

    @property
    def prompt_field(self) -> str:
        return "messages" if self.is_chat else "prompt"

    @property
    def shows_logprobs(self) -> bool:
        return self.params.logprobs is not None and not self.hides_logprobs

    @property
    def num_answers(self) -> int:
        return len(self.prompts) * self.num_choices


def read_wish(
    values: Mapping[str, Any],
    *,
    is_chat: bool,
    models: Sequence[str],
    limits: LimitsConfig,
    defaults: SamplingParams,
) -> Wish:
    """Check every field. Raises ApiError: 404 for a model this server does not have, else 400."""
    fields = Fields(values)
    model = read_model(fields, models)
    is_stream = fields.flag("stream") or False
    prompts: tuple[Prompt, ...] = (
        (read_chat(fields),) if is_chat else read_prompts(fields, "prompt", limit=limits.max_prompts)
    )
    strategy = read_strategy(
        fields, defaults, is_chat=is_chat, is_stream=is_stream, num_prompts=len(prompts), limits=limits
    )
    prompt = read_prompt_wish(fields, is_chat=is_chat, is_stream=is_stream)
    params = read_params(fields, strategy.defaults, is_chat=is_chat, limits=limits, prompt_logprobs=prompt.num_scored)
    hides_logprobs = strategy.picks and params.logprobs is None
    wish = Wish(
        model=model,
        prompts=prompts,
        params=replace(params, logprobs=0) if hides_logprobs else params,
        is_chat=is_chat,
        is_stream=is_stream,
        stream=_stream_wish(fields, is_stream=is_stream),
        num_choices=strategy.num_tried,
        num_told=strategy.num_told if strategy.picks else None,
        hides_logprobs=hides_logprobs,
        prompt=prompt,
        preset=strategy.preset,
        has_reasoning=not is_chat or fields.flag("include_reasoning") is not False,
        wants_ledger=fields.flag("ledger") or False,
        timeout_s=read_timeout_s(fields, limits),
        salt=fields.text("cache_salt") or "",
        structure_field="response_format" if values.get("structured_outputs") is None else "structured_outputs",
    )
    take_harmless(fields)
    fields.end()
    fields.refuse_unknown()
    return wish


def read_model(fields: Fields, models: Sequence[str]) -> str:
    """The model's name: one of those served here, never a path or an address."""
    model: str = fields.required("model", str, "a string")
    if model not in models:
        raise no_such_model(model, models)
    return model


def no_such_model(model: str, models: Sequence[str]) -> ApiError:
    more = f" and {len(models) - MAX_LISTED} more" if len(models) > MAX_LISTED else ""
    return ApiError(
        f"the model {shown(model)} is not here: this server has {', '.join(models[:MAX_LISTED])}{more}",
        status=404,
        param="model",
        code="model_not_found",
    )


def _stream_wish(fields: Fields, *, is_stream: bool) -> StreamWish:
    options = fields.object("stream_options")
    if options is None:
        return StreamWish()
    names = ("include_usage", "continuous_usage_stats", "include_progress")
    usage, running, progress = (options.flag(name) or False for name in names)
    options.end()
    if not is_stream:
        raise ApiError("stream_options is given without stream: set stream to true or drop it", param="stream_options")
    if running and not usage:
        raise ApiError(
            "stream_options.continuous_usage_stats is given without include_usage: set include_usage to true",
            param="stream_options.continuous_usage_stats",
        )
    return StreamWish(includes_usage=usage, has_running_usage=running, has_progress=progress)


def read_timeout_s(fields: Fields, limits: LimitsConfig) -> float | None:
    timeout_s = fields.number("timeout_s")
    if timeout_s is not None and not 0 < timeout_s <= limits.max_timeout_s:
        raise ApiError(
            f"timeout_s is {shown(timeout_s)}: it must be above 0 and at most {limits.max_timeout_s:g}",
            param="timeout_s",
        )
    return timeout_s


def read_prompts(fields: Fields, name: str, *, limit: int) -> tuple[Prompt, ...]:
    """Text, token ids or an array of either, under this name."""
    prompt = fields.take(name)
    if prompt is None:
        raise ApiError(f"{name} is missing: give text, token ids or an array of either", param=name)
    if isinstance(prompt, str) or is_ids(prompt):
        return (prompt,)
    if not isinstance(prompt, list) or not prompt:
        raise wrong(name, "text, token ids or a non-empty array of either", prompt)
    if len(prompt) > limit:
        raise ApiError(f"{name} has {len(prompt)} entries: the limit is {limit}, send several requests", param=name)
    is_text = isinstance(prompt[0], str)
    for index, entry in enumerate(prompt):
        if not (isinstance(entry, str) if is_text else is_ids(entry)):
            wanted = "a string like the first entry" if is_text else "an array of token ids or an id, all alike"
            raise wrong(f"{name}[{index}]", wanted, entry)
    return tuple(prompt)


def is_ids(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) == {int}
