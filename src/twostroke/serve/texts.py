"""The bodies of /tokenize and /detokenize, in the fields vLLM gave them. Called by the routes; knows no tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.serve.api_error import ApiError
from twostroke.serve.chat_fields import read_chat
from twostroke.serve.fields import Fields
from twostroke.serve.openai import is_ids, no_such_model


@dataclass(frozen=True, slots=True)
class TokenizeWish:
    prompt: Any
    field: str  # where the prompt was given
    wants_texts: bool


def read_tokenize(values: Mapping[str, Any], *, models: Sequence[str]) -> TokenizeWish:
    """Text, or the messages of a chat; the model may be left out. Raises ApiError."""
    fields = Fields(values)
    _check_model(fields, models)
    wants_texts = fields.flag("return_token_strs") or False
    prompt = fields.text("prompt")
    has_messages = fields.take("messages") is not None
    if (prompt is None) is not has_messages:
        raise ApiError("give either prompt, a string, or messages", param="prompt")
    asked: Any = read_chat(fields) if has_messages else prompt
    fields.end()
    fields.refuse_unknown()
    return TokenizeWish(asked, "messages" if has_messages else "prompt", wants_texts)


def read_detokenize(values: Mapping[str, Any], *, models: Sequence[str]) -> list[int]:
    """Token ids. Raises ApiError."""
    fields = Fields(values)
    _check_model(fields, models)
    token_ids = fields.required("tokens", list, "an array of token ids")
    if token_ids and not is_ids(token_ids):
        raise fields.wrong("tokens", "an array of token ids")
    fields.end()
    fields.refuse_unknown()
    ids: list[int] = token_ids
    return ids


def _check_model(fields: Fields, models: Sequence[str]) -> None:
    model = fields.text("model")
    if model is not None and model not in models:
        raise no_such_model(model, models)
