"""The handlers that fetch and delete models, by their names: one download at a time, nothing that is in use."""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twostroke.errors import ModelNotFoundError
from twostroke.model.shelf import Shelf
from twostroke.serve.api_error import ApiError
from twostroke.serve.body import parse_object, read_body
from twostroke.serve.disconnect import watching
from twostroke.serve.fields import Fields
from twostroke.serve.harmless import Harmless, among, take_harmless
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.ollama.names import find_model, take_name
from twostroke.serve.ollama.pull import Pull, PullReply
from twostroke.serve.routes import RETRY_AFTER_S, Routes

INSECURE = (Harmless("insecure", among(False), "nothing is fetched over broken connections, leave it out"),)


class FileRoutes:
    def __init__(self, models: ModelRegistry, *, routes: Routes, shelf: Shelf, limits: LimitsConfig) -> None:
        self._models = models
        self._routes = routes
        self._shelf = shelf
        self._limits = limits
        self._pull: Pull | None = None
        routes.at_close.append(self._cancel_pull)

    async def pull(self, request: Request) -> Response:
        """Fetch a model, with its progress as a stream."""
        with self._routes.place():
            body = await read_body(request, self._limits)
            name, is_stream = await asyncio.to_thread(_read_pull, body)
        pull = self._begin_pull(name)
        try:
            async with watching(request.receive, pull.cancel):
                await pull.started()
                if not is_stream:
                    await pull.ended()
        except BaseException:
            pull.cancel()
            raise
        return PullReply(pull, idle_s=self._limits.keep_alive_s) if is_stream else JSONResponse({"status": "success"})

    def _begin_pull(self, name: str) -> Pull:
        self._routes.refuse_while_draining()
        if self._pull is not None and not self._pull.has_ended:
            raise ApiError(
                f"{self._pull.name} is being fetched, one model at a time: ask again later",
                status=429,
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        self._pull = Pull(name, lambda on_progress: self._shelf.pull(name, on_progress=on_progress))
        return self._pull

    def _cancel_pull(self) -> None:
        if self._pull is not None:
            self._pull.cancel()

    async def delete(self, request: Request) -> Response:
        """Delete the files of a fetched model; one that is loaded and idle is unloaded first."""
        with self._routes.place():
            body = await read_body(request, self._limits)
            name = await asyncio.to_thread(_read_delete, body)
            await self._delete(name)
        return Response()

    async def _delete(self, name: str) -> None:
        found = await asyncio.to_thread(find_model, name, self._models)
        if found is not None:
            name, slot = found
            if not self._models.is_pulled(slot):
                raise _in_use(name, "the server was started with it, end it first")
            if slot.num_uses == 0:
                await self._models.unload(slot)
            if slot.num_uses or slot.model is not None:
                raise _in_use(name, "it answers a request, ask again later")
            name = slot.name
        try:
            await asyncio.to_thread(self._shelf.delete, name)
        except ModelNotFoundError as error:
            raise ApiError(f"model not found: {error}", status=404, param="model") from error


def _in_use(name: str, why: str) -> ApiError:
    return ApiError(f"model {name!r} is in use: {why}", status=409, param="model")


def _read_pull(body: bytes) -> tuple[str, bool]:
    fields = Fields(parse_object(body))
    name, is_stream = take_name(fields), fields.flag("stream")
    take_harmless(fields, INSECURE)
    fields.end()
    fields.refuse_unknown()
    return name, is_stream is None or is_stream


def _read_delete(body: bytes) -> str:
    fields = Fields(parse_object(body))
    name = take_name(fields)
    fields.end()
    fields.refuse_unknown()
    return name
