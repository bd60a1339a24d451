"""Errors about a request's parameters in the words of the command line: flags in the place of fields."""

import re
from dataclasses import fields

from twostroke.errors import ParamsError
from twostroke.params import BeamSearch, SamplingParams

OTHER_FLAGS = {  # fields whose flag is not their own name
    "beam": "beams",
    "width": "beams",
    "stop_token_ids": "stop-token-id",
    "bad_words": "bad-word",
    "dry_sequence_breakers": "dry-sequence-breaker",
}
FIELDS = {each.name for kind in (SamplingParams, BeamSearch) for each in fields(kind)}
# A name of several words is a field wherever it stands; one word may be plain English, but for what to leave out.
NAMES = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b|(?<=leave out )[a-z]+\b|(?<= or )beam\b")
SAMPLER_ORDER = "sampler_order"  # its values have the names of fields


def flag_of(field: str) -> str:
    """With its dashes."""
    return f"--{OTHER_FLAGS.get(field, field.replace('_', '-'))}"


def in_flags(error: ParamsError) -> ParamsError:
    """The same error: the field it begins with and others that it names are flags."""
    rest = str(error).removeprefix(error.field)
    if error.field != SAMPLER_ORDER:
        rest = NAMES.sub(lambda found: flag_of(found[0]) if found[0] in FIELDS else found[0], rest)
    return ParamsError(flag_of(error.field) + rest, field=error.field)
