"""The handlers of every route and what they share: the model, its names, the requests that run.

Registered by `app.create_app`. Everything that can fail on input fails before a stream's first byte.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from twostroke.core.clock import unix_time_s
from twostroke.core.snapshot import Snapshot
from twostroke.serve.answer_api import AnswerApi, WishT
from twostroke.serve.answers import Answers, CancelCause, EventBridge
from twostroke.serve.api_error import ApiError, as_api_error
from twostroke.serve.body import parse_object, read_body
from twostroke.serve.delivery import DeliveredReply
from twostroke.serve.json_log import log_end
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.metrics import ServerMetrics
from twostroke.serve.openai import Wish, no_such_model, read_wish
from twostroke.serve.records import RequestRecords
from twostroke.serve.replies import Reply
from twostroke.serve.served_model import ServedModel
from twostroke.serve.sse import EventStream, StreamedReply
from twostroke.serve.texts import read_detokenize, read_tokenize
from twostroke.serve.watchdog import Watchdog

T = TypeVar("T")

CLIENT_LEFT = 499  # nobody reads it; the number proxies use for it
RETRY_AFTER_S = 1  # a place in the queue comes free with every answer that ends
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Routes:
    """One loaded model behind HTTP."""

    def __init__(self, model: ServedModel, *, names: Sequence[str], limits: LimitsConfig) -> None:
        self.records = RequestRecords(max_kept=limits.max_kept_requests)
        self.metrics = ServerMetrics()
        self.is_draining = False
        self._model = model
        self._names = tuple(names)
        self._limits = limits
        self._started_s = unix_time_s()
        self._bridge: EventBridge | None = None
        self._late_look: asyncio.Task[Snapshot] | None = None  # at an engine that has not answered yet
        self.watchdog = Watchdog(self.records, stall_s=limits.stall_s)
        model.observe_steps(self.metrics.observe_step)
        model.observe_steps(self.watchdog.observe_step)

    # State

    async def health(self) -> Response:
        now = await self._snapshot()
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

    async def metrics_text(self) -> Response:
        return Response(self.metrics.text(await self._snapshot()), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def _snapshot(self) -> Snapshot:
        """The engine now. Raises ApiError when it does not answer; one thread at most waits for it then."""
        if self._late_look is not None and not self._late_look.done():
            raise _stalled()
        look = asyncio.create_task(asyncio.to_thread(self._model.snapshot))
        await asyncio.wait({look}, timeout=self._limits.answer_s)
        if not look.done():
            self._late_look = look
            raise _stalled()
        return look.result()

    async def ready(self) -> Response:
        """Whether a new request would be taken."""
        self._refuse_when_unable()
        return JSONResponse({"status": "ready"})

    async def models(self) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_facts(name) for name in self._names]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._names:
            raise no_such_model(name, self._names)
        return JSONResponse(self._model_facts(name))

    def _model_facts(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._started_s,
            "owned_by": "twostroke",
            "max_model_len": self._model.context,
        }

    # Answers

    async def chat_completions(self, request: Request) -> Response:
        return await self.answer(request, OpenAIApi(self._names, self._limits, is_chat=True))

    async def completions(self, request: Request) -> Response:
        return await self.answer(request, OpenAIApi(self._names, self._limits, is_chat=False))

    async def answer(self, request: Request, api: AnswerApi[WishT]) -> Response:
        """Answer a request of any API, or tell why not. Raises ApiError before the first byte is sent."""
        try:
            return await self._answer_taken(request, api)
        except ApiError as error:
            self.metrics.observe_refusal(error)
            raise

    async def _answer_taken(self, request: Request, api: AnswerApi[WishT]) -> Response:
        request_id = self._request_id(request, prefix=api.id_prefix)
        self._refuse_beyond_limit()
        answers = Answers(
            request_id=request_id,
            max_pending=self._limits.max_pending_events,
            bridge=self._bridge_here(),
            observers=[self.records.observe, self.metrics.observe, log_end],
        )
        self.records.open(answers)  # while its body is read too: it holds a place
        try:
            body = await read_body(request, self._limits)
            arrival_s = self._model.now()
            wish = await asyncio.to_thread(api.read, body, self._model)  # seconds, for a hostile body
            wish = await self._start(wish, answers, api, arrival_s=arrival_s)
            self.watchdog.wake()
        except ClientDisconnect:
            self.records.close(answers)
            return Response(status_code=CLIENT_LEFT)
        except BaseException:
            self.records.close(answers)
            raise
        headers = {"X-Request-Id": request_id}
        if not wish.prompts:  # nothing was asked, nothing will end
            self.records.close(answers)
        elif wish.is_stream:
            stream = api.stream(wish, answers, self._model)
            return self._delivered(StreamedReply(stream, answers, media_type=api.stream_type, headers=headers), answers)
        return self._delivered(JSONResponse(await self._whole(request, wish, answers, api), headers=headers), answers)

    def _delivered(self, reply: Response, answers: Answers) -> Response:
        return DeliveredReply(reply, answers, now=self._model.now, on_sent=self._note_sent)

    def _note_sent(self, answers: Answers, waited_s: float) -> None:
        self.records.observe_sent(answers)
        self.metrics.observe_sent(answers, waited_s)

    async def _start(self, wish: WishT, answers: Answers, api: AnswerApi[WishT], *, arrival_s: float) -> WishT:
        try:
            wish = await asyncio.to_thread(api.fitted, wish, self._model)
            await answers.submit(
                self._model,
                wish.prompts,
                wish.params,
                arrival_s=arrival_s,
                num_choices=wish.num_choices,
                salt=wish.salt,
                timeout_s=wish.timeout_s,
            )
        except ApiError:
            raise
        except Exception as error:
            raise self._told(error, prompt_field=wish.prompt_field, structure_field=wish.structure_field) from error
        return wish

    async def _whole(self, request: Request, wish: WishT, answers: Answers, api: AnswerApi[WishT]) -> dict[str, Any]:
        reply = api.whole(wish, answers, self._model)
        async with answers.cancelled_when_client_leaves(request.receive):
            try:
                async for index, event in answers.events():
                    reply.take(index, event)
            except ApiError:
                raise
            except Exception as error:  # of the start of a later choice
                raise self._told(error, prompt_field=wish.prompt_field) from error
        return reply.whole()

    def _told(self, error: Exception, *, prompt_field: str, structure_field: str = "response_format") -> Exception:
        """What a client is told of an error of the model's door; one of our own stays what it is."""
        message = str(error).replace(self._model.model_name, self._names[0])  # a path tells where we live
        known = as_api_error(error, prompt_field=prompt_field, message=message, structure_field=structure_field)
        return known or error

    def _bridge_here(self) -> EventBridge:
        if self._bridge is None:
            self._bridge = EventBridge()
        return self._bridge

    def _request_id(self, request: Request, *, prefix: str) -> str:
        """The client's own name for its request, or a new one."""
        wished = request.headers.get("x-request-id")
        if wished is None:
            return f"{prefix}-{secrets.token_hex(12)}"
        if not REQUEST_ID.fullmatch(wished):
            raise ApiError("X-Request-Id must have 1 to 64 letters, digits, dots, colons, dashes or underscores")
        if self.records.find_running(wished) is not None:
            raise ApiError(f"X-Request-Id is {wished}: a running request has it, take another")
        return wished

    def _refuse_when_unable(self) -> None:
        if self.is_draining:
            raise _closing()
        if self.watchdog.is_stalled:
            raise _stalled()

    def _refuse_beyond_limit(self) -> None:
        self._refuse_when_unable()
        limit = self._limits.max_open_requests
        if len(self.records) >= limit:
            raise ApiError(
                f"{limit} requests run or wait: the limit is {limit}, ask again later",
                status=429,
                code="queue_full",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )

    def cancel_all(self) -> None:
        """End every running answer; their clients get what there is and an error."""
        for answers in self.records.running:
            answers.cancel(CancelCause.CLOSING)

    # Requests by id

    async def request_record(self, request: Request) -> Response:
        return JSONResponse(self._record(request.path_params["request_id"]))

    async def cancel_request(self, request: Request) -> Response:
        """Ends a running request; its blocks are free within one step. One that has ended is told as it is."""
        request_id = request.path_params["request_id"]
        answers = self.records.find_running(request_id)
        if answers is not None:
            answers.cancel(CancelCause.DELETED)
        return JSONResponse(self._record(request_id))

    def _record(self, request_id: str) -> dict[str, Any]:
        record = self.records.find(request_id)
        if record is None:
            raise ApiError(
                f"no request {request_id[:64]!r} runs here or is among the last {self._limits.max_kept_requests}",
                status=404,
                code="request_not_found",
            )
        return record

    # Tokens

    async def tokenize(self, request: Request) -> Response:
        return await self._text_route(request, self._tokenized)

    async def detokenize(self, request: Request) -> Response:
        return await self._text_route(request, self._detokenized)

    async def _text_route(self, request: Request, reply: Callable[[bytes], dict[str, Any]]) -> Response:
        body = await read_body(request, self._limits)
        return JSONResponse(await asyncio.to_thread(reply, body))

    def _tokenized(self, body: bytes) -> dict[str, Any]:
        wish = read_tokenize(parse_object(body), models=self._names)
        try:
            token_ids = self._model.encode(wish.prompt)
        except Exception as error:
            raise self._told(error, prompt_field=wish.field) from error
        reply: dict[str, Any] = {"tokens": token_ids, "count": len(token_ids), "max_model_len": self._model.context}
        if wish.wants_texts:
            reply["token_strs"] = [self._model.token_text(token_id) for token_id in token_ids]
        return reply

    def _detokenized(self, body: bytes) -> dict[str, Any]:
        token_ids = read_detokenize(parse_object(body), models=self._names)
        try:
            return {"prompt": self._model.decode(token_ids)}
        except Exception as error:
            raise self._told(error, prompt_field="tokens") from error


class OpenAIApi:
    """OpenAI's way to ask for answers, of one of its two routes."""

    stream_type = "text/event-stream"

    def __init__(self, models: Sequence[str], limits: LimitsConfig, *, is_chat: bool) -> None:
        self.id_prefix = "chatcmpl" if is_chat else "cmpl"
        self._models = models
        self._limits = limits
        self._is_chat = is_chat

    def read(self, body: bytes, model: ServedModel) -> Wish:
        return read_wish(
            parse_object(body),
            is_chat=self._is_chat,
            models=self._models,
            limits=self._limits,
            defaults=model.default_params,
        )

    def fitted(self, wish: Wish, model: ServedModel) -> Wish:
        return wish

    def whole(self, wish: Wish, answers: Answers, model: ServedModel) -> Reply:
        return Reply(wish, answers, model=model)

    def stream(self, wish: Wish, answers: Answers, model: ServedModel) -> EventStream:
        return EventStream(wish, answers, model=model, limits=self._limits)


def _closing() -> ApiError:
    return ApiError(
        "the server is closing: ask again later or elsewhere",
        status=503,
        code="closing",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def _stalled() -> ApiError:
    return ApiError(
        "the engine does not answer, see the server's log: ask again later or elsewhere",
        status=503,
        code="stalled",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )
