"""/tokenize and /detokenize: the tokens of a text or conversation, and back. A model that is not loaded is."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twostroke.serve.body import parse_object, read_body
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelSlot
from twostroke.serve.routes import Routes
from twostroke.serve.served_model import ServedModel
from twostroke.serve.texts import TokenizeWish, read_detokenize, read_tokenize
from twostroke.serve.told import told

T = TypeVar("T")


class TokenRoutes:
    def __init__(self, models: ModelRegistry, *, routes: Routes, limits: LimitsConfig) -> None:
        self._models = models
        self._routes = routes
        self._limits = limits

    async def tokenize(self, request: Request) -> Response:
        with self._routes.place():
            wish, slot = await self._read(request, read_tokenize)
            return await self._reply(slot, lambda model: _tokenized(wish, model), field=wish.field)

    async def detokenize(self, request: Request) -> Response:
        with self._routes.place():
            token_ids, slot = await self._read(request, read_detokenize)
            return await self._reply(slot, lambda model: {"prompt": model.decode(token_ids)}, field="tokens")

    async def _read(self, request: Request, read: Callable[..., T]) -> tuple[T, ModelSlot]:
        body = await read_body(request, self._limits)

        def understand() -> tuple[T, ModelSlot]:
            values = parse_object(body)
            slot = self._asked_for(values)
            names = self._models.names() if slot is None else [str(values.get("model"))]
            return read(values, models=names), slot or self._models.first

        return await asyncio.to_thread(understand)

    def _asked_for(self, values: Mapping[str, Any]) -> ModelSlot | None:
        name = values.get("model")
        return self._models.find(name) if isinstance(name, str) else None

    async def _reply(self, slot: ModelSlot, reply: Callable[[ServedModel], dict[str, Any]], *, field: str) -> Response:
        async with self._models.using(slot) as model:
            try:
                return JSONResponse(await asyncio.to_thread(reply, model))
            except Exception as error:
                raise told(error, slot, prompt_field=field) from error


def _tokenized(wish: TokenizeWish, model: ServedModel) -> dict[str, Any]:
    token_ids = model.encode(wish.prompt)
    reply: dict[str, Any] = {"tokens": token_ids, "count": len(token_ids), "max_model_len": model.context}
    if wish.wants_texts:
        reply["token_strs"] = [model.token_text(token_id) for token_id in token_ids]
    return reply
