"""Small JSON schemas that the OpenAPI document is put together from, and the form of a body. Read by `openapi`."""

from twostroke.serve.openapi_chat import Schema

TOKEN_IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def number(low: float, high: float) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high}


def whole(low: int, high: int | None = None) -> Schema:
    return {"type": "integer", "minimum": low} | ({} if high is None else {"maximum": high})


def one_or_many(value: Schema, *, most: int) -> Schema:
    return {"anyOf": [value, {"type": "array", "items": value, "maxItems": most}]}


def body_of(fields: dict[str, Schema], *, required: tuple[str, ...] = ()) -> Schema:
    """Only these fields; those that may be left out may be null."""
    properties = {
        name: schema if name in required else {"anyOf": [schema, {"type": "null"}]} for name, schema in fields.items()
    }
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
