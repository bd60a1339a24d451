"""The application: routes, keys, hosts and the form of every error. Made by the server, or by a test without one."""

import hmac
import logging
from collections.abc import Callable, Sequence

from fastapi import Depends, FastAPI
from fastapi.params import Depends as DependsParam
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from twostroke.model.shelf import Shelf
from twostroke.serve.api_error import ApiError, error_response
from twostroke.serve.body import cut
from twostroke.serve.hosts import HostCheck, HostNames
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.ollama.routes import OllamaRoutes
from twostroke.serve.openapi import document
from twostroke.serve.routes import Routes
from twostroke.serve.state_routes import StateRoutes
from twostroke.serve.token_routes import TokenRoutes

logger = logging.getLogger("twostroke")
CLIENT_LEFT = 499  # nobody reads it; the number proxies use for it


def create_app(
    models: ModelRegistry,
    *,
    api_key: str | None = None,
    limits: LimitsConfig | None = None,
    hosts: HostNames | None = None,
    shelf: Shelf | None = None,
) -> FastAPI:
    """The application over models of a registry.

    With `api_key` every route but /health and /ready wants it as a bearer token. `hosts` are the names clients may
    call this server by; None takes any. With `shelf` Ollama's API is spoken beside OpenAI's, and its models can be
    fetched and deleted over it.
    """
    app = FastAPI(title="twostroke", docs_url=None, redoc_url=None, openapi_url=None)
    limits = limits or LimitsConfig()
    routes = Routes(models, limits=limits)
    state, tokens = StateRoutes(models, routes=routes, limits=limits), TokenRoutes(models, routes=routes, limits=limits)
    app.state.routes = routes
    app.get("/health")(state.health)
    app.get("/ready")(state.ready)
    guards = [] if api_key is None else [Depends(_key_check(api_key))]
    app.get("/metrics", dependencies=guards)(state.metrics_text)
    app.get("/v1/models", dependencies=guards)(state.models)
    app.get("/v1/models/{name:path}", dependencies=guards)(state.model)
    app.post("/v1/chat/completions", dependencies=guards)(routes.chat_completions)
    app.post("/v1/completions", dependencies=guards)(routes.completions)
    app.post("/v1/embeddings", dependencies=guards)(routes.openai_embeddings)
    app.get("/v1/requests/{request_id}", dependencies=guards)(routes.request_record)
    app.delete("/v1/requests/{request_id}", dependencies=guards)(routes.cancel_request)
    app.post("/tokenize", dependencies=guards)(tokens.tokenize)
    app.post("/detokenize", dependencies=guards)(tokens.detokenize)
    if shelf is not None:
        ollama = OllamaRoutes(models, routes=routes, shelf=shelf, limits=limits)
        _add_ollama(app, ollama, dependencies=guards)
    app.get("/openapi.json", dependencies=guards)(lambda: JSONResponse(document(app.routes, limits)))
    app.exception_handler(ApiError)(_answer_api_error)
    app.exception_handler(HTTPException)(_answer_http_error)
    app.exception_handler(ClientDisconnect)(_answer_nobody)
    app.exception_handler(Exception)(_answer_internal_error)
    if hosts is not None:
        app.add_middleware(HostCheck, hosts=hosts)
    return app


def _add_ollama(app: FastAPI, routes: OllamaRoutes, *, dependencies: Sequence[DependsParam]) -> None:
    """Ollama's routes; the root tells whoever looks for a server, as /health does."""
    seen = ["GET", "HEAD"]
    app.api_route("/", methods=seen)(routes.root)
    app.api_route("/api/version", methods=seen, dependencies=dependencies)(routes.version)
    app.api_route("/api/tags", methods=seen, dependencies=dependencies)(routes.tags)
    app.get("/api/ps", dependencies=dependencies)(routes.running)
    app.post("/api/show", dependencies=dependencies)(routes.show)
    app.post("/api/generate", dependencies=dependencies)(routes.generate)
    app.post("/api/chat", dependencies=dependencies)(routes.chat)
    app.post("/api/embed", dependencies=dependencies)(routes.embed)
    app.post("/api/embeddings", dependencies=dependencies)(routes.embeddings)
    app.post("/api/pull", dependencies=dependencies)(routes.pull)
    app.delete("/api/delete", dependencies=dependencies)(routes.delete)


async def _answer_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error, path=request.url.path)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = ApiError(f"{request.method} {cut(request.url.path)}: {error.detail}", status=error.status_code)
    return JSONResponse(told.body_for(request.url.path), status_code=error.status_code, headers=error.headers)


async def _answer_nobody(request: Request, error: Exception) -> Response:
    """The client left before its body was complete."""
    return Response(status_code=CLIENT_LEFT)


async def _answer_internal_error(request: Request, error: Exception) -> Response:
    logger.error("internal error in %r", request.url.path, exc_info=error)
    told = ApiError("internal error, see the server's log", status=500)
    return JSONResponse(told.body_for(request.url.path), status_code=500)


def _key_check(api_key: str) -> Callable[[Request], None]:
    expected = f"Bearer {api_key}".encode()

    def check_key(request: Request) -> None:
        given = request.headers.get("authorization", "").encode("latin-1")  # the bytes that came
        if not hmac.compare_digest(given, expected):
            raise ApiError(
                "the API key is missing or wrong: send it as a bearer token", status=401, code="invalid_api_key"
            )

    return check_key
