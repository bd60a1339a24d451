"""Fields that rightly change nothing here: taken where that is true, refused where it is not.

The table is that of OpenAI's two routes; Ollama's have tables of their own. Documented in docs/serving.md. Never looks
at a field that this server honours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields, shown


@dataclass(frozen=True, slots=True)
class Harmless:
    """A field whose value, where `accepts` says so, asks for nothing that is not done anyway."""

    name: str
    accepts: Callable[[Any], bool]
    why: str  # what a value that is not accepted is told


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def among(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(type(value) is type(each) and value == each for each in values)


HARMLESS = (
    Harmless("user", is_text, "it must be a string; nothing is done with it"),
    Harmless("safety_identifier", is_text, "it must be a string; nothing is done with it"),
    Harmless("prompt_cache_key", is_text, "it must be a string; prefixes are found without it"),
    Harmless("metadata", lambda value: isinstance(value, dict), "it must be an object; nothing is kept of it"),
    Harmless("store", among(False), "nothing is stored here, send false or leave it out"),
    Harmless("service_tier", among("auto", "default"), "there is one tier, send auto or leave it out"),
    Harmless("modalities", among(["text"]), 'answers are text, send ["text"] or leave it out'),
    Harmless("suffix", among(""), "text cannot be filled in before a suffix, leave it out"),
    *(
        Harmless(name, among(None), "this server does not honour it, leave it out")
        for name in ("audio", "functions", "function_call", "prediction", "verbosity", "web_search_options")
    ),
)


def take_harmless(fields: Fields, table: Sequence[Harmless] = HARMLESS) -> None:
    """Raises ApiError for a value that would have to change something."""
    for field in table:
        value = fields.look_at(field.name)
        if value is not None and not field.accepts(value):
            told = "given" if isinstance(value, list | dict) else shown(value)
            place = f"{fields.place}{field.name}"
            raise ApiError(f"{place} is {told}: {field.why}", param=place, code="unknown_field")
