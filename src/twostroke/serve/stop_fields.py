"""Where an answer ends, read from a body: OpenAI's `stop`, and fields of vLLM's and SGLang's names beside it.

Called by `sampling_fields.read_params`. What the values may be, SamplingParams says.
"""

from typing import Any

from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields, wrong
from twostroke.serve.limits import LimitsConfig

INCLUDE_STOP = "include_stop_str_in_output"  # vLLM's name


def take_stops(fields: Fields, wishes: dict[str, Any], *, defaults: SamplingParams, limits: LimitsConfig) -> None:
    """Put what is given among the wishes; the model's own stop strings stay. Raises ApiError that names the field."""
    for name in ("stop", "stop_regex"):
        texts = fields.take(name)
        if texts is not None:
            if not isinstance(texts, str | list):
                raise wrong(name, "a string or an array of strings", texts)
            wishes[name] = (texts,) if isinstance(texts, str) else tuple(texts)
    if isinstance(wishes.get("stop"), tuple) and all(isinstance(text, str) for text in wishes["stop"]):
        wishes["stop"] = defaults.and_stop(wishes["stop"])
    ids = fields.array("stop_token_ids")
    if ids is not None:
        if len(ids) > limits.max_stop_ids:
            raise ApiError(
                f"stop_token_ids has {len(ids)} ids: the limit is {limits.max_stop_ids}", param="stop_token_ids"
            )
        wishes["stop_token_ids"] = tuple(ids)
    for field, name in (("ignore_eos", "ignore_eos"), (INCLUDE_STOP, "include_stop")):
        value = fields.flag(field)
        if value is not None:
            wishes[name] = value
