"""OpenAI's embeddings: bodies read strictly, vectors told as numbers or as base64 of float32.

Each input is a sequence of its own in the model's engine, which batches them. Called by the routes.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twostroke.core.event import Event, FinishEvent
from twostroke.embedding import EmbeddingParams
from twostroke.serve.answers import Answers
from twostroke.serve.api_error import ApiError
from twostroke.serve.body import parse_object
from twostroke.serve.fields import Fields, one_of, shown
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.openai import Prompt, read_model, read_prompts, read_timeout_s
from twostroke.serve.replies import reason_of
from twostroke.serve.served_model import ServedModel
from twostroke.serve.told import names_and_defaults

FORMATS = ("float", "base64")
MAX_DIMENSIONS = 2**24  # far above any model's width


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingsWish:
    """One HTTP request, understood."""

    model: str
    prompts: tuple[Prompt, ...]
    params: EmbeddingParams
    is_base64: bool = False
    timeout_s: float | None = None
    salt: str = ""
    keep_alive_s: float | None = None
    num_choices: int = 1
    is_stream: bool = False
    wants_ledger: bool = False
    prompt_field: str = "input"
    structure_field: str = "input"  # a vector has no form to ask for


def read_embeddings(values: Mapping[str, Any], *, models: Sequence[str], limits: LimitsConfig) -> EmbeddingsWish:
    """Check every field. Raises ApiError: 404 for a model this server does not have, else 400."""
    fields = Fields(values)
    wish = EmbeddingsWish(
        model=read_model(fields, models),
        prompts=read_prompts(fields, "input", limit=limits.max_inputs),
        params=EmbeddingParams(dimensions=fields.whole("dimensions", low=1, high=MAX_DIMENSIONS)),
        is_base64=_format(fields) == "base64",
        timeout_s=read_timeout_s(fields, limits),
        salt=fields.text("cache_salt") or "",
    )
    fields.text("user")  # rightly changes nothing
    fields.end()
    fields.refuse_unknown()
    return wish


def _format(fields: Fields) -> str:
    found = fields.text("encoding_format")
    if found is not None and found not in FORMATS:
        raise ApiError(f"encoding_format is {shown(found)}: it must be {one_of(FORMATS)}", param="encoding_format")
    return found or "float"


class EmbeddingsApi:
    """How the routes ask for vectors; there is nothing to stream."""

    id_prefix = "embd"
    stream_type = "application/json"

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits

    def read(self, body: bytes, models: ModelRegistry) -> EmbeddingsWish:
        values = parse_object(body)
        names, _ = names_and_defaults(values.get("model"), models)
        return read_embeddings(values, models=names, limits=self._limits)

    def fitted(self, wish: EmbeddingsWish, model: ServedModel) -> EmbeddingsWish:
        return wish

    def whole(self, wish: EmbeddingsWish, answers: Answers, model: ServedModel) -> "EmbeddingsReply":
        return EmbeddingsReply(wish, answers)

    def stream(self, wish: EmbeddingsWish, answers: Answers, model: ServedModel) -> None:
        return None


class EmbeddingsReply:
    """Vectors in the order of the inputs."""

    def __init__(self, wish: EmbeddingsWish, answers: Answers) -> None:
        self._wish = wish
        self._answers = answers

    def take(self, index: int, event: Event) -> None:
        """Raises ApiError for an end without a vector."""
        if isinstance(event, FinishEvent):
            reason_of(event, self._answers)

    def whole(self) -> dict[str, Any]:
        finishes = [self._answers.finishes[index] for index in range(len(self._wish.prompts))]
        num_tokens = sum(finish.usage.prompt_tokens for finish in finishes)
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": self._told(finish.embedding)}
                for index, finish in enumerate(finishes)
            ],
            "model": self._wish.model,
            "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        }

    def _told(self, embedding: bytes) -> str | list[float]:
        if self._wish.is_base64:
            return base64.b64encode(embedding).decode("ascii")
        values: list[float] = np.frombuffer(embedding, "<f4").tolist()
        return values
