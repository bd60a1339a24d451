"""The samplers beyond OpenAI's, read from a body under the names llama.cpp and vLLM gave them.

Called by `sampling_fields.read_params`. What the values may be, SamplingParams says.
"""

from typing import Any

from twostroke.serve.fields import Fields, wrong

NUMBERS = (
    "penalty_last_n",
    "typical_p",
    "top_n_sigma",
    "dynatemp_range",
    "dynatemp_exponent",
    "xtc_probability",
    "xtc_threshold",
    "mirostat_tau",
    "mirostat_eta",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "no_repeat_ngram_size",
)
LISTS = ("dry_sequence_breakers", "sampler_order")


def take_samplers(fields: Fields, wishes: dict[str, Any]) -> None:
    """Put what is given among the wishes. Raises ApiError that names the field."""
    for name in NUMBERS:
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
