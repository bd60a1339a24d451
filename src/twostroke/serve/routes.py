"""The routes that answer, of every API, and those of requests by id.

Registered by `app.create_app`. Everything that can fail on input fails before a stream's first byte.
"""

import asyncio
import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twostroke.core.clock import WallClock
from twostroke.serve.answer_api import AnswerApi, WishT
from twostroke.serve.answers import Answers, CancelCause, EventBridge
from twostroke.serve.api_error import ApiError, error_response
from twostroke.serve.body import ARRIVAL, parse_object, read_body
from twostroke.serve.delivery import DeliveredReply
from twostroke.serve.disconnect import watching
from twostroke.serve.embeddings import EmbeddingsApi
from twostroke.serve.json_body import MANY_ANSWERS, json_body
from twostroke.serve.json_log import log_end
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.metrics import ServerMetrics
from twostroke.serve.model_registry import ModelRegistry, ModelUse
from twostroke.serve.model_slot import ModelSlot
from twostroke.serve.openai import Wish, read_wish
from twostroke.serve.records import RequestRecords
from twostroke.serve.replies import Reply
from twostroke.serve.served_model import ServedModel
from twostroke.serve.sse import EventStream, StreamedReply
from twostroke.serve.told import known_model, names_and_defaults, told

RETRY_AFTER_S = 1  # a place in the queue comes free with every answer that ends
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Routes:
    """Requests on their way: taken, given their model, answered, cancelled."""

    def __init__(self, models: ModelRegistry, *, limits: LimitsConfig) -> None:
        self.records = RequestRecords(max_kept=limits.max_kept_requests, max_bytes=limits.max_kept_bytes)
        self.metrics = ServerMetrics()
        self.is_draining = False
        self.at_close: list[Callable[[], None]] = []  # called when no time is left
        self._models = models
        self._limits = limits
        self._clock = WallClock()  # every model's engine has the same
        self._bridge: EventBridge | None = None
        self._num_beside = 0  # requests that ask for no answer

    # Answers

    async def chat_completions(self, request: Request) -> Response:
        return await self.answer(request, OpenAIApi(self._limits, is_chat=True))

    async def completions(self, request: Request) -> Response:
        return await self.answer(request, OpenAIApi(self._limits, is_chat=False))

    async def openai_embeddings(self, request: Request) -> Response:
        return await self.answer(request, EmbeddingsApi(self._limits))

    async def answer(
        self, request: Request, api: AnswerApi[WishT], *, told_unasked: Callable[[WishT], dict[str, Any]] | None = None
    ) -> Response:
        """Answer a request of any API, or tell why not. Raises ApiError before the first byte is sent.

        `told_unasked` is the reply to a wish without prompts, of an API that has such: its model is only loaded, or
        unloaded where it should stay for no time.
        """
        try:
            return await self._answer_taken(request, api, told_unasked)
        except ApiError as error:
            self.metrics.observe_refusal(error)
            raise

    async def _answer_taken(
        self, request: Request, api: AnswerApi[WishT], told_unasked: Callable[[WishT], dict[str, Any]] | None
    ) -> Response:
        request_id = self._request_id(request, prefix=api.id_prefix)
        self.refuse_beyond_limit()
        if self._bridge_here().num_unread >= self._limits.max_open_requests:
            await self.booked()  # requests that end faster than their ledgers are read would pile up
        answers = Answers(
            request_id=request_id,
            max_pending=self._limits.max_pending_events,
            bridge=self._bridge_here(),
            book_observers=[self.records.observe_books, log_end],
        )
        self.records.open(answers)  # while its body is read and its model loaded too: it holds a place
        try:
            body = await read_body(request, self._limits)
            arrival_s = request.scope.get("state", {}).get(ARRIVAL, self._clock.now())
            wish, slot = await asyncio.to_thread(self._read, body, api)  # seconds, for a hostile body
            if slot.watchdog.is_stalled:
                raise stalled()
            if not wish.prompts and wish.keep_alive_s == 0:
                use = None
                await self._models.unload(slot)
            else:
                use = await self._take(request, wish, slot, answers, arrival_s=arrival_s)
        except BaseException:
            self._refuse(answers)
            raise
        if use is not None and wish.prompts:
            return await self._answer_with(request, wish, answers, api, use=use, arrival_s=arrival_s)
        self._refuse(answers)  # nothing was asked, nothing will end
        if use is not None:
            use.end()
        assert told_unasked is not None, "this API has no wish without prompts"
        return JSONResponse(told_unasked(wish), headers={"X-Request-Id": request_id})

    def _read(self, body: bytes, api: AnswerApi[WishT]) -> tuple[WishT, ModelSlot]:
        wish = api.read(body, self._models)
        return wish, known_model(wish.model, self._models)

    async def _take(
        self, request: Request, wish: WishT, slot: ModelSlot, answers: Answers, *, arrival_s: float
    ) -> ModelUse:
        """The model, loaded: the wait for it ends with the request."""
        if wish.timeout_s is not None:
            answers.limit_time(wish.timeout_s, arrival_s=arrival_s, now=self._clock.now)
        take = self._models.take(slot, keep_alive_s=wish.keep_alive_s)
        if slot.model is not None:
            return await take
        async with answers.cancelled_when_client_leaves(request.receive):
            return await answers.unless_cancelled(take)

    def _refuse(self, answers: Answers) -> None:
        self.records.close(answers)
        answers.stop_clock()
        answers.end_unbegun()

    async def _answer_with(
        self,
        request: Request,
        wish: WishT,
        answers: Answers,
        api: AnswerApi[WishT],
        *,
        use: ModelUse,
        arrival_s: float,
    ) -> Response:
        answers.observe(use.slot.metrics.observe)
        answers.observe_end(lambda _: use.end())
        try:
            async with watching(request.receive, lambda: answers.cancel(CancelCause.CLIENT_LEFT)):
                wish = await self._start(wish, answers, api, use=use, arrival_s=arrival_s)
            use.slot.watchdog.watch(answers, stall_s=self._limits.stall_s)
        except BaseException:
            self._refuse(answers)
            use.end()
            raise
        headers = {"X-Request-Id": str(answers.request_id)}
        if wish.is_stream:
            stream = api.stream(wish, answers, use.model)
            assert stream is not None, "an API whose replies come whole reads no wish for a stream"
            reply: Response = StreamedReply(stream, answers, media_type=api.stream_type, headers=headers)
            return self._delivered(reply, answers, use.slot)
        try:
            body = await self._whole(request, wish, answers, api, use=use)
            reply = Response(body, media_type="application/json", headers=headers)
        except ApiError as error:
            self.metrics.observe_refusal(error)
            reply = error_response(error, path=request.url.path)
        return self._delivered(reply, answers, use.slot)

    def _delivered(self, reply: Response, answers: Answers, slot: ModelSlot) -> Response:
        def note_sent(answers: Answers, waited_s: float) -> None:
            self.records.observe_sent(answers)
            slot.metrics.observe_sent(answers, waited_s)

        return DeliveredReply(reply, answers, now=self._clock.now, on_sent=note_sent)

    async def _start(
        self, wish: WishT, answers: Answers, api: AnswerApi[WishT], *, use: ModelUse, arrival_s: float
    ) -> WishT:
        def tell(error: Exception) -> Exception:
            fields = {"prompt_field": wish.prompt_field, "structure_field": wish.structure_field}
            return told(error, use.slot, **fields)

        try:
            wish = await asyncio.to_thread(api.fitted, wish, use.model)
            await answers.submit(
                use.model,
                wish.prompts,
                wish.params,
                arrival_s=arrival_s,
                num_choices=wish.num_choices,
                salt=wish.salt,
                load_s=use.load_s,
                wants_ledger=wish.wants_ledger,
                told=tell,
            )
        except ApiError:
            raise
        except Exception as error:
            raise tell(error) from error
        return wish

    async def _whole(
        self, request: Request, wish: WishT, answers: Answers, api: AnswerApi[WishT], *, use: ModelUse
    ) -> bytes:
        reply = api.whole(wish, answers, use.model)
        async with answers.cancelled_when_client_leaves(request.receive):
            async for index, event in answers.events():
                reply.take(index, event)
        if len(answers.asked) < MANY_ANSWERS:
            return json_body(reply.whole())
        return await asyncio.to_thread(lambda: json_body(reply.whole()))

    async def booked(self) -> None:
        """Wait until what has ended is in the records and the metrics, as long as a look at the engine may take."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.answer_s):
                await self._bridge_here().booked()

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
        running = self.records.find_running(wished)
        if running is not None and not running.has_ended:
            raise ApiError(f"X-Request-Id is {wished}: a running request has it, take another")
        return wished

    def refuse_beyond_limit(self) -> None:
        """Raises ApiError where no more requests are taken."""
        self.refuse_while_draining()
        limit = self._limits.max_open_requests
        if len(self.records) + self._num_beside >= limit:
            raise ApiError(
                f"{limit} requests run or wait: the limit is {limit}, ask again later",
                status=429,
                code="queue_full",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A request that asks for no answer holds a place too, for its body and for a model that is loaded for it.

        Raises what `refuse_beyond_limit` raises.
        """
        try:
            self.refuse_beyond_limit()
        except ApiError as error:
            self.metrics.observe_refusal(error)
            raise
        self._num_beside += 1
        try:
            yield
        finally:
            self._num_beside -= 1

    def refuse_while_draining(self) -> None:
        if self.is_draining:
            raise _closing()

    def cancel_all(self) -> None:
        """End every running answer; their clients get what there is and an error. Downloads end too."""
        for end in self.at_close:
            end()
        for answers in self.records.running:
            answers.cancel(CancelCause.CLOSING)

    # Requests by id

    async def request_record(self, request: Request) -> Response:
        return JSONResponse(await self._record(request.path_params["request_id"]))

    async def cancel_request(self, request: Request) -> Response:
        """Ends a running request; its blocks are free within one step. One that has ended is told as it is."""
        request_id = request.path_params["request_id"]
        answers = self.records.find_running(request_id)
        if answers is not None:
            answers.cancel(CancelCause.DELETED)
        return JSONResponse(await self._record(request_id))

    async def _record(self, request_id: str) -> dict[str, Any]:
        await self.booked()
        record = self.records.find(request_id)
        if record is None:
            raise ApiError(
                f"no request {request_id[:64]!r} runs here or is among the last that are kept: "
                f"{self._limits.max_kept_requests} at the most, of {self._limits.max_kept_bytes} bytes together",
                status=404,
                code="request_not_found",
            )
        return record


class OpenAIApi:
    """OpenAI's way to ask for answers, of one of its two routes."""

    stream_type = "text/event-stream"

    def __init__(self, limits: LimitsConfig, *, is_chat: bool) -> None:
        self.id_prefix = "chatcmpl" if is_chat else "cmpl"
        self._limits = limits
        self._is_chat = is_chat

    def read(self, body: bytes, models: ModelRegistry) -> Wish:
        fields = parse_object(body)
        names, defaults = names_and_defaults(fields.get("model"), models)
        return read_wish(fields, is_chat=self._is_chat, models=names, limits=self._limits, defaults=defaults)

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
        headers={"Retry-After": str(RETRY_AFTER_S), "Connection": "close"},
    )


def stalled() -> ApiError:
    """Of an engine that makes no more steps."""
    return ApiError(
        "the engine does not answer, see the server's log: ask again later or elsewhere",
        status=503,
        code="stalled",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )
