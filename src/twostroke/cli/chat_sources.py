"""Who answers in a chat: a model loaded here, or one behind a server. Both show it as it comes.

Ctrl-C while one answers ends that answer alone and keeps its text.
"""

import asyncio
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from twostroke.chat.answer import Content, Piece, Reasoning
from twostroke.chat.answer_format import AnswerFormat
from twostroke.chat.reader import AnswerReader
from twostroke.cli.answer import OnInterrupt, cancel_on_interrupt, follow
from twostroke.cli.interrupts import interrupt
from twostroke.cli.run import peaks_of
from twostroke.config import Config
from twostroke.core.event import Event
from twostroke.core.ledger import Ledger, Part, Stall, StallKind
from twostroke.core.sequence import FinishReason
from twostroke.errors import RemoteError, RequestError
from twostroke.traffic.event_stream import DONE, EventDecoder, read_chunk
from twostroke.traffic.http_client import Address, HttpClient, Reply
from twostroke.traffic.outcome import Outcome
from twostroke.traffic.server import first_model
from twostroke.view import quantity
from twostroke.view.phase_report import ledger_lines, phase_report_lines

if TYPE_CHECKING:
    from twostroke.handle import Handle
    from twostroke.llm import LLM

Messages = Sequence[Mapping[str, str]]
Show = Callable[[Piece], None]  # one more piece of the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """One answer as a chat needs it. `reason` is stop, length, cancelled or another word of a server."""

    text: str  # without what was thought
    reason: str
    num_tokens: int
    phases: Callable[[], list[str]]  # the report, made when somebody asks


class Source(Protocol):
    """Who answers."""

    @property
    def name(self) -> str: ...
    def default(self, setting: str) -> Any:
        """What a setting is where nothing is set; None where that is the server's business."""

    def answer(self, messages: Messages, settings: Mapping[str, Any], show: Show) -> Spoken:
        """Raises a TwostrokeError for what gives no answer."""


class LoadedSource:
    """A model in this process."""

    def __init__(self, llm: "LLM", config: Config, *, on_interrupt: OnInterrupt = cancel_on_interrupt) -> None:
        self._llm = llm
        self._config = config
        self._on_interrupt = on_interrupt

    @property
    def name(self) -> str:
        return self._llm.model_name

    def default(self, setting: str) -> Any:
        return getattr(self._llm.default_params, setting)

    def answer(self, messages: Messages, settings: Mapping[str, Any], show: Show) -> Spoken:
        params = dataclasses.replace(self._llm.default_params, **settings)
        reader = AnswerReader(AnswerFormat())

        def submit(on_event: Callable[[Event], None]) -> "Handle":
            nonlocal reader
            handle = self._llm.submit(messages, params, on_event=on_event)
            reader = handle.new_reader()
            return handle

        def write(text: str) -> None:
            for piece in reader.feed(text):
                show(piece)

        result = follow(submit, write, on_interrupt=self._on_interrupt)
        for piece in reader.end():
            show(piece)
        if result.finish_reason is FinishReason.ERROR:
            raise RequestError(f"the answer failed: {result.error}")
        assert result.answer is not None, "a conversation was asked"

        def phases() -> list[str]:
            with self._on_interrupt(interrupt):  # the machine may have to be measured first
                report = self._llm.report(result, peaks_of(self._llm, result, self._config))
                return phase_report_lines(result, report, with_seed=params.is_drawn)

        return Spoken(
            text=result.answer.content,
            reason=result.finish_reason.value,
            num_tokens=len(result.token_ids),
            phases=phases,
        )


class RemoteSource:
    """A model behind an OpenAI-compatible server; one of ours tells its ledger too."""

    def __init__(
        self, make_client: Callable[[], HttpClient], *, model: str, on_interrupt: OnInterrupt = cancel_on_interrupt
    ) -> None:
        self._make_client = make_client
        self._on_interrupt = on_interrupt
        self._model = model
        self._tells_ledgers = True  # until it refuses

    @property
    def name(self) -> str:
        return self._model

    def default(self, setting: str) -> Any:
        return None

    def answer(self, messages: Messages, settings: Mapping[str, Any], show: Show) -> Spoken:
        asked = {"model": self._model, "messages": list(messages), "stream": True, **settings}
        said = _Said()
        try:
            asyncio.run(self._ask_until_interrupted(asked, said, show))
        except (KeyboardInterrupt, asyncio.CancelledError):
            said.outcome.finish_reason = FinishReason.CANCELLED.value
        return said.spoken()

    async def _ask_until_interrupted(self, asked: dict[str, Any], said: "_Said", show: Show) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)  # wakes a loop that waits

        with self._on_interrupt(cancel):
            if not await self._ask(asked, said, show):
                await self._ask(asked, said, show)

    async def _ask(self, asked: dict[str, Any], said: "_Said", show: Show) -> bool:
        """Whether the server took the request; False where it may take it without the wish for a ledger."""
        extra = {"ledger": True, "stream_options": {"include_usage": True}} if self._tells_ledgers else {}
        body = json.dumps(asked | extra).encode()
        client = self._make_client()
        said.outcome.sent_s = client.clock.now()
        try:
            async with client.ask("POST", "/v1/chat/completions", body) as reply:
                if reply.status == 200:
                    await _read(reply, said, show)
                    return True
                problem = await reply.problem()
                if reply.status == 400 and self._tells_ledgers and "ledger" in problem:
                    self._tells_ledgers = False
                    return False
                raise RemoteError(problem, kind=f"http {reply.status}")
        finally:
            said.outcome.end_s = client.clock.now()
            await client.close()


def remote_source(
    url: str, *, model: str | None, api_key: str | None, on_interrupt: OnInterrupt = cancel_on_interrupt
) -> RemoteSource:
    """The model of that name behind an address, or the first one there.

    Whether a server answers to a name is known by its answer alone: some answer to any, whatever they list.

    Raises ConfigError, and RemoteError where no model is named and the server lists none.
    """
    address = Address.of(url)

    def make_client() -> HttpClient:
        return HttpClient(address, api_key=api_key)

    async def first() -> str:
        client = make_client()
        try:
            return (await first_model(client))[0]
        finally:
            await client.close()

    found = asyncio.run(first()) if model is None else model
    return RemoteSource(make_client, model=found, on_interrupt=on_interrupt)


class _Said:
    """An answer of a server as it grows."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.outcome = Outcome(place=0, wanted_prompt=0, wanted_output=0)
        self.ledger: dict[str, Any] | None = None

    def spoken(self) -> Spoken:
        reason = self.outcome.finish_reason or "no reason told"
        return Spoken(text="".join(self.texts), reason=reason, num_tokens=self.outcome.num_tokens, phases=self.phases)

    def phases(self) -> list[str]:
        one = self.outcome
        tokens = f"{one.num_tokens} answer tokens" if one.prompt_tokens is None else _counts(one)
        times = f"TTFT {quantity.duration(one.ttft_s)}, TPOT {quantity.duration(one.tpot_s)}"
        lines = [f"{'client':<9}{times}, E2E {quantity.duration(one.e2e_s)}; {tokens}"]
        if self.ledger is None:
            return [*lines, f"{'server':<9}tells no ledger"]
        ledger = ledger_of(self.ledger)
        return lines + ledger_lines("server", ledger.total_s, ledger)


def _counts(one: Outcome) -> str:
    cached = "" if one.cached_tokens is None else f" ({one.cached_tokens} cached)"
    return f"{one.prompt_tokens} prompt tokens{cached}, {one.num_tokens} answer tokens"


async def _read(reply: Reply, said: _Said, show: Show) -> None:
    decoder, is_done = EventDecoder(), False
    async for time_s, data in reply.pieces():
        for event in decoder.feed(data):
            if event == DONE:
                is_done = True
                continue
            chunk = read_chunk(event)
            said.outcome.take(time_s, chunk)
            said.ledger = chunk.ledger or said.ledger
            if chunk.reasoning:
                show(Reasoning(chunk.reasoning))
            if chunk.text:
                said.texts.append(chunk.text)
                show(Content(chunk.text))
    if not is_done and said.outcome.finish_reason is None:
        raise RemoteError("the answer broke off: the server closed the connection", kind="stream cut")


def ledger_of(told: Mapping[str, Any]) -> Ledger:
    """A ledger from its JSON. Raises RemoteError for one with parts nobody knows."""
    try:
        parts = {Part(name): float(time_s) for name, time_s in told.items() if name != "stall"}
        stalls = tuple(
            Stall(StallKind(each["kind"]), float(each["time_s"]), each["request_id"]) for each in told.get("stall", ())
        )
    except (ValueError, TypeError, KeyError) as error:
        raise RemoteError(f"the server's ledger is of another kind: {error}", kind="no ledger") from None
    return Ledger(parts, stalls)
