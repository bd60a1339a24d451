"""Ollama's two requests for embeddings, read strictly, and their replies; the model's own pooling makes the vectors."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twostroke.embedding import EmbeddingParams
from twostroke.serve.answers import Answers
from twostroke.serve.api_error import ApiError
from twostroke.serve.body import parse_object
from twostroke.serve.embeddings import MAX_DIMENSIONS, EmbeddingsApi, EmbeddingsReply, EmbeddingsWish
from twostroke.serve.fields import Fields, wrong
from twostroke.serve.harmless import Harmless, among, take_harmless
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.ollama.durations import durations
from twostroke.serve.ollama.keep_alive import take_keep_alive
from twostroke.serve.ollama.names import known_model, take_name
from twostroke.serve.served_model import ServedModel

HARMLESS = (
    Harmless("truncate", among(False), "no text is ever cut here, send false or leave it out"),
    Harmless("options", among({}), "a vector has no options, leave it out"),
)
ReadWish = Callable[[Fields, LimitsConfig], Mapping[str, Any]]


def read_embed(fields: Fields, limits: LimitsConfig) -> Mapping[str, Any]:
    """The body of /api/embed. Raises ApiError."""
    text = fields.take("input")
    texts = text if isinstance(text, list) else [text]
    if not all(isinstance(each, str) for each in texts):
        raise wrong("input", "a string or an array of strings", text)
    if len(texts) > limits.max_inputs:
        raise ApiError(f"input has {len(texts)} texts: the limit is {limits.max_inputs}", param="input")
    dimensions = fields.whole("dimensions", low=1, high=MAX_DIMENSIONS)
    params = EmbeddingParams(dimensions=dimensions)
    return {"prompts": tuple(texts), "params": params, "wants_ledger": True}  # it tells durations


def read_embeddings(fields: Fields, limits: LimitsConfig) -> Mapping[str, Any]:
    """The body of the older /api/embeddings, of one text. Raises ApiError."""
    prompt = fields.text("prompt")
    return {"prompts": (prompt,) if prompt else (), "params": EmbeddingParams(), "prompt_field": "prompt"}


class EmbedApi(EmbeddingsApi):
    """How the routes ask for vectors in Ollama's words."""

    def __init__(self, read: ReadWish, limits: LimitsConfig, *, is_older: bool) -> None:
        super().__init__(limits)
        self._read_rest = read
        self._is_older = is_older

    def read(self, body: bytes, models: ModelRegistry) -> EmbeddingsWish:
        fields = Fields(parse_object(body))
        name, _ = known_model(take_name(fields), models)
        rest = self._read_rest(fields, self._limits)
        keep_alive_s = take_keep_alive(fields)
        take_harmless(fields, HARMLESS if not self._is_older else HARMLESS[1:])
        fields.end()
        fields.refuse_unknown()
        return EmbeddingsWish(model=name, keep_alive_s=keep_alive_s, **rest)

    def whole(self, wish: EmbeddingsWish, answers: Answers, model: ServedModel) -> EmbeddingsReply:
        return EmbedReply(wish, answers, is_older=self._is_older)


class EmbedReply(EmbeddingsReply):
    """Vectors in Ollama's form."""

    def __init__(self, wish: EmbeddingsWish, answers: Answers, *, is_older: bool) -> None:
        super().__init__(wish, answers)
        self._is_older = is_older

    def whole(self) -> dict[str, Any]:
        finishes = [self._answers.finishes[index] for index in range(len(self._wish.prompts))]
        vectors = [np.frombuffer(finish.embedding, "<f4").tolist() for finish in finishes]
        if self._is_older:
            return {"embedding": vectors[0]}
        last = max(range(len(finishes)), key=lambda index: finishes[index].timing.e2e_s)
        times = durations(finishes[last], self._answers.ledgers[last])
        return {
            "model": self._wish.model,
            "embeddings": vectors,
            "total_duration": times["total_duration"],
            "load_duration": times["load_duration"],
            "prompt_eval_count": sum(finish.usage.prompt_tokens for finish in finishes),
        }


def unasked_embed(wish: EmbeddingsWish) -> dict[str, Any]:
    """The reply to a request without a text, which only loads its model."""
    return {"embedding": []} if wish.prompt_field == "prompt" else {"model": wish.model, "embeddings": []}
