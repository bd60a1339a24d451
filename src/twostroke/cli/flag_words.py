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
# How errors go on behind the field they begin with, where they name more of them: the groups. Each is matched whole,
# from end to end, so that what a user wrote stays as it is: it stands in a `.*`, or in an error of no such form.
SENTENCES = tuple(
    re.compile(sentence, re.DOTALL)
    for sentence in (
        r" is \d+: (max_tokens) is \d+, it must not be more",
        r" is \d+: [^:]+: (prompt_logprobs) of at most \d+ fits",
        r" is .*: beam search finds the likeliest answer and has no use for it; leave out (\w+) or (beam)",
        r" is \w+: a grammar says where the answer ends, leave out (\w+) or (structure)",
        r" is set and temperature is 0, which takes the likeliest token: raise the temperature, or leave out (\w+)",
        r" is given beside (tools): an answer has one form, leave one of them out",
        r" is refused: this model's chat template writes calls in a form this program does not read; leave (tools) out",
        r" and (chat_template_kwargs) say the same: send one of them",
        r" asks for a call and there are no (tools): send (tools)",
    )
)
MIROSTAT = re.compile(r" is set beside [a-z_, ]+: mirostat chooses by itself [^:]+")  # its list is as long as it is
FIELD_NAMES = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
ROOM = re.compile(
    r"\bmax_tokens(?= (?:of )?(?:at most )?\d)|(?<=\ba )context(?= of at least \d)"
)  # users say only numbers
KIND = re.compile(r"\A( is refused: structure)? of kind \w+(?= is refused)")


def flag_of(field: str) -> str:
    """With its dashes."""
    return f"--{OTHER_FLAGS.get(field, field.replace('_', '-'))}"


def in_flags(error: TwostrokeError, named: Mapping[str, str] | None = None) -> str:
    """What the error says: the field it begins with is a flag, and others are where our own words name them.

    `named`: what else the user wrote for a field; a value that is not his own is told behind it.
    """
    said, named = str(error), named or {}
    if isinstance(error, CapacityError):
        return ROOM.sub(lambda found: _name(found[0], named), said)
    named_field = error.field if isinstance(error, ParamsError | ConfigError) else None
    field = re.split(r"[.\[]", named_field or "", maxsplit=1)[0]
    if field not in FIELDS or not said.startswith(field):
        return said
    rest = _rest(said.removeprefix(field), named)
    if field in named and field != "structure":
        return f"{named[field]}: {field}{rest}"
    return _name(field, named) + rest


def _rest(text: str, named: Mapping[str, str]) -> str:
    """What stands behind the field that an error begins with."""
    if MIROSTAT.fullmatch(text):
        return FIELD_NAMES.sub(lambda found: _name(found[0], named), text)
    for sentence in SENTENCES:
        if found := sentence.fullmatch(text):
            for group in range(sentence.groups, 0, -1):
                text = text[: found.start(group)] + _name(found[group], named) + text[found.end(group) :]
            return text
    return KIND.sub(r"\1", text)


def _name(field: str, named: Mapping[str, str]) -> str:
    return named.get(field, flag_of(field))


@contextmanager
def told_in_flags(named: Mapping[str, str]) -> Iterator[None]:
    """Errors about fields that have other names here, told by those."""
    try:
        yield
    except ParamsError as error:
        raise type(error)(in_flags(error, named), field=error.field) from None
