"""Errors in the words of the command line: flags in the place of fields. `main` tells every error so.

A command that knows more than the field, such as which of four flags a structure came from, says it first.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields

from twostroke.errors import CapacityError, ConfigError, ParamsError, TwostrokeError
from twostroke.params import BeamSearch, SamplingParams

OTHER_FLAGS = {  # fields whose flag is not their own name
    "beam": "beams",
    "width": "beams",
    "stop_token_ids": "stop-token-id",
    "bad_words": "bad-word",
    "dry_sequence_breakers": "dry-sequence-breaker",
    "chat_template_kwargs": "template-kwargs",
}
FIELDS = {each.name for kind in (SamplingParams, BeamSearch) for each in fields(kind)} | {
    *("tools", "tool_choice", "reasoning_effort", "chat_template_kwargs", "dimensions", "preset"),
    *("context", "kv", "threads", "speculate", "draft_model"),
}
# A name of several words is a field wherever it stands, but in quotes or a path; one word may be plain English, but for
# what to leave out or what it does not go with.
NAMES = re.compile(
    r"(?<![\w'\"/.-])[a-z]+(?:_[a-z]+)+\b|(?<=leave out )[a-z]+\b|(?<=leave )tools(?= out)|(?<= beside )tools\b"
    r"|(?<= or )(?:beam|structure)\b|(?<= a )context(?= of at least)"
)
KIND = re.compile(r"\bstructure of kind \w+")
SAMPLER_ORDER = "sampler_order"  # its values have the names of fields


def flag_of(field: str) -> str:
    """With its dashes."""
    return f"--{OTHER_FLAGS.get(field, field.replace('_', '-'))}"


def in_flags(error: TwostrokeError, named: Mapping[str, str] | None = None) -> str:
    """What the error says: the field it begins with and others that it names are flags.

    `named`: what else the user wrote for a field; a value that is not his own is told behind it.
    """
    said, named = str(error), named or {}
    if not isinstance(error, ParamsError | ConfigError | CapacityError):
        return said
    field = re.split(r"[.\[]", error.field or "", maxsplit=1)[0]
    is_known = field in FIELDS
    if not (is_known or isinstance(error, CapacityError)):
        return said
    said = KIND.sub("structure", said)
    if is_known and field in named and field != "structure":
        return f"{named[field]}: {field}{_rest(said.removeprefix(field), named)}"
    head = "" if not is_known or not said.startswith(field) else named.get(field, flag_of(field))
    rest = said.removeprefix(field) if head else said
    return head + (rest if field == SAMPLER_ORDER else _rest(rest, named))


def _rest(text: str, named: Mapping[str, str]) -> str:
    return NAMES.sub(lambda found: named.get(found[0], flag_of(found[0])) if found[0] in FIELDS else found[0], text)


@contextmanager
def told_in_flags(named: Mapping[str, str]) -> Iterator[None]:
    """Errors about fields that have other names here, told by those."""
    try:
        yield
    except ParamsError as error:
        raise type(error)(in_flags(error, named), field=error.field) from None
