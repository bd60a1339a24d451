"""The application: routes, keys, hosts and the form of every error. Made by the server, or by a test without one."""

import hmac
import logging
from collections.abc import Callable

from fastapi import Depends, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twostroke.serve.api_error import ApiError
from twostroke.serve.hosts import HostCheck, HostNames
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.openapi import document
from twostroke.serve.routes import Routes
from twostroke.serve.state_routes import StateRoutes
from twostroke.serve.token_routes import TokenRoutes

logger = logging.getLogger("twostroke")


def create_app(
    models: ModelRegistry,
    *,
    api_key: str | None = None,
    limits: LimitsConfig | None = None,
    hosts: HostNames | None = None,
) -> FastAPI:
    """The application over models of a registry.

    With `api_key` every route but /health and /ready wants it as a bearer token. `hosts` are the names clients may
    call this server by; None takes any.
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
    app.get("/v1/requests/{request_id}", dependencies=guards)(routes.request_record)
    app.delete("/v1/requests/{request_id}", dependencies=guards)(routes.cancel_request)
    app.post("/tokenize", dependencies=guards)(tokens.tokenize)
    app.post("/detokenize", dependencies=guards)(tokens.detokenize)
    app.get("/openapi.json", dependencies=guards)(lambda: JSONResponse(document(app.routes, limits)))
    app.exception_handler(ApiError)(_answer_api_error)
    app.exception_handler(HTTPException)(_answer_http_error)
    app.exception_handler(Exception)(_answer_internal_error)
    if hosts is not None:
        app.add_middleware(HostCheck, hosts=hosts)
    return app


async def _answer_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, status_code=error.status, headers=error.headers)


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
