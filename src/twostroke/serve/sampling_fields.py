"""How the next token is chosen, read from a body: OpenAI's fields, and this program's own beside them.

Called by `openai.read_wish`. Ranges are those of SamplingParams; its errors come back with the client's own names.
"""

from dataclasses import replace
from typing import Any

from twostroke.errors import ParamsError
from twostroke.params import MAX_BIASED_TOKENS, MAX_LOGPROBS, SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.body import MAX_SHOWN, cut
from twostroke.serve.fields import Fields, shown, wrong
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.sampler_fields import take_samplers
from twostroke.serve.stop_fields import take_stops
from twostroke.serve.structure_fields import read_structure

NUMBERS = (
    "seed",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
)


def read_params(
    fields: Fields,
    defaults: SamplingParams,
    *,
    is_chat: bool,
    limits: LimitsConfig,
    prompt_logprobs: float | None = None,
) -> SamplingParams:
    """The defaults with every given field in place. Raises ApiError that names the field."""
    numbers = {name: fields.number(name) for name in NUMBERS}
    wishes: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    limit_field = _take_limit(fields, wishes)
    take_stops(fields, wishes, defaults=defaults, limits=limits)
    _take_bias(fields, wishes)
    take_samplers(fields, wishes)
    logprobs_field = _take_chat_logprobs(fields, wishes) if is_chat else _take_logprobs(fields, wishes)
    wishes |= {"structure": read_structure(fields), "prompt_logprobs": prompt_logprobs}
    names = {"max_tokens": limit_field or "max_tokens", "logprobs": logprobs_field}
    try:
        return replace(defaults, **wishes)
    except ParamsError as error:
        field = names.get(error.field, error.field)
        raise ApiError(cut(str(error).replace(error.field, field, 1), 4 * MAX_SHOWN), param=field) from None


def _take_limit(fields: Fields, wishes: dict[str, Any]) -> str | None:
    """The field that says how long the answer may be."""
    values = {name: fields.number(name) for name in ("max_completion_tokens", "max_tokens")}
    given = [name for name, value in values.items() if value is not None]
    if len(given) == 2 and values[given[0]] != values[given[1]]:
        raise ApiError(
            f"max_completion_tokens and max_tokens are {shown(values[given[0]])} and {shown(values[given[1]])}: "
            "they mean the same, send one",
            param="max_tokens",
        )
    if not given:
        return None
    wishes["max_tokens"] = values[given[0]]
    return given[0]


def _take_bias(fields: Fields, wishes: dict[str, Any]) -> None:
    """OpenAI's map from token ids, which JSON writes as text, to biases."""
    bias = fields.take("logit_bias")
    if bias is None:
        return
    if not isinstance(bias, dict):
        raise wrong("logit_bias", "an object from token ids to numbers", bias)
    if len(bias) > MAX_BIASED_TOKENS:
        raise ApiError(f"logit_bias has {len(bias)} tokens: the limit is {MAX_BIASED_TOKENS}", param="logit_bias")
    wishes["logit_bias"] = tuple((_token_id(key), _bias(key, value)) for key, value in bias.items())


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 10 and str(int(key)) == key):
        raise ApiError(
            f"logit_bias has the key {shown(key)}: keys are token ids, written in digits", param="logit_bias"
        )
    return int(key)


def _bias(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(f"logit_bias.{key}", "a number", value)
    return value


def _take_chat_logprobs(fields: Fields, wishes: dict[str, Any]) -> str:
    wanted, num_top = fields.flag("logprobs"), fields.number("top_logprobs")
    if num_top is not None and not wanted:
        raise ApiError("top_logprobs is given without logprobs: set logprobs to true", param="top_logprobs")
    if wanted is not None:
        wishes["logprobs"] = (0 if num_top is None else num_top) if wanted else None
    return "top_logprobs"


def _take_logprobs(fields: Fields, wishes: dict[str, Any]) -> str:
    value = fields.take("logprobs")
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise wrong("logprobs", f"a whole number from 0 to {MAX_LOGPROBS}", value)
    if value is not None:
        wishes["logprobs"] = value
    return "logprobs"
