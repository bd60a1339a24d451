"""The samplers beyond the usual ones as wishes: their names and order, ranges, and what goes with what.

`params.py` calls it; docs/sampling.md says what each does. Knows no logits.
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from twostroke.errors import ParamsError
from twostroke.param_checks import check_int, check_range, check_texts

# What a request may put into an order, in the usual one: the transformers library's, then what it does not have.
SAMPLERS = ("penalties", "dry", "temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc")
BREAKERS = ("\n", ":", '"', "*")  # what no repetition that DRY counts reaches over, unless a request says otherwise
MAX_BREAKERS = 64
MAX_BREAKER_SIZE = 64  # characters; each of its beginnings is looked for in every token of the vocabulary
MAX_BAD_WORDS = 1024  # each is looked at in every step
MAX_BAD_WORD_SIZE = 512  # characters, or token ids
MAX_WHOLE = 2**31 - 1


class Limits(NamedTuple):
    low: float
    high: float
    low_open: bool = False


NUMBERS = {
    "typical_p": Limits(0.0, 1.0, low_open=True),
    "top_n_sigma": Limits(0.0, math.inf),
    "dynatemp_range": Limits(0.0, math.inf),
    "dynatemp_exponent": Limits(0.0, math.inf),
    "xtc_probability": Limits(0.0, 1.0),
    "xtc_threshold": Limits(0.0, 1.0),
    "mirostat_eta": Limits(0.0, 1.0, low_open=True),
    "dry_multiplier": Limits(0.0, math.inf),
    "dry_base": Limits(1.0, math.inf),
}
LOWEST_WHOLE = {"penalty_last_n": -1, "no_repeat_ngram_size": 0, "dry_allowed_length": 1, "dry_penalty_last_n": -1}
DRAWING = ("typical_p", "dynatemp_range", "xtc_probability", "mirostat_tau")  # without a draw they mean nothing
FILTERS = ("top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc")


def check_numbers(values: Mapping[str, object]) -> None:
    """Every number of this file within its range, whatever else is wished for."""
    for name, limits in NUMBERS.items():
        check_range(name, values[name], limits.low, limits.high, low_open=limits.low_open)
    for name, low in LOWEST_WHOLE.items():
        check_int(name, values[name], low, MAX_WHOLE)
    if values["mirostat_tau"] is not None:
        check_range("mirostat_tau", values["mirostat_tau"], 0.0, math.inf, low_open=True)


def check_breakers(breakers: object) -> None:
    check_texts(
        "dry_sequence_breakers",
        breakers,
        limit=MAX_BREAKERS,
        longest=MAX_BREAKER_SIZE,
        why_not_empty="it would be everywhere, and DRY nowhere",
    )


def check_bad_words(bad_words: object) -> None:
    """A tuple of texts and of tuples of token ids."""
    name = "bad_words"
    if not isinstance(bad_words, tuple) or not all(isinstance(word, str | tuple) for word in bad_words):
        raise ParamsError(f"{name} must be a tuple of texts or of tuples of token ids", field=name)
    if len(bad_words) > MAX_BAD_WORDS:
        raise ParamsError(f"{name} has {len(bad_words)} words: the limit is {MAX_BAD_WORDS}", field=name)
    for word in bad_words:
        if not word:
            raise ParamsError(f"{name} has an empty word: it would forbid everything", field=name)
        if len(word) > MAX_BAD_WORD_SIZE:
            kind = "characters" if isinstance(word, str) else "token ids"
            raise ParamsError(f"{name} has a word of {len(word)} {kind}: the limit is {MAX_BAD_WORD_SIZE}", field=name)
        for token_id in word if isinstance(word, tuple) else ():
            check_int(name, token_id, 0, MAX_WHOLE)


def check_order(order: object, in_use: Collection[str]) -> None:
    """Known names, each once; whatever is used has its place."""
    name = "sampler_order"
    if not isinstance(order, tuple):
        raise ParamsError(f"{name} is {order!r}: it must be a tuple of names", field=name)
    for each in order:
        if each not in SAMPLERS:
            raise ParamsError(f"{name} has {each!r}: it must be one of {', '.join(SAMPLERS)}", field=name)
    if len(set(order)) < len(order):
        raise ParamsError(f"{name} has a name twice: {', '.join(order)}", field=name)
    for each in in_use:
        if each not in order:
            raise ParamsError(
                f"{name} leaves out {each}, which this request uses: add it, or leave out its field", field=name
            )


def check_company(in_use: Collection[str], *, temperature: float, dynatemp_range: float, said: Collection[str]) -> None:
    """Mirostat is a filter of its own; what takes away likely tokens needs a draw. `said`: fields that do something."""
    for name in DRAWING:
        if name in said and temperature == 0:
            raise ParamsError(
                f"{name} is set and temperature is 0, which takes the likeliest token: raise the temperature, "
                f"or leave out {name}",
                field=name,
            )
    if math.isinf(temperature + dynatemp_range):
        raise ParamsError(
            f"dynatemp_range is {dynatemp_range:g}: with a temperature of {temperature:g} the highest is beyond "
            "every number; from 1e30 on a temperature changes nothing, take that",
            field="dynatemp_range",
        )
    others = [name for name in FILTERS if name in in_use]
    if "mirostat_tau" in said and others:
        raise ParamsError(
            f"mirostat_tau is set beside {', '.join(others)}: mirostat chooses by itself how many tokens stay; "
            f"leave {'it' if len(others) == 1 else 'them'} out, or mirostat_tau",
            field="mirostat_tau",
        )
