"""A scripted stand-in for a loaded model, in front of which the real app runs; and the app's client."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from twostroke.chat.answer_format import AnswerFormat
from twostroke.chat.chat import Chat
from twostroke.chat.reader import AnswerReader
from twostroke.core.account import Account, StepRecord
from twostroke.core.event import Beam, Event, FinishEvent, KVUsage, Timing, TokenEvent, Usage
from twostroke.core.ledger import Ledger
from twostroke.core.peaks import Peaks
from twostroke.core.sequence import FinishReason
from twostroke.core.snapshot import Snapshot
from twostroke.core.step import ScoredToken, TokenLogprob
from twostroke.embedding import EmbeddingParams
from twostroke.footprint import Footprint
from twostroke.model.facts import ModelFacts, TensorFacts
from twostroke.model.packaged_fetch import OnProgress
from twostroke.model.shelf import Shelf
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers
from twostroke.serve.app import create_app
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelEntry, served_name
from twostroke.serve.served_model import ServedModel

MODEL = "scripted:1m"
END = 999


class ScriptedHandle:
    def __init__(self, request_id: str, *, num_prompt_tokens: int) -> None:
        self.request_id = request_id
        self.num_prompt_tokens = num_prompt_tokens
        self.prompt_token_ids = tuple(range(100, 100 + num_prompt_tokens))
        self.is_cancelled = threading.Event()
        self.new_reader: Callable[[], AnswerReader] = lambda: AnswerReader(AnswerFormat())

    def cancel(self) -> None:
        self.is_cancelled.set()


class ScriptedModel:
    """Says `pieces` to every prompt, one token each, from a thread of its own like an engine does.

    `refuse` is raised by submit; `reason` and `error` are how an answer ends that was not cut by
    max_tokens; `pause_s` is slept before each token.
    """

    def __init__(
        self,
        pieces: Sequence[str] = ("Hel", "lo", "!"),
        *,
        rest: str = "",
        refuse: Exception | None = None,
        reason: FinishReason = FinishReason.STOP,
        error: str | None = None,
        stop_reason: str | int | None = None,
        beams: Sequence[Beam] = (),
        pause_s: float = 0.0,
        name: str = MODEL,
        default_params: SamplingParams | None = None,
    ) -> None:
        self.model_name = name
        self.default_params = default_params or SamplingParams()
        self.pieces = tuple(pieces)
        self.rest = rest
        self.refuse = refuse
        self.reason = reason
        self.error = error
        self.stop_reason = stop_reason
        self.beams = tuple(beams)
        self.pause_s = pause_s
        self.prompts: list[Any] = []
        self.chats: list[Chat] = []
        self.new_reader: Callable[[], AnswerReader] = lambda: AnswerReader(AnswerFormat())
        self.params: list[SamplingParams] = []
        self.embedding_params: list[EmbeddingParams] = []
        self.arrivals: list[float | None] = []
        self.salts: list[str] = []
        self.choice_indices: list[int] = []
        self.load_s: list[float] = []
        self.context = 4096
        self.fingerprint = "scripted"
        self.kv_bytes = 0
        self.is_closed = False
        self.handles: list[ScriptedHandle] = []
        self.num_running = 0
        self.step_observers: list[Callable[[StepRecord], None]] = []
        self._lock = threading.Lock()

    def now(self) -> float:
        return time.perf_counter()

    def snapshot(self) -> Snapshot:
        return Snapshot(
            num_running=self.num_running,
            num_waiting=0,
            num_preemptions=0,
            blocks_free=8 - self.num_running,
            blocks_cached=0,
            blocks_held=self.num_running,
            blocks_total=8,
            prefix_queries=0,
            prefix_hits=0,
        )

    def submit(
        self,
        prompt: Any,
        params: SamplingParams | EmbeddingParams | None = None,
        *,
        on_event: Callable[[Event], None] | None = None,
        arrival_s: float | None = None,
        request_id: str | None = None,
        choice_index: int = 0,
        salt: str = "",
        load_s: float = 0.0,
    ) -> ScriptedHandle:
        if self.refuse is not None:
            raise self.refuse
        assert params is not None
        assert on_event is not None
        with self._lock:
            name = request_id or f"r{len(self.handles) + 1}"
            prompt = self._plain(prompt)
            handle = ScriptedHandle(name, num_prompt_tokens=len(prompt))
            handle.new_reader = self.new_reader
            self.salts.append(salt)
            self.choice_indices.append(choice_index)
            self.load_s.append(load_s)
            self.prompts.append(prompt)
            if isinstance(params, EmbeddingParams):
                self.embedding_params.append(params)
            else:
                self.params.append(params)
            self.arrivals.append(arrival_s)
            self.handles.append(handle)
            self.num_running += 1
        act = self._embed if isinstance(params, EmbeddingParams) else self._speak
        threading.Thread(target=act, args=(name, prompt, params, on_event, handle), daemon=True).start()
        return handle

    def close(self) -> None:
        self.is_closed = True

    def _plain(self, prompt: Any) -> Any:
        """A chat's messages; what goes beside them is kept in `chats`."""
        if not isinstance(prompt, Chat):
            return prompt
        self.chats.append(prompt)
        return prompt.messages

    def use_of(self, steps: Sequence[StepRecord], peaks: Peaks) -> tuple[float, float]:
        """Made up of how many there are."""
        return len(steps) / 100, len(steps) / 10

    def observe_steps(self, observer: Callable[[StepRecord], None]) -> None:
        self.step_observers.append(observer)

    def encode(self, prompt: Any, *, after: Sequence[int] = ()) -> list[int]:
        """A token is a byte of the text, or of what the messages say."""
        if self.refuse is not None:
            raise self.refuse
        prompt = self._plain(prompt)
        text = prompt if isinstance(prompt, str) else "".join(message["content"] for message in prompt)
        return [*after, *text.encode()]

    def decode(self, token_ids: Sequence[int]) -> str:
        if self.refuse is not None:
            raise self.refuse
        return bytes(token_ids).decode()

    def token_bytes(self, token_id: int) -> bytes | None:
        """Of the token said as number `token_id`; there is one control token, END."""
        if token_id == END:
            return None
        return self.pieces[token_id].encode() if token_id < len(self.pieces) else bytes([token_id])

    def token_text(self, token_id: int) -> str:
        return (self.token_bytes(token_id) or b"<end>").decode("utf-8", "replace")

    def progress(self, request_id: str) -> int | None:
        return 1 if self.num_running else None

    def _embed(
        self,
        request_id: str,
        prompt: Any,
        params: EmbeddingParams,
        on_event: Callable[[Event], None],
        handle: ScriptedHandle,
    ) -> None:
        """The vector of a prompt is its length and a half."""
        is_cancelled = handle.is_cancelled.wait(self.pause_s)
        with self._lock:
            self.num_running -= 1
        usage = Usage(prompt_tokens=len(prompt), cached_tokens=0, completion_tokens=0)
        finish = make_finish(
            request_id, reason=FinishReason.CANCELLED if is_cancelled else self.reason, usage=usage, error=self.error
        )
        on_event(dataclasses.replace(finish, embedding=np.array([len(prompt), 0.5], "<f4").tobytes()))

    def _speak(
        self,
        request_id: str,
        prompt: Any,
        params: SamplingParams,
        on_event: Callable[[Event], None],
        handle: ScriptedHandle,
    ) -> None:
        num_said, reason = 0, self.reason
        scores = self._scores(prompt, params)
        for token_id, piece in enumerate(self.pieces):
            if num_said == params.max_tokens:
                reason = FinishReason.LENGTH
                break
            if handle.is_cancelled.wait(self.pause_s):
                reason = FinishReason.CANCELLED
                break
            on_event(dataclasses.replace(self._token(request_id, token_id, piece, params), prompt_logprobs=scores))
            num_said, scores = num_said + 1, ()
        with self._lock:
            self.num_running -= 1
        usage = Usage(prompt_tokens=len(prompt), cached_tokens=1, completion_tokens=num_said)
        error = self.error if reason is FinishReason.ERROR else None
        finish = make_finish(request_id, reason=reason, text=self.rest, usage=usage, error=error)
        beams = self.beams[: params.beam.num_return] if params.beam is not None else ()
        on_event(dataclasses.replace(finish, stop_reason=self.stop_reason, prompt_logprobs=scores, beams=beams))

    def _scores(self, prompt: Any, params: SamplingParams) -> tuple[ScoredToken, ...]:
        """Token i of the prompt, a byte each, has log-probability -i and rank i + 1 where they are asked for."""
        if params.prompt_logprobs is None:
            return ()
        first, *others = self.encode(prompt) if not isinstance(prompt, list) else prompt
        best = tuple(TokenLogprob(200 + index, -0.5 - index) for index in range(params.prompt_logprobs))
        scored = [ScoredToken(token_id, -float(place), place + 1, best) for place, token_id in enumerate(others, 1)]
        return (ScoredToken(first), *scored)

    def _token(self, request_id: str, token_id: int, piece: str, params: SamplingParams) -> TokenEvent:
        if params.logprobs is None:
            return TokenEvent(request_id, token_id, piece, self.now())
        best = tuple(TokenLogprob(index, -0.5 - index) for index in range(params.logprobs))
        return TokenEvent(request_id, token_id, piece, self.now(), logprob=-0.5 - token_id, top_logprobs=best)


def make_facts(**metadata: Any) -> ModelFacts:
    return ModelFacts(
        format="gguf",
        architecture="llama",
        num_parameters=1_234_567,
        quantisation="Q4_K_M",
        num_bytes=1_000_000,
        modified_s=1_700_000_000.5,
        digest="ab" * 32,
        template="{{ messages }}",
        metadata={"general.license": "apache-2.0", "llama.context_length": 4096, **metadata},
        tensors=(TensorFacts(name="token_embd.weight", tensor_type="F32", shape=(8, 4)),),
    )


class ScriptedShelf(Shelf):
    """Has the models of `fetched`, fetches in steps of 10 of 30 bytes; `refuse` is raised instead.

    Between two steps it waits for `may_go_on`, where one is given.
    """

    def __init__(
        self, *, refuse: Exception | None = None, may_go_on: threading.Semaphore | None = None, says_total: bool = True
    ) -> None:
        super().__init__(Path("/nowhere"))
        self.deleted: list[str] = []
        self.outcome: list[str] = []
        self.is_fetching = threading.Event()
        self._refuse = refuse
        self._may_go_on = may_go_on
        self._says_total = says_total

    def pull(self, name: str, *, on_progress: OnProgress) -> None:
        if self._refuse is not None:
            raise self._refuse
        try:
            for done in (10, 20, 30):
                self.is_fetching.set()
                on_progress(done, 30 if self._says_total else None)
                if self._may_go_on is not None:
                    assert self._may_go_on.acquire(timeout=10)
        except Exception:
            self.outcome.append("cancelled")
            raise
        self.outcome.append(f"fetched {name}")

    def delete(self, name: str) -> None:
        if self._refuse is not None:
            raise self._refuse
        self.deleted.append(name)


def make_finish(
    request_id: str, *, reason: FinishReason, text: str = "", usage: Usage, error: str | None = None
) -> FinishEvent:
    return FinishEvent(
        request_id=request_id,
        reason=reason,
        text=text,
        usage=usage,
        timing=Timing(ttft_s=0.1, tpot_s=0.1, e2e_s=0.2, first_text_s=0.1),
        kv=KVUsage(tokens=4, bytes=64, blocks=1, waste_ratio=0.0),
        account=Account(request_id=request_id, arrival_s=0.0, before={}, finish_s=0.2),
        seed=1,
        error=error,
    )


def take_end(answers: Answers, finish: FinishEvent, *, index: int = 0, ledger: Ledger | None = None) -> None:
    """A finish and its ledger, at once."""
    answers.take(index, finish)
    answers.take_ledger(index, finish.account.read() if ledger is None else ledger)


class ScriptedLoader:
    """Has models by their sources; `needs` are bytes of weights, `failures` are raised by the next loads."""

    def __init__(self, models: Mapping[str, ServedModel], *, needs: Mapping[str, int] | None = None) -> None:
        self.models = dict(models)
        self.needs = dict(needs or {})
        self.failures: list[Exception] = []
        self.known_peaks: Peaks | None = None
        self.loads: list[str] = []
        self.given_bytes: list[int] = []
        self.gate = threading.Event()  # loads wait for it
        self.gate.set()

    def footprint(self, source: str) -> Footprint:
        return Footprint(weight_bytes=self.needs.get(source, 0), kv_bytes=0, context=16)

    def load(self, source: str, *, memory_bytes: int) -> ServedModel:
        self.loads.append(source)
        self.given_bytes.append(memory_bytes)
        assert self.gate.wait(10)
        if self.failures:
            raise self.failures.pop(0)
        return self.models[source]

    def peaks(self, model: ServedModel) -> Peaks | None:
        return self.known_peaks

    def default_params(self, source: str) -> SamplingParams:
        return self.models[source].default_params

    def facts(self, source: str, *, with_arrays: bool = False) -> ModelFacts:
        return make_facts(**{"tokenizer.ggml.tokens": [source] if with_arrays else None})


def registry_of(model: ServedModel, *, aliases: Sequence[str] = ()) -> ModelRegistry:
    """One model, loaded, that stays."""
    source = str(model.model_name)
    models = ModelRegistry(
        [ModelEntry((served_name(source), *aliases), source)],
        loader=ScriptedLoader({source: model}),
        free_bytes=lambda: 0,
    )
    models.load_first()
    return models


def make_chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}


def make_completion(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "hi", **fields}


@contextmanager
def client_of(
    model: ScriptedModel | ModelRegistry | None = None,
    *,
    aliases: Sequence[str] = (),
    limits: LimitsConfig | None = None,
    **options: Any,
) -> Iterator[TestClient]:
    models = model if isinstance(model, ModelRegistry) else registry_of(model or ScriptedModel(), aliases=aliases)
    app = create_app(models, limits=limits, **options)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def events_of(text: str) -> list[str]:
    """The data of each event; anything else on the wire is a mistake."""
    blocks = text.split("\n\n")
    assert blocks[-1] == ""
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks[:-1])
    return [block.removeprefix("data: ") for block in blocks[:-1]]


def error_of(response: Any) -> Mapping[str, Any]:
    """The error object, checked for its form."""
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: Mapping[str, Any] = body["error"]
    return error
