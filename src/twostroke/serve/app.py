"""The routes and the server process. Called by the command line; asks the model through `submit` alone."""

import asyncio
import contextlib
import errno
import hmac
import logging
import os
import signal
import socket
import weakref
from collections.abc import Callable, Iterator, Sequence

import uvicorn
from fastapi import Depends, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from twostroke.core.clock import unix_time_s
from twostroke.core.event import FinishEvent
from twostroke.errors import ConfigError
from twostroke.serve.answers import Answers, ServedModel
from twostroke.serve.api_error import ApiError, as_api_error
from twostroke.serve.body import parse_object, read_body
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import Wish, read_wish
from twostroke.serve.replies import Reply
from twostroke.serve.sse import StreamedReply

logger = logging.getLogger("twostroke")
CLIENT_LEFT = 499  # nobody reads it; the number proxies use for it
SHUTDOWN_S = 5
MAX_PORT = 65_535


class Routes:
    """The handlers and what they share: the model, its names and the requests that run."""

    def __init__(self, model: ServedModel, *, aliases: Sequence[str], limits: LimitsConfig) -> None:
        self._model = model
        self._names = (served_name(model.model_name), *aliases)
        self._limits = limits
        self._started_s = unix_time_s()
        self._running: weakref.WeakSet[Answers] = weakref.WeakSet()

    async def health(self) -> Response:
        now = await asyncio.to_thread(self._model.snapshot)
        return JSONResponse(
            {
                "status": "ok",
                "requests": {"running": now.num_running, "waiting": now.num_waiting},
                "kv_blocks": {
                    "free": now.blocks_free,
                    "cached": now.blocks_cached,
                    "held": now.blocks_held,
                    "total": now.blocks_total,
                },
            }
        )

    async def models(self) -> Response:
        facts = {"object": "model", "created": self._started_s, "owned_by": "twostroke"}
        return JSONResponse({"object": "list", "data": [{"id": name, **facts} for name in self._names]})

    async def chat_completions(self, request: Request) -> Response:
        return await self._answer(request, is_chat=True)

    async def completions(self, request: Request) -> Response:
        return await self._answer(request, is_chat=False)

    async def _answer(self, request: Request, *, is_chat: bool) -> Response:
        """Everything that can fail on input fails here, before a stream's first byte."""
        try:
            body = await read_body(request, self._limits)
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        arrival_s = self._model.now()
        wish = await asyncio.to_thread(self._wish, body, is_chat=is_chat)  # seconds, for a hostile body
        answers = Answers(max_pending=self._limits.max_pending_events)
        self._running.add(answers)
        try:
            await answers.submit(self._model, wish.prompts, wish.params, arrival_s=arrival_s)
        except Exception as error:
            message = str(error).replace(self._model.model_name, self._names[0])  # a path tells where we live
            known = as_api_error(error, prompt_field=wish.prompt_field, message=message)
            if known is None:
                raise
            raise known from None
        return StreamedReply(wish, answers) if wish.is_stream else await self._whole(request, wish, answers)

    def _wish(self, body: bytes, *, is_chat: bool) -> Wish:
        defaults = self._model.default_params
        fields = parse_object(body)
        return read_wish(fields, is_chat=is_chat, models=self._names, limits=self._limits, defaults=defaults)

    async def _whole(self, request: Request, wish: Wish, answers: Answers) -> Response:
        texts = [""] * len(wish.prompts)
        finishes: dict[int, FinishEvent] = {}
        async with answers.cancelled_when_client_leaves(request.receive):
            async for index, event in answers.events():
                texts[index] += event.text
                if isinstance(event, FinishEvent):
                    finishes[index] = event
        return JSONResponse(Reply(wish).whole(texts, finishes))

    def cancel_all(self) -> None:
        """End every running answer; their clients get what there is and an error."""
        for answers in list(self._running):
            answers.cancel()


def create_app(
    model: ServedModel,
    *,
    aliases: Sequence[str] = (),
    api_key: str | None = None,
    limits: LimitsConfig | None = None,
) -> FastAPI:
    """The application over a loaded model. With `api_key` every route but /health wants it as a bearer token."""
    app = FastAPI(title="twostroke", docs_url=None, redoc_url=None, openapi_url=None)
    routes = Routes(model, aliases=aliases, limits=limits or LimitsConfig())
    app.state.routes = routes
    app.get("/health")(routes.health)
    guards = [] if api_key is None else [Depends(_key_check(api_key))]
    app.get("/v1/models", dependencies=guards)(routes.models)
    app.post("/v1/chat/completions", dependencies=guards)(routes.chat_completions)
    app.post("/v1/completions", dependencies=guards)(routes.completions)
    app.exception_handler(ApiError)(_answer_api_error)
    app.exception_handler(HTTPException)(_answer_http_error)
    app.exception_handler(Exception)(_answer_internal_error)
    return app


def served_name(model_name: str) -> str:
    """What clients call the model: its name, or the last part of a path, so that no folder is told."""
    is_path = os.path.exists(os.path.expanduser(model_name))
    return os.path.basename(os.path.normpath(model_name)) if is_path else model_name


async def _answer_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, status_code=error.status)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(
        ApiError(message, status=error.status_code).body, status_code=error.status_code, headers=error.headers
    )


async def _answer_internal_error(request: Request, error: Exception) -> Response:
    logger.error("internal error in %s", request.url.path, exc_info=error)
    return JSONResponse(ApiError("internal error, see the server's log", status=500).body, status_code=500)


def _key_check(api_key: str) -> Callable[[Request], None]:
    expected = f"Bearer {api_key}".encode()

    def check_key(request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, expected):
            raise ApiError(
                "the API key is missing or wrong: send it as a bearer token", status=401, code="invalid_api_key"
            )

    return check_key


class _Server(uvicorn.Server):
    """Ends running answers before it waits for their connections to close."""

    def __init__(self, config: uvicorn.Config, *, cancel_all: Callable[[], None]) -> None:
        super().__init__(config)
        self._cancel_all = cancel_all

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._cancel_all()
        await super().shutdown(sockets)


def listen(host: str = "127.0.0.1", port: int = 8080) -> socket.socket:
    """The address, taken: clients that connect wait until `serve` answers. Port 0 takes a free one.

    Taken before a model is loaded, so that nobody waits for a load to hear that the port is in use. Raises
    ConfigError when the address cannot be used.
    """
    if not 0 <= port <= MAX_PORT:
        raise ConfigError(f"port {port} does not exist: take one from 1 to {MAX_PORT}, or 0 for any free one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, UnicodeError) as error:  # the latter for what is no host name at all
        why = "another program listens there" if getattr(error, "errno", None) == errno.EADDRINUSE else str(error)
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise ConfigError(f"cannot listen on {shown}: {why}; choose another address or port") from None


def serve(
    model: ServedModel,
    listener: socket.socket,
    *,
    aliases: Sequence[str] = (),
    api_key: str | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then end running answers and return. Call it on the main thread.

    `on_ready` hears the address once requests are answered.
    """
    app = create_app(model, aliases=aliases, api_key=api_key)
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    server = _Server(config, cancel_all=app.state.routes.cancel_all)
    with _signals_end(server):
        if on_ready is not None:
            host, port = listener.getsockname()[:2]
            on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        server.run(sockets=[listener])


@contextlib.contextmanager
def _signals_end(server: uvicorn.Server) -> Iterator[None]:
    """Catch what comes before the server listens for signals, and what it raises again after it ended."""

    def end(number: int, frame: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
