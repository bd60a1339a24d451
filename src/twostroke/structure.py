"""What an answer must look like: a wish, frozen, checked for its form alone; the model's grammar compiler judges it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from twostroke.errors import ParamsError

# How answers may spell JSON, in llguidance's words. A model that may not say what it wants would print blanks for ever:
# two of them between JSON's words are enough.
JSON_OPTIONS: Mapping[str, bool | str] = {
    "whitespace_flexible": True,
    "whitespace_pattern": r"[ \n]{0,2}",
    "lenient": False,
}
MAX_SOURCE_BYTES = 2**16  # compiled beside everybody's steps: nobody writes more by hand
MAX_CHOICES = 1024


class StructureKind(StrEnum):
    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    LARK = "lark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A grammar every answer follows from its first token to its end.

    source: a JSON schema as text, a regular expression of the whole answer, or a grammar in Lark's notation.
    choices: the answers to choose from, of kind CHOICE.

    Raises ParamsError.
    """

    kind: StructureKind
    source: str = ""
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.kind, StructureKind):
            raise ParamsError(f"structure has the kind {self.kind!r}: it must be a StructureKind", field="structure")
        choices: tuple[object, ...] = self.choices
        if not all(isinstance(each, str) and each for each in choices):
            raise ParamsError("structure has choices that are no texts: give a tuple of texts", field="structure")
        if (self.kind is StructureKind.CHOICE) is not bool(self.choices):
            raise ParamsError("structure must have choices exactly when its kind is choice", field="structure")
        if len(self.choices) > MAX_CHOICES:
            raise ParamsError(
                f"structure has {len(self.choices)} choices: the limit is {MAX_CHOICES}", field="structure"
            )
        num_bytes = sum(len(text.encode("utf-8", "replace")) for text in (self.source, *self.choices))
        if num_bytes > MAX_SOURCE_BYTES:
            raise ParamsError(
                f"structure has {num_bytes} bytes: the limit is {MAX_SOURCE_BYTES}, leave some of it out",
                field="structure",
            )
