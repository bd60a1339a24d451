"""The handlers of Ollama's answers and of its lists of models, over the shared routes and the registry.

Registered by `app.create_app` where the server is asked to speak Ollama's API.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

import twostroke
from twostroke.core.clock import unix_time_s
from twostroke.errors import TwostrokeError
from twostroke.model.shelf import Shelf
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers
from twostroke.serve.body import parse_object, read_body
from twostroke.serve.fields import Fields
from twostroke.serve.harmless import Harmless, among, take_harmless
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.load_errors import as_load_error
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelSlot
from twostroke.serve.ollama import describe
from twostroke.serve.ollama.embed import EmbedApi, read_embed, read_embeddings, unasked_embed
from twostroke.serve.ollama.files import FileRoutes
from twostroke.serve.ollama.lines import NDJSON, AnswerLines
from twostroke.serve.ollama.names import known_model, take_name
from twostroke.serve.ollama.replies import OllamaReply, unasked
from twostroke.serve.ollama.wish import OllamaWish, fitted, read_chat, read_generate
from twostroke.serve.routes import Routes
from twostroke.serve.served_model import ServedModel
from twostroke.serve.told import defaults_of

logger = logging.getLogger("twostroke")
API_VERSION = "0.12.6"  # the version of Ollama whose API this is; clients ask for a lowest one
IS_RUNNING = "Ollama is running"  # what clients look for at the root
AS_IT_IS = "what is shown is the model as it is, leave it out"
NO_OVERRIDES = (
    Harmless("system", among(""), AS_IT_IS),
    Harmless("template", among(""), AS_IT_IS),
    Harmless("options", among({}), AS_IT_IS),
)
ReadWish = Callable[..., OllamaWish]


class OllamaApi:
    """Ollama's way to ask for answers, of one of its two routes."""

    id_prefix = "ollama"
    stream_type = NDJSON

    def __init__(self, read: ReadWish, limits: LimitsConfig) -> None:
        self._read = read
        self._limits = limits

    def read(self, body: bytes, models: ModelRegistry) -> OllamaWish:
        values = parse_object(body)
        asked = values.get("model")
        if not isinstance(asked, str):
            return self._read(values, model="", defaults=SamplingParams())  # which says what is wrong
        name, slot = known_model(asked, models)
        return self._read(values, model=name, defaults=defaults_of(slot, models))

    def fitted(self, wish: OllamaWish, model: ServedModel) -> OllamaWish:
        return fitted(wish, model)

    def whole(self, wish: OllamaWish, answers: Answers, model: ServedModel) -> OllamaReply:
        return OllamaReply(wish, answers, model=model)

    def stream(self, wish: OllamaWish, answers: Answers, model: ServedModel) -> AnswerLines:
        return AnswerLines(OllamaReply(wish, answers, model=model), answers, limits=self._limits)


class OllamaRoutes:
    """Ollama's API over the models of a registry, and the files of a shelf."""

    def __init__(self, models: ModelRegistry, *, routes: Routes, shelf: Shelf, limits: LimitsConfig) -> None:
        self._models = models
        self._routes = routes
        self._limits = limits
        files = FileRoutes(models, routes=routes, shelf=shelf, limits=limits)
        self.pull, self.delete = files.pull, files.delete

    # State

    async def root(self) -> Response:
        return PlainTextResponse(IS_RUNNING)

    async def version(self) -> Response:
        return JSONResponse({"version": API_VERSION, "twostroke": twostroke.__version__})

    async def tags(self) -> Response:
        return JSONResponse({"models": await asyncio.to_thread(self._tags)})

    def _tags(self) -> list[dict[str, Any]]:
        found = [(name, self._models.find(name)) for name in self._models.names()]
        facts = [(name, None if slot is None else self._facts_or_none(slot)) for name, slot in found]
        return [describe.tag(name, each) for name, each in facts if each is not None]

    def _facts_or_none(self, slot: ModelSlot) -> Any:
        """What its file says; a file that cannot be read is told in the log, and hides no other."""
        try:
            return self._models.facts(slot)
        except (TwostrokeError, OSError) as error:
            logger.warning("%s cannot be listed: %s", slot.name, error)
            return None

    async def running(self) -> Response:
        return JSONResponse({"models": await asyncio.to_thread(self._running)})

    def _running(self) -> list[dict[str, Any]]:
        loaded = [(slot, slot.model, self._facts_or_none(slot)) for slot in self._models.slots]
        return [
            describe.running(
                slot.name, facts, num_bytes=slot.memory_bytes, context=model.context, expires_s=_expires_s(slot)
            )
            for slot, model, facts in loaded
            if model is not None and facts is not None
        ]

    async def show(self, request: Request) -> Response:
        with self._routes.place():
            body = await read_body(request, self._limits)
            return JSONResponse(await asyncio.to_thread(self._shown, body))

    def _shown(self, body: bytes) -> dict[str, Any]:
        fields = Fields(parse_object(body))
        wished = take_name(fields)
        is_verbose = fields.flag("verbose") or False
        take_harmless(fields, NO_OVERRIDES)
        fields.end()
        fields.refuse_unknown()
        name, slot = known_model(wished, self._models)
        try:
            facts = self._models.facts(slot, with_arrays=is_verbose)
        except (TwostrokeError, OSError) as error:
            raise as_load_error(error, slot.entry) from error
        model, params = slot.model, defaults_of(slot, self._models)
        context = None if model is None else model.context
        return describe.shown(name, facts, params=params, context=context, is_verbose=is_verbose)

    # Answers

    async def generate(self, request: Request) -> Response:
        return await self._routes.answer(request, OllamaApi(read_generate, self._limits), told_unasked=unasked)

    async def chat(self, request: Request) -> Response:
        return await self._routes.answer(request, OllamaApi(read_chat, self._limits), told_unasked=unasked)

    async def embed(self, request: Request) -> Response:
        api = EmbedApi(read_embed, self._limits, is_older=False)
        return await self._routes.answer(request, api, told_unasked=unasked_embed)

    async def embeddings(self, request: Request) -> Response:
        api = EmbedApi(read_embeddings, self._limits, is_older=True)
        return await self._routes.answer(request, api, told_unasked=unasked_embed)


def _expires_s(slot: ModelSlot) -> float | None:
    """When it will go, in Unix time; of one that answers, if that ended now. None for never."""
    if slot.expires_s is not None:
        return slot.expires_s
    return unix_time_s() + slot.keep_alive_s if math.isfinite(slot.keep_alive_s) else None
