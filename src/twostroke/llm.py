"""LLM: the one door to a loaded model. The command line and the server go through `submit` too.

Turns wishes into requests on the caller's thread; the engine's thread does the rest.
"""

import itertools
import math
import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from twostroke.chat.chat import Chat
from twostroke.chat.reader import AnswerReader
from twostroke.chat.tools import ToolChoice
from twostroke.chat_prompt import ChatPrompt, ChatPrompts
from twostroke.config import Config, resolve
from twostroke.context_room import ChatShares, counted, shortened, why_no_room
from twostroke.core.account import StepRecord
from twostroke.core.clock import Clock, WallClock
from twostroke.core.event import Event
from twostroke.core.ledger import Part
from twostroke.core.likeliest import MAX_TRIES, Tried, likeliest, same_tries
from twostroke.core.peaks import Peaks
from twostroke.core.pooling import Pooling
from twostroke.core.report import PhaseReport, Result
from twostroke.core.request import Request
from twostroke.core.snapshot import Snapshot
from twostroke.embedding import EmbeddingParams
from twostroke.engine.kv_store import available_memory_bytes
from twostroke.engine.worker import Worker
from twostroke.errors import (
    CapacityError,
    ChatTemplateError,
    ParamsError,
    PromptError,
    QueueFullError,
    RequestError,
    TwostrokeError,
)
from twostroke.handle import EventStream, Handle, ResultCollector
from twostroke.load import ARITHMETIC_VERSION, load_model
from twostroke.model.catalog import DEFAULT_MODEL, model_defaults, resolve_model
from twostroke.model.facts import ModelFacts, read_facts
from twostroke.params import MAX_PROMPT_SCORES, NUM_DRAWN_SEEDS, BeamSearch, SamplingParams
from twostroke.phase_use import peak_seconds, phase_report
from twostroke.program.cost import Cost, Row
from twostroke.prompt import Message, Prompt, as_chat, contents_of, is_chat, refuse_lone_surrogates, said_in, several
from twostroke.stop_pattern import compile_patterns
from twostroke.structure import Structure
from twostroke.text.word_ids import WordIds

MAX_CHOICE_INDEX = 2**32 - 1  # a word of the noise's counter
if TYPE_CHECKING:
    from twostroke.sample.grammar import Grammar, GrammarCompiler

SYSTEM_ROLES = ("system", "developer")
READING = SamplingParams(max_tokens=1, ignore_eos=True)  # of a request that has no answer


class LLM:
    """A loaded model, ready to answer. Thread-safe; a context manager that frees everything at its end.

    model: a name of the catalog, `hf:ORG/REPO[:FILE]`, `ollama:NAME[:TAG]` or a path.
    threads: worker threads; by default what the dyno found best, else one per usable core.
    context: longest prompt + answer in tokens; the model's own, or what fits in memory, by default.
    kv: precision of the KV cache, "bf16" (default), "f16", "f32" or "int8" (half the bytes of bf16).
    speculate: "ngram" drafts tokens from what prompt and answer have said before and verifies several per step;
        the answer is the same, only faster where text repeats.
    draft_model: a smaller model of the same vocabulary that guesses tokens where the text itself gives no good guess;
        again the answer is the same. It is not asked where its steps should cost more than they save.
    memory_bytes: most that weights and KV cache may take together; what is free by default.

    Params that are given are taken as they are; params=None are `default_params`. A conversation without
    a system message gets the one an Ollama model brings. A beam search takes only the limits of them.

    Raises a TwostrokeError that says what does not fit and what would.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        threads: int | None = None,
        context: int | None = None,
        kv: str | None = None,
        speculate: str | None = None,
        draft_model: str | Path | None = None,
        memory_bytes: int | None = None,
        config: Config | None = None,
    ) -> None:
        self._config = config or resolve()
        self._clock: Clock = WallClock()
        self._defaults = model_defaults(str(model), ollama_models=self._config.ollama_models)
        path = self._path_of(model)
        draft_path = None if draft_model is None else self._path_of(draft_model)
        self._loaded = load_model(
            path,
            config=self._config,
            clock=self._clock,
            threads=threads,
            context=context,
            kv=kv,
            speculate=speculate,
            draft_model=draft_path,
            memory_bytes=memory_bytes,
            defaults=self._defaults,
        )
        self._is_context_stated = context is not None
        self.model_name = str(model)
        self.program = self._loaded.program
        self.tokenizer = self._loaded.text.tokenizer
        self._chat_prompts = ChatPrompts(self._loaded.text.chat_template, self.tokenizer)
        self._request_numbers = itertools.count(1)
        self._worker = Worker(self._loaded.engine)
        weakref.finalize(self, self._worker.end).atexit = False  # dropped without close: nobody can ask any more

    def _path_of(self, model: str | Path) -> Path:
        return resolve_model(str(model), home=self._config.home, ollama_models=self._config.ollama_models)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what runs and free the model. May be called twice."""
        self._worker.close()
        self._loaded.close()

    # Facts

    @property
    def default_params(self) -> SamplingParams:
        """What `params=None` means: SamplingParams(), or what an Ollama model's own settings make of it."""
        return self._defaults.params

    @property
    def path(self) -> Path:
        return self._loaded.path

    @property
    def kv_precision(self) -> str:
        return self._loaded.kv.spec.precision

    @property
    def context(self) -> int:
        """Longest prompt + answer, in tokens."""
        return self._loaded.kv.context

    @property
    def threads(self) -> int:
        return self._loaded.threads

    @property
    def isa(self) -> str:
        return self._loaded.reader.isa

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights, as stored, that every step reads."""
        return self._loaded.cost.step([Row(0, 1)]).weight_bytes

    @property
    def kv_bytes(self) -> int:
        """Bytes the KV store may grow to, a draft model's included."""
        return self._loaded.kv.total_bytes + self.draft_kv_bytes

    @property
    def draft_kv_bytes(self) -> int:
        """Bytes of them for the draft model; 0 without one."""
        drafter = self._loaded.drafter
        return 0 if drafter is None else drafter.kv_size.total_bytes

    @property
    def pooling(self) -> Pooling | None:
        """How it makes a vector of a text; None for a model that writes."""
        return self._loaded.pooling

    def check_writes(self) -> None:
        """Raises ParamsError for a model that embeds: it writes no answers, whatever is asked."""
        pooling = self._loaded.pooling
        if pooling is not None:
            raise ParamsError(
                f"{self.model_name} is a model that embeds ({pooling.kind} pooling): it writes no answers; use "
                "LLM.embed, `twostroke embed` or /v1/embeddings",
                field="model",
            )

    @property
    def fingerprint(self) -> str:
        """Names everything an answer's bits depend on beside its request: model, kernels, precision of the cache."""
        return f"{self._loaded.fingerprint[:12]}-{self.isa}-{ARITHMETIC_VERSION}-{self.kv_precision}"

    def facts(self, *, with_arrays: bool = False) -> ModelFacts:
        """What the model's file says about it: sizes, types, metadata; arrays of the metadata where they are wanted."""
        return read_facts(self.path, with_arrays=with_arrays)

    def now(self) -> float:
        """Seconds on the engine's clock, the scale of `arrival_s` and of every event."""
        return self._clock.now()

    def snapshot(self) -> Snapshot:
        """Requests and blocks at this moment."""
        return self._worker.ask(lambda engine: engine.snapshot())

    def observe_steps(self, observer: Callable[[StepRecord], None]) -> None:
        """Tell `observer` every step from now on, on the engine's thread: hand over and return."""
        self._worker.ask(lambda engine: engine.observe_steps(observer))

    # Answers

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        params: SamplingParams | None = None,
    ) -> list[Result]:
        """Answers to one prompt or several, raw text or token ids, no template; always a list, in order.

        Several run in one batch, as many as there may be. Raises RequestError for the first that failed.
        """
        return self._answers(several(prompts), params)

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        reasoning_effort: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
    ) -> Result:
        """The answer to a conversation, rendered with the model's own template; `answer` of the result has its parts.

        tools, tool_choice, parallel_tool_calls, reasoning_effort: as OpenAI's clients write them.
        chat_template_kwargs: what else the template reads, `enable_thinking` for instance.
        continue_final_message: the answer goes on with the last message's text instead of a turn of its own.
        """
        if not is_chat(messages):
            raise PromptError("messages must be a list of at least one message, each with a role", field="messages")
        chat = Chat.read(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            reasoning_effort=reasoning_effort,
            chat_template_kwargs=chat_template_kwargs,
            continue_final_message=continue_final_message,
        )
        return self._answers([chat], params)[0]

    def beam_search(
        self,
        prompt: Prompt,
        beam: BeamSearch | None = None,
        *,
        max_tokens: int | None = None,
        structure: Structure | None = None,
    ) -> Result:
        """The likeliest answers to one prompt: `beams` of the result has them with their scores, best first.

        `beam` None is BeamSearch(), four beams and one answer; `max_tokens` None is that of `default_params`. Where a
        `structure` has fewer answers than were asked for, there are fewer.
        """
        wish = replace(self.default_params.limits(), beam=beam or BeamSearch(), structure=structure)
        if max_tokens is not None:
            wish = replace(wish, max_tokens=max_tokens)
        return self._answers([prompt], wish)[0]

    def best_of(
        self, prompt: Prompt, params: SamplingParams | None = None, *, num_tries: int = 4, num_return: int = 1
    ) -> list[Result]:
        """The `num_return` likeliest answers per token among `num_tries` drawn side by side, best first.

        `logprobs` of `params` is at least 0: the choice is made by them. Tries differ by their choice index, and
        not at temperature 0: ParamsError. They share one seed, with which the same are drawn again.
        """
        for name, value, high in (("num_tries", num_tries, MAX_TRIES), ("num_return", num_return, num_tries)):
            if type(value) is not int or not 1 <= value <= high:
                raise ParamsError(f"{name} is {value!r}: it must be a whole number from 1 to {high}", field=name)
        params = self.default_params if params is None else params
        if why := same_tries("num_tries", num_tries, temperature=params.temperature):
            raise ParamsError(why, field="num_tries")
        params = replace(params.with_seed(), logprobs=params.logprobs or 0)
        tries = self._answers([prompt] * num_tries, params, differ=True)
        known = [Tried(number, _logprob_of(result), len(result.token_ids)) for number, result in enumerate(tries)]
        return [tries[number] for number in likeliest(known, num_told=num_return)]

    def embed(
        self,
        prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        *,
        dimensions: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Vectors of unit length of one text or several, in order: float32 [num_texts, dimensions].

        Pooled from the final states as the model's file says; `dimensions` None is the model's own. Raises ParamsError
        where it does not say, and RequestError for the first that failed.
        """
        results = self._answers(several(prompts), EmbeddingParams(dimensions=dimensions))
        return np.stack([np.frombuffer(result.embedding, "<f4") for result in results])

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> EventStream:
        """Events of one request as they happen, the finish last. Closing or dropping the stream early cancels it."""
        events: SimpleQueue[Event] = SimpleQueue()
        return EventStream(self.submit(prompt, params, on_event=events.put), events)

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams | EmbeddingParams | None = None,
        *,
        on_event: Callable[[Event], None] | None = None,
        arrival_s: float | None = None,
        request_id: str | None = None,
        choice_index: int = 0,
        salt: str = "",
        load_s: float = 0.0,
    ) -> Handle:
        """Start a request and return at once. `on_event` runs on the engine's thread: hand over and return.

        params: EmbeddingParams ask for a vector of the prompt; its finish event has it, and comes alone.
        arrival_s: when the request came in, on the clock of `now`; what lies between is parse time,
            but for `load_s` that it waited for this model to be loaded.
        request_id: its name in events and ledgers; one of its own by default.
        choice_index: tells answers of the same prompt and seed apart.
        salt: requests share cached prefixes only with requests of the same salt.

        Raises ParamsError, PromptError, ChatTemplateError or CapacityError before anything is queued.
        """
        entered_s = self._clock.now()
        arrival_s = entered_s if arrival_s is None else _checked_arrival(arrival_s, entered_s)
        spent: dict[Part, float] = {}
        if load_s > 0:
            spent[Part.LOAD] = min(load_s, entered_s - arrival_s)
        if entered_s - arrival_s > load_s:
            spent[Part.PARSE] = entered_s - arrival_s - load_s
        _check_names(request_id=request_id, choice_index=choice_index, salt=salt)
        return self._start(
            prompt,
            params,
            on_event=on_event,
            arrival_s=arrival_s,
            spent=spent,
            request_id=request_id,
            choice_index=choice_index,
            salt=salt,
        )

    def _start(
        self,
        prompt: Prompt,
        params: SamplingParams | EmbeddingParams | None,
        *,
        on_event: Callable[[Event], None] | None = None,
        arrival_s: float,
        spent: dict[Part, float],
        request_id: str | None = None,
        choice_index: int = 0,
        salt: str = "",
    ) -> Handle:
        """Check, tokenise and hand over; `spent` are the ledger's parts so far, time without a name is queue."""
        if isinstance(params, EmbeddingParams):
            assert choice_index == 0, f"a text has one vector, number {choice_index} is asked for"
            return self._start_embedding(
                prompt, params, on_event=on_event, arrival_s=arrival_s, spent=spent, request_id=request_id, salt=salt
            )
        self._check_purpose(None)
        params = self.default_params if params is None else params
        self._check_params(params, on_event)
        refuse_lone_surrogates(prompt)
        given = as_chat(prompt)
        chat = None if given is None else self._chat_prompt(given, params.max_tokens, spent)
        if chat is not None:
            params = chat.held(params)
        token_ids = self._prompt_ids(prompt if chat is None else chat, params.max_tokens, spent)
        self._check_ids(token_ids)
        self._check_context(len(token_ids), params.max_tokens, chat=given)
        _check_scores(len(token_ids), params.prompt_logprobs)
        grammar = self._grammar(params.structure, spent, chat=chat)
        request = Request(
            request_id=request_id or f"r{next(self._request_numbers)}",
            prompt_token_ids=tuple(token_ids),
            params=params,
            arrival_s=arrival_s,
            seed=secrets.randbelow(NUM_DRAWN_SEEDS) if params.seed is None else params.seed,
            stop_token_ids=frozenset(params.stop_token_ids)
            | (frozenset() if params.ignore_eos else self._loaded.text.end_ids),
            stop_patterns=compile_patterns(params.stop_regex),
            choice_index=choice_index,
            salt=salt,
            grammar=grammar,
            bad_words=self._word_ids.of_words(params.bad_words),
            dry_breakers=self._word_ids.of_marks(params.dry_sequence_breakers) if params.dry_multiplier else (),
            spent=spent,
            shown_ids=frozenset() if chat is None else chat.shown_ids,
            continues_text=chat is None or chat.continues_text,
        )
        return self._launch(
            request, on_event=on_event, new_reader=None if chat is None else partial(chat.new_reader, params)
        )

    def _start_embedding(
        self,
        prompt: Prompt,
        wish: EmbeddingParams,
        *,
        on_event: Callable[[Event], None] | None,
        arrival_s: float,
        spent: dict[Part, float],
        request_id: str | None,
        salt: str,
    ) -> Handle:
        """The same for a vector of a text, which has no answer."""
        self._check_purpose(wish)
        self._check_params(READING, on_event)
        if is_chat(prompt):
            raise PromptError("the prompt is a conversation: a text or its token ids are embedded")
        refuse_lone_surrogates(prompt)
        token_ids = self._closed(self._prompt_ids(prompt, 0, spent))
        self._check_ids(token_ids)
        self._check_context(len(token_ids), 0)
        request = Request(
            request_id=request_id or f"r{next(self._request_numbers)}",
            prompt_token_ids=tuple(token_ids),
            params=READING,
            arrival_s=arrival_s,
            seed=0,
            salt=salt,
            embedding=wish,
            spent=spent,
        )
        return self._launch(request, on_event=on_event)

    def _launch(
        self,
        request: Request,
        *,
        on_event: Callable[[Event], None] | None,
        new_reader: Callable[[], AnswerReader] | None = None,
    ) -> Handle:
        collector = ResultCollector(on_event)
        handle = Handle(
            request.request_id,
            cancel=self._cancel,
            collector=collector,
            prompt_token_ids=request.prompt_token_ids,
            new_reader=new_reader,
        )
        with _cancelled_on_error([handle]):
            self._worker.ask(lambda engine: engine.add(request, collector))
        return handle

    def encode(self, prompt: Prompt, *, after: Sequence[int] = ()) -> list[int]:
        """Ids of any kind of prompt, as `submit` reads it; a conversation is rendered with the model's template.

        after: ids of what came before, which the prompt goes on from: both together are returned, with one BOS.

        Raises PromptError, ChatTemplateError or CapacityError.
        """
        refuse_lone_surrogates(prompt)
        given = as_chat(prompt)
        chat = None if given is None else self._chat_prompt(given, 0, {})
        token_ids = self._prompt_ids(prompt if chat is None else chat, 0, {})
        special = self.tokenizer.special
        has_bos = special.adds_bos and token_ids[:1] == [special.bos_id]
        return [*after, *(token_ids[1:] if after and has_bos else token_ids)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ids, control tokens by their literals. Raises PromptError for ids outside the vocabulary."""
        return self.tokenizer.decode(self.tokenizer.encode_prompt(token_ids), skip_control=False)

    def token_bytes(self, token_id: int) -> bytes | None:
        """Bytes a token adds to a text; None for a control token, which adds none."""
        return None if token_id in self.tokenizer.control_ids else self.tokenizer.token_bytes(token_id)

    def token_text(self, token_id: int) -> str:
        """The token as people write it: its text, or a control token's literal; U+FFFD for parts of characters."""
        return self.tokenizer.token_bytes(token_id).decode("utf-8", "replace")

    def progress(self, request_id: str) -> int | None:
        """Prompt tokens that a running request has read; None once it has ended."""
        return self._worker.ask(lambda engine: engine.progress(request_id))

    def logits(self, token_ids: Sequence[int], *, last: int | None = None) -> npt.NDArray[np.float32]:
        """Logits after every token of a text, or after its `last` ones: float32 [num_tokens, vocab]."""
        self._check_purpose(None)
        ids = self.tokenizer.encode_prompt(token_ids)
        self._check_ids(ids)
        self._check_context(len(ids), 0)
        rows = len(ids) if last is None else last
        if type(rows) is not int or not 1 <= rows <= len(ids):
            raise ParamsError(
                f"last is {last!r}: it must be a whole number from 1 to the text's {len(ids)} tokens", field="last"
            )
        needed, free = 4 * rows * self.program.vocab_size, available_memory_bytes()
        if needed > free:
            raise CapacityError(
                f"logits of {rows} tokens x {self.program.vocab_size} ids need {needed / 1e9:.2f} GB, "
                f"{free / 1e9:.2f} GB are free: {free // (4 * self.program.vocab_size)} tokens fit"
            )
        return self._worker.ask(lambda engine: engine.logits(ids, last=rows))

    def use_of(self, steps: Sequence[StepRecord], peaks: Peaks) -> tuple[float, float]:
        """Shares of the peaks of arithmetic and of reads that these steps reached, from their plans to their logits."""
        costs = Cost.total(self._loaded.cost.step(step.rows, head_share=step.head_share) for step in steps)
        compute_s, bytes_s = peak_seconds(costs, peaks)
        wall_s = sum(step.logits_s - step.start_s for step in steps)
        return compute_s / wall_s, bytes_s / wall_s

    def report(self, result: Result, peaks: Peaks | None) -> PhaseReport:
        """Both phases of a result, judged against the machine's peaks where they are known."""
        return phase_report(result, cost=self._loaded.cost, peaks=peaks)

    def _answers(
        self, prompts: Sequence[Prompt], params: SamplingParams | EmbeddingParams | None, *, differ: bool = False
    ) -> list[Result]:
        """Results of all, in order. Where one fails, or the caller is interrupted, nothing goes on unheard.

        Under one seed equal prompts have equal answers unless they shall `differ`.
        """
        handles: list[Handle] = []
        unfinished = iter(handles)  # sees what is appended later
        arrival_s = self._clock.now()  # of all: a later one waits while an earlier one is tokenised
        with _cancelled_on_error(handles):
            for number, prompt in enumerate(prompts):
                handles.append(
                    self._submit_in_turn(
                        prompt, params, unfinished, arrival_s=arrival_s, choice_index=number if differ else 0
                    )
                )
            return [_checked(handle.result()) for handle in handles]

    def _submit_in_turn(
        self,
        prompt: Prompt,
        params: SamplingParams | EmbeddingParams | None,
        unfinished: Iterator[Handle],
        *,
        arrival_s: float,
        choice_index: int,
    ) -> Handle:
        """Start a request; where the queue is full, once requests of the same call have ended."""
        while True:
            try:
                return self._start(prompt, params, arrival_s=arrival_s, spent={}, choice_index=choice_index)
            except QueueFullError:
                earlier = next(unfinished, None)
                if earlier is None:  # it is full of others'
                    raise
                earlier.result()

    def _cancel(self, request_id: str) -> None:
        with suppress(TwostrokeError):  # a closed model has ended all its requests
            self._worker.call(lambda engine: engine.cancel(request_id))

    def prepare_structures(self) -> None:
        """Read the vocabulary for grammars now, some tenths of a second, not with the first request that has one."""
        _ = self._grammars

    def _grammar(
        self, structure: Structure | None, spent: dict[Part, float], *, chat: ChatPrompt | None
    ) -> "Grammar | None":
        """Compiled here, on the caller's thread; books the time it took."""
        if structure is None:
            return None
        start_s = self._clock.now()
        try:
            grammar = self._grammars.compile(structure, before=None if chat is None else chat.before)
        except ParamsError as error:
            if chat is None or structure is not chat.structure:
                raise
            raise ParamsError(f"tools is refused: {error}", field="tools") from None
        spent[Part.GRAMMAR_COMPILE] = self._clock.now() - start_s
        return grammar

    @cached_property
    def _grammars(self) -> "GrammarCompiler":
        from twostroke.sample.grammar import GrammarCompiler, Words  # a library that few programs need

        tokenizer = self.tokenizer  # alone: the library's objects hide from the collector whom they hold
        size = min(self.program.vocab_size, tokenizer.vocab_size)
        words = Words(
            [tokenizer.token_bytes(token_id) for token_id in range(size)],
            control_ids=[token_id for token_id in tokenizer.control_ids if token_id < size],
            end_ids=[token_id for token_id in self._loaded.text.end_ids if token_id < size],
            encode=lambda text: tokenizer.encode(text, add_bos=False),
        )
        return GrammarCompiler(words)

    @cached_property
    def _word_ids(self) -> WordIds:
        return WordIds(self.tokenizer)

    def _check_purpose(self, embedding: EmbeddingParams | None) -> None:
        """A model writes or embeds, as its file says: another pooling than the one it was made with is made up."""
        if embedding is None:
            return self.check_writes()
        pooling = self._loaded.pooling
        if pooling is None:
            raise ParamsError(
                f"{self.model_name} is a model that writes: its file names no pooling, by which a vector is made of a "
                "text (pooling_type of a GGUF file, modules.json of a folder); use a model made for embeddings",
                field="model",
            )
        if embedding.dimensions is not None and embedding.dimensions not in pooling.dimensions:
            raise ParamsError(
                f"dimensions is {embedding.dimensions}: {_lengths(pooling.dimensions)}; leave it out for "
                f"{pooling.width}",
                field="dimensions",
            )

    def _closed(self, token_ids: list[int]) -> list[int]:
        """A text to embed, with the token its model wants behind it."""
        closing_id = self._loaded.text.closing_id
        return token_ids if closing_id is None or token_ids[-1:] == [closing_id] else [*token_ids, closing_id]

    def _check_params(self, params: object, on_event: object) -> None:
        """What SamplingParams cannot know: the vocabulary, and that they are there at all."""
        if not isinstance(params, SamplingParams):
            raise ParamsError(
                f"params is of type {type(params).__name__}: it must be SamplingParams or None", field="params"
            )
        size = min(self.program.vocab_size, self.tokenizer.vocab_size)
        named = {
            "stop_token_ids": params.stop_token_ids,
            "logit_bias": [token_id for token_id, _ in params.logit_bias],
            "bad_words": [token_id for word in params.bad_words if isinstance(word, tuple) for token_id in word],
        }
        for field, token_ids in named.items():
            for token_id in token_ids:
                if token_id >= size:
                    raise ParamsError(f"{field} has {token_id}: the vocabulary has ids 0 to {size - 1}", field=field)
        if on_event is not None and not callable(on_event):
            raise ParamsError(
                f"on_event is of type {type(on_event).__name__}: it must be a function of one event, or None",
                field="on_event",
            )

    def _chat_prompt(self, chat: Chat, max_tokens: int, spent: dict[Part, float]) -> ChatPrompt:
        """A conversation, rendered; books the time. One the template stumbles over may be too long for any template."""
        start_s = self._clock.now()
        chat = replace(chat, messages=self._with_system(chat.messages))
        try:
            rendered = self._chat_prompts.prepare(chat)
        except ChatTemplateError:
            if self._loaded.text.chat_template.source is not None:
                self._check_pieces(contents_of(chat.messages), max_tokens)
            raise
        spent[Part.TEMPLATE] = self._clock.now() - start_s
        return rendered

    def _prompt_ids(self, prompt: Prompt | ChatPrompt, max_tokens: int, spent: dict[Part, float]) -> list[int]:
        """Ids of any kind of prompt; books the time of the tokenizer."""
        start_s = self._clock.now()
        if isinstance(prompt, ChatPrompt):
            self._check_pieces(prompt.pieces, max_tokens, has_tools=bool(prompt.names))
            token_ids = self.tokenizer.encode_pieces(prompt.pieces)
        else:
            if isinstance(prompt, str):
                self._check_pieces([prompt], max_tokens)
            elif hasattr(prompt, "__len__") and len(prompt) > self.context:
                self._check_context(len(prompt), max_tokens)  # before millions of ids are looked at one by one
            token_ids = self.tokenizer.encode_prompt(prompt)  # type: ignore[arg-type]
        spent[Part.TOKENIZE] = self._clock.now() - start_s
        return token_ids

    def _with_system(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The conversation, opened by the model's own system text where it has no system message."""
        system = self._defaults.system
        if system is None or any(message.get("role") in SYSTEM_ROLES for message in messages):
            return messages
        return [{"role": "system", "content": system}, *messages]

    def _check_pieces(self, pieces: Sequence[str | int], max_tokens: int, *, has_tools: bool = False) -> None:
        """Refuse what cannot fit however well it is tokenised, before minutes are spent on tokenising it."""
        if sum(len(piece) for piece in pieces if isinstance(piece, str)) < self.context // 4:
            return  # as almost always: characters have 4 bytes at most, tokens 1 at least
        num_bytes, longest = self.tokenizer.text_bytes(pieces), self.tokenizer.most_token_bytes
        if longest is None:
            return
        least, most = -(-num_bytes // longest), self.context - min(1, max_tokens)
        if least <= most:
            return
        needed, excess = least + max_tokens, num_bytes - most * longest
        answer = f" + max_tokens of {max_tokens} = {needed}" if max_tokens else ""
        raise CapacityError(
            f"the prompt has {num_bytes} bytes, a token at most {longest}: at least {counted(least, 'prompt token')}"
            f"{answer}, the context is {self.context}: shorten {shortened(has_tools)}, by {counted(excess, 'byte')} at "
            "the very least"
        )

    def _check_ids(self, token_ids: Sequence[int]) -> None:
        """A tokenizer may know tokens the model has no weights for: in a step they would fail its neighbours too."""
        highest, num_known = max(token_ids, default=0), self.program.vocab_size
        if highest >= num_known:
            raise PromptError(
                f"the prompt has the token {highest}: the model has weights for 0 to {num_known - 1}, its tokenizer "
                "knows more; leave that text out"
            )

    def _check_context(self, num_prompt: int, max_tokens: int, *, chat: Chat | None = None) -> None:
        """Nothing is cut: prompt and answer fit, or the arithmetic is shown."""
        if num_prompt + max_tokens <= self.context:
            return
        why = why_no_room(
            num_prompt,
            max_tokens,
            context=self.context,
            most_context=self.program.context_length if self._is_context_stated else None,
            shares=None if chat is None else self._shares(chat, num_prompt),
        )
        if why is not None:
            raise CapacityError(why)

    def _shares(self, chat: Chat, num_prompt: int) -> ChatShares | None:
        """What of a prompt the messages did not say; None where the template cannot do without the tools."""
        messages = self._with_system(chat.messages)
        bare = replace(chat, messages=messages, tools=(), choice=ToolChoice())
        try:
            pieces = self._chat_prompts.prepare(bare).pieces
        except (ChatTemplateError, ParamsError):
            return None
        num_bare, shown = len(self.tokenizer.encode_pieces(pieces)), "".join(map(str, pieces))
        said = [text.strip() for text in said_in(chat.messages) if text.strip() in shown]
        num_said = sum(len(self.tokenizer.encode(text, add_bos=False)) for text in said)
        return ChatShares(
            num_framing=max(0, num_bare - num_said),
            num_tools=max(0, num_prompt - num_bare),
            has_system=len(messages) > len(chat.messages),
        )


def _checked_arrival(arrival_s: object, now_s: float) -> float:
    is_moment = isinstance(arrival_s, int | float) and not isinstance(arrival_s, bool) and math.isfinite(arrival_s)
    if not is_moment or arrival_s > now_s:  # type: ignore[operator]
        raise ParamsError(
            f"arrival_s is {arrival_s!r}: it must be a moment of the past on the clock of LLM.now, at most {now_s:g}",
            field="arrival_s",
        )
    return arrival_s  # type: ignore[return-value]


def _check_names(*, request_id: object, choice_index: object, salt: object) -> None:
    if request_id is not None and (not isinstance(request_id, str) or not request_id):
        raise ParamsError(f"request_id is {request_id!r}: it must be text or None", field="request_id")
    if type(choice_index) is not int or not 0 <= choice_index <= MAX_CHOICE_INDEX:
        raise ParamsError(
            f"choice_index is {choice_index!r}: it must be a whole number from 0 to {MAX_CHOICE_INDEX}",
            field="choice_index",
        )
    if not isinstance(salt, str):
        raise ParamsError(f"salt is {salt!r}: it must be text", field="salt")


def _logprob_of(result: Result) -> float:
    """Sum over the tokens of an answer that was asked for them."""
    return sum(logprob for logprob in result.logprobs if logprob is not None)


def _check_scores(num_prompt: int, prompt_logprobs: int | None) -> None:
    """Log-probabilities of a prompt are kept until its first token is told: no more than there is room for."""
    if prompt_logprobs is None or (num := num_prompt * (prompt_logprobs + 1)) <= MAX_PROMPT_SCORES:
        return
    most = MAX_PROMPT_SCORES // num_prompt - 1
    fix = "score the prompt in parts" if most < 0 else f"prompt_logprobs of at most {most} fits"
    raise ParamsError(
        f"prompt_logprobs is {prompt_logprobs}: {counted(num_prompt, 'prompt token')} x {prompt_logprobs + 1} = {num} "
        f"log-probabilities, the limit is {MAX_PROMPT_SCORES}: {fix}",
        field="prompt_logprobs",
    )


def _lengths(dimensions: Sequence[int]) -> str:
    if len(dimensions) == 1:
        return f"this model's vectors have {dimensions[0]} numbers and were not made to be cut"
    if isinstance(dimensions, range):
        return f"this model's vectors may have {dimensions[0]} to {dimensions[-1]} numbers"
    return f"this model's vectors may have {', '.join(map(str, dimensions))} numbers"


@contextmanager
def _cancelled_on_error(handles: Sequence[Handle]) -> Iterator[None]:
    try:
        yield
    except BaseException:  # Ctrl-C while waiting too
        for handle in handles:
            handle.cancel()
        raise


def _checked(result: Result) -> Result:
    if result.error is not None:
        raise RequestError(f"{result.request_id}: {result.error}")
    return result
