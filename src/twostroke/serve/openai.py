"""OpenAI's request fields, read strictly: a field this server would ignore is an error that names it.

Routes take `model`, `messages` or `prompt`, `stream`, `stream_options.include_usage`, `stop`, `seed`,
`temperature`, `top_p`, `max_tokens`, `max_completion_tokens`. Null is absent where OpenAI's schema is
nullable; 0 is 0. Absent fields have the loaded model's defaults, the same at every door: temperature 0
(not OpenAI's 1) and max_tokens 256, unless the model brings its own. Called by the routes; never touches the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twostroke.errors import ParamsError
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.body import MAX_SHOWN, cut, kind_of
from twostroke.serve.limits import LimitsConfig

Prompt = str | Sequence[int] | Sequence[Mapping[str, str]]

SHARED_FIELDS = (
    "model",
    "stream",
    "stream_options",
    "stop",
    "seed",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
)
# Clients send an assistant's answer back whole: these keys are fine there as long as they are null.
NULL_MESSAGE_KEYS = ("name", "refusal", "annotations", "audio", "tool_calls", "function_call")
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One HTTP request, understood. A chat is one prompt: its messages."""

    model: str
    prompts: tuple[Prompt, ...]
    params: SamplingParams
    is_chat: bool
    is_stream: bool
    includes_usage: bool

    @property
    def prompt_field(self) -> str:
        return "messages" if self.is_chat else "prompt"


def read_wish(
    fields: Mapping[str, Any],
    *,
    is_chat: bool,
    models: Sequence[str],
    limits: LimitsConfig,
    defaults: SamplingParams,
) -> Wish:
    """Check every field. Raises ApiError: 404 for a model this server does not have, else 400."""
    prompt_field = "messages" if is_chat else "prompt"
    _refuse_unknown(fields, known=(*SHARED_FIELDS, prompt_field), place="")
    model = _required(fields, "model", str, "a string")
    if model not in models:
        raise ApiError(
            f"the model {_shown(model)} is not here: this server has {models[0]}",
            status=404,
            param="model",
            code="model_not_found",
        )
    is_stream = _optional(fields, "stream", bool, "true or false") or False
    prompts = (_messages(fields),) if is_chat else _prompts(fields, limits)
    return Wish(
        model=model,
        prompts=prompts,
        params=_sampling_params(fields, defaults),
        is_chat=is_chat,
        is_stream=is_stream,
        includes_usage=_includes_usage(fields, is_stream=is_stream),
    )


def _sampling_params(fields: Mapping[str, Any], defaults: SamplingParams) -> SamplingParams:
    numbers = {name: _number(fields, name) for name in ("seed", "temperature", "top_p")}
    wishes: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    stop = fields.get("stop")
    if stop is not None:
        if not isinstance(stop, str | list):
            raise _wrong("stop", "a string or an array of strings", stop)
        wishes["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    limit_field = _limit_field(fields)
    if limit_field is not None:
        wishes["max_tokens"] = _number(fields, limit_field)
    try:
        return replace(defaults, **wishes)
    except ParamsError as error:
        field = limit_field if error.field == "max_tokens" and limit_field else error.field
        raise ApiError(cut(str(error).replace(error.field, field, 1), 4 * MAX_SHOWN), param=field) from None


def _limit_field(fields: Mapping[str, Any]) -> str | None:
    given = [name for name in ("max_completion_tokens", "max_tokens") if fields.get(name) is not None]
    if len(given) == 2 and fields[given[0]] != fields[given[1]]:
        raise ApiError(
            f"max_completion_tokens and max_tokens are {_shown(fields[given[0]])} and {_shown(fields[given[1]])}: "
            "they mean the same, send one",
            param="max_tokens",
        )
    return given[0] if given else None


def _includes_usage(fields: Mapping[str, Any], *, is_stream: bool) -> bool:
    options = _optional(fields, "stream_options", dict, "an object")
    if options is None:
        return False
    _refuse_unknown(options, known=("include_usage",), place="stream_options.")
    if not is_stream:
        raise ApiError("stream_options is given without stream: set stream to true or drop it", param="stream_options")
    wanted = options.get("include_usage", False)
    if not isinstance(wanted, bool):
        raise _wrong("stream_options.include_usage", "true or false", wanted)
    return wanted


def _prompts(fields: Mapping[str, Any], limits: LimitsConfig) -> tuple[Prompt, ...]:
    prompt = fields.get("prompt")
    if prompt is None:
        raise ApiError("prompt is missing: give text, token ids or an array of either", param="prompt")
    if isinstance(prompt, str) or _is_ids(prompt):
        return (prompt,)
    if not isinstance(prompt, list) or not prompt:
        raise _wrong("prompt", "text, token ids or a non-empty array of either", prompt)
    if len(prompt) > limits.max_prompts:
        raise ApiError(
            f"prompt has {len(prompt)} entries: the limit is {limits.max_prompts}, send several requests",
            param="prompt",
        )
    is_text = isinstance(prompt[0], str)
    for index, entry in enumerate(prompt):
        if not (isinstance(entry, str) if is_text else _is_ids(entry)):
            wanted = "a string like the first entry" if is_text else "an array of token ids or an id, all alike"
            raise _wrong(f"prompt[{index}]", wanted, entry)
    return tuple(prompt)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _messages(fields: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    messages = _required(fields, "messages", list, "an array of messages")
    if not messages:
        raise ApiError("messages is empty: send at least one message", param="messages")
    return tuple(_message(message, place=f"messages[{index}]") for index, message in enumerate(messages))


def _message(message: Any, *, place: str) -> Mapping[str, str]:
    if not isinstance(message, dict):
        raise _wrong(place, "an object with role and content", message)
    given = {key: value for key, value in message.items() if value is not None or key not in NULL_MESSAGE_KEYS}
    _refuse_unknown(given, known=("role", "content"), place=f"{place}.")
    role = given.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise _wrong(f"{place}.role", f"one of {', '.join(ROLES)}", role)
    return {"role": ROLES[role], "content": _content(given.get("content"), place=f"{place}.content")}


def _content(content: Any, *, place: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise _wrong(place, "a string or a non-empty array of text parts", content)
    return "".join(_text_part(part, place=f"{place}[{index}]") for index, part in enumerate(content))


def _text_part(part: Any, *, place: str) -> str:
    if not isinstance(part, dict):
        raise _wrong(place, "an object of type text", part)
    _refuse_unknown(part, known=("type", "text"), place=f"{place}.")
    if part.get("type") != "text":
        raise _wrong(f"{place}.type", '"text", the only kind this model reads', part.get("type"))
    if not isinstance(part.get("text"), str):
        raise _wrong(f"{place}.text", "a string", part.get("text"))
    text: str = part["text"]
    return text


def _refuse_unknown(fields: Mapping[str, Any], *, known: Sequence[str], place: str) -> None:
    for name in fields:
        if name not in known:
            field = cut(f"{place}{name}")
            raise ApiError(
                f"{field} is refused: this server does not honour it, leave it out "
                f"(honoured: {', '.join(sorted(known))})",
                param=field,
                code="unknown_field",
            )


def _required(fields: Mapping[str, Any], name: str, wanted: type, words: str) -> Any:
    if name not in fields:
        raise ApiError(f"{name} is missing: it must be {words}", param=name)
    if not isinstance(fields[name], wanted):
        raise _wrong(name, words, fields[name])
    return fields[name]


def _optional(fields: Mapping[str, Any], name: str, wanted: type, words: str) -> Any:
    value = fields.get(name)
    if value is not None and not isinstance(value, wanted):
        raise _wrong(name, words, value)
    return value


def _number(fields: Mapping[str, Any], name: str) -> Any:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise _wrong(name, "a number", value)
    return value


def _wrong(field: str, wanted: str, value: Any) -> ApiError:
    shown = "" if value is None or isinstance(value, list | dict) else f"{_shown(value)}, "
    return ApiError(f"{field} is {shown}{kind_of(value)}: it must be {wanted}", param=field)


def _shown(value: Any) -> str:
    return cut(repr(value))
