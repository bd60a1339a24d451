"""The samplers beyond OpenAI's, read from a body under the names llama.cpp and vLLM gave them; their schemas.

Called by `sampling_fields.read_params` and `openapi`. What the values may be, SamplingParams says.
"""

import math
from typing import Any

from twostroke.samplers import (
    LOWEST_WHOLE,
    MAX_BAD_WORD_SIZE,
    MAX_BAD_WORDS,
    MAX_BREAKER_SIZE,
    MAX_BREAKERS,
    MAX_WHOLE,
    NUMBERS,
    SAMPLERS,
    Limits,
)
from twostroke.serve.fields import Fields, wrong

FRACTIONS = NUMBERS | {"mirostat_tau": Limits(0.0, math.inf, low_open=True)}
LISTS = ("dry_sequence_breakers", "sampler_order")


def take_samplers(fields: Fields, wishes: dict[str, Any]) -> None:
    """Put what is given among the wishes. Raises ApiError that names the field."""
    for name in (*FRACTIONS, *LOWEST_WHOLE):
        value = fields.number(name)
        if value is not None:
            wishes[name] = value
    for name in LISTS:
        values = fields.array(name)
        if values is not None:
            wishes[name] = tuple(values)
    words = fields.array("bad_words")
    if words is not None:
        wishes["bad_words"] = tuple(_word(word, place) for place, word in enumerate(words))


def _word(word: Any, place: int) -> str | tuple[Any, ...]:
    if not isinstance(word, str | list):
        raise wrong(f"bad_words[{place}]", "a string or an array of token ids", word)
    return word if isinstance(word, str) else tuple(word)


def sampler_schemas() -> dict[str, dict[str, Any]]:
    """The JSON schema of each field."""
    each = {"type": "integer", "minimum": 0, "maximum": MAX_WHOLE}
    ids = {"type": "array", "minItems": 1, "items": each, "maxItems": MAX_BAD_WORD_SIZE}
    text = {"type": "string", "minLength": 1}
    word, breaker = text | {"maxLength": MAX_BAD_WORD_SIZE}, text | {"maxLength": MAX_BREAKER_SIZE}
    return {
        **{name: _schema(limits) for name, limits in FRACTIONS.items()},
        **{name: {"type": "integer", "minimum": low, "maximum": MAX_WHOLE} for name, low in LOWEST_WHOLE.items()},
        "dry_sequence_breakers": {"type": "array", "items": breaker, "maxItems": MAX_BREAKERS},
        "sampler_order": {"type": "array", "items": {"enum": list(SAMPLERS)}, "uniqueItems": True},
        "bad_words": {"type": "array", "items": {"anyOf": [word, ids]}, "maxItems": MAX_BAD_WORDS},
    }


def _schema(limits: Limits) -> dict[str, Any]:
    schema = {"type": "number", "exclusiveMinimum" if limits.low_open else "minimum": limits.low}
    return schema if limits.high == math.inf else schema | {"maximum": limits.high}
