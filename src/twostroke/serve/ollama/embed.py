"""Ollama's two requests for embeddings, read strictly; no model here has them yet, which the routes tell."""

from collections.abc import Mapping
from typing import Any

from twostroke.serve.fields import Fields, wrong
from twostroke.serve.ollama.keep_alive import take_keep_alive
from twostroke.serve.ollama.names import take_name


def read_embed(values: Mapping[str, Any]) -> str:
    """The body of /api/embed; the model's name. Raises ApiError."""
    fields = Fields(values)
    text = fields.take("input")
    texts = text if isinstance(text, list) else [text]
    if not all(isinstance(each, str) for each in texts):
        raise wrong("input", "a string or an array of strings", text)
    fields.flag("truncate")
    fields.whole("dimensions", low=1, high=2**31)
    return _model_of(fields)


def read_embeddings(values: Mapping[str, Any]) -> str:
    """The body of the older /api/embeddings; the model's name. Raises ApiError."""
    fields = Fields(values)
    fields.text("prompt")
    return _model_of(fields)


def _model_of(fields: Fields) -> str:
    take_keep_alive(fields)
    fields.take("options")
    name = take_name(fields)
    fields.end()
    fields.refuse_unknown()
    return name
