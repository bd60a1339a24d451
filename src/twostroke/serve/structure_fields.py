"""What an answer must look like, read from a body: OpenAI's `response_format` and vLLM's `structured_outputs`.

Called by `openai.read_wish`. The schema itself is judged by the model's grammar compiler.
"""

import json
from typing import Any

from twostroke.errors import ParamsError
from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields, one_of, wrong
from twostroke.structure import Structure, StructureKind

FORMATS = ("text", "json_object", "json_schema")
SHAPES = ("json", "regex", "choice", "grammar")


def read_structure(fields: Fields) -> Structure | None:
    """The one structure that was asked for. Raises ApiError that names its field."""
    by_format, by_shape = _response_format(fields), _structured_outputs(fields)
    if by_format is not None and by_shape is not None:
        raise ApiError(
            "response_format and structured_outputs are both given: an answer has one form, send one",
            param="structured_outputs",
        )
    return by_format or by_shape


def _response_format(fields: Fields) -> Structure | None:
    wish = fields.object("response_format")
    if wish is None:
        return None
    kind = wish.take("type")
    if kind not in FORMATS:
        raise wish.wrong("type", one_of(FORMATS))
    structure = None
    if kind == "json_object":
        structure = Structure(kind=StructureKind.JSON_OBJECT)
    elif kind == "json_schema":
        named = wish.object("json_schema")
        if named is None:
            raise wish.wrong("json_schema", "an object with name and schema")
        for name in ("name", "description"):
            named.text(name)
        named.flag("strict")  # every schema is held to, strict or not
        structure = schema_structure(named.take("schema"), place="response_format.json_schema.schema")
        named.end()
    wish.end()
    return structure


def _structured_outputs(fields: Fields) -> Structure | None:
    wish = fields.object("structured_outputs")
    if wish is None:
        return None
    shapes = {name: wish.take(name) for name in SHAPES}
    wish.end()
    given = [name for name, value in shapes.items() if value is not None]
    if len(given) != 1:
        raise ApiError(f"structured_outputs must have exactly {one_of(SHAPES)}", param="structured_outputs")
    (name,) = given
    value, place = shapes[name], f"structured_outputs.{name}"
    if name == "json":
        return schema_structure(value, place=place)
    if name == "choice":
        if not isinstance(value, list) or not value:
            raise wrong(place, "a non-empty array of strings", value)
        return _checked(place, kind=StructureKind.CHOICE, choices=tuple(value))
    if not isinstance(value, str):
        raise wrong(place, "a string", value)
    kind = StructureKind.REGEX if name == "regex" else StructureKind.LARK
    return _checked(place, kind=kind, source=value)


def schema_structure(value: Any, *, place: str) -> Structure:
    """A schema as an object, or as the text of one."""
    if not isinstance(value, dict | str):
        raise wrong(place, "an object, or one as text", value)
    source = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _checked(place, kind=StructureKind.JSON_SCHEMA, source=source)


def _checked(place: str, **wish: Any) -> Structure:
    try:
        return Structure(**wish)
    except ParamsError as error:
        raise ApiError(str(error).replace("structure", place, 1), param=place) from None
