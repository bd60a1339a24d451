"""Doubles of the slow parts: a scripted model that reads its context through block tables, byte text, virtual time."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tests.builders_cost import make_cost
from tests.sample.sampling_builders import hand_on
from twostroke.cache.cache import KVCache
from twostroke.cache.config import CacheConfig
from twostroke.core.clock import VirtualClock
from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.core.request import Request
from twostroke.core.strategy import AnswerGrammar, Speculator
from twostroke.engine.bind import Binder
from twostroke.engine.cost_fit import StepCostFit
from twostroke.engine.engine import Engine
from twostroke.engine.kv_store import KVSize
from twostroke.errors import KernelError
from twostroke.params import SamplingParams
from twostroke.program.program import BoundStep, KVGroup
from twostroke.program.reader import KVSpec
from twostroke.sample.sampler import Sampler
from twostroke.schedule.config import SchedulerConfig
from twostroke.schedule.scheduler import Scheduler
from twostroke.strategy.beam import BeamChooser

VOCAB = 256  # a token is a byte
STEP_S = 0.010
TOKEN_S = 0.001
NEVER = np.int32(-7)  # what a slot holds that nobody has written


class ScriptedReader:
    """A model whose next-token law is a hash of the whole context, read back slot by slot as attention would.

    A wrong table, a recycled block or a stale copy changes every later token. Each step takes
    STEP_S + TOKEN_S per token of virtual time.
    """

    def __init__(self, *, num_blocks: int, block_size: int, clock: VirtualClock | None = None) -> None:
        self.clock = clock
        self.num_steps = 0
        self.fail_at: set[int] = set()  # numbers of steps whose kernel fails
        self.nan_after: int | None = None  # a row whose last token is this gets NaN logits
        self._slots = np.full((num_blocks, block_size), NEVER)

    def run(self, step: BoundStep) -> npt.NDArray[np.float32]:
        self.num_steps += 1
        if self.clock is not None:
            self.clock.advance(STEP_S + TOKEN_S * len(step.token_ids))
        if self.num_steps in self.fail_at:
            raise KernelError(f"step {self.num_steps} was told to fail")
        block_size = self._slots.shape[1]
        logits = np.zeros((len(step.selected), VOCAB), np.float32)
        for r, first_pos in enumerate(step.row_positions):
            start, end = int(step.row_starts[r]), int(step.row_starts[r + 1])
            table = step.block_tables[0][r]
            for index in range(start, end):
                block, slot = divmod(int(first_pos) + index - start, block_size)
                self._slots[table[block], slot] = step.token_ids[index]
            for out, index in enumerate(step.selected):
                if start <= index < end:
                    length = int(first_pos) + int(index) - start + 1
                    context = [int(self._slots[table[p // block_size], p % block_size]) for p in range(length)]
                    logits[out] = self.law(context)
        if step.candidates is not None:
            hand_on(step.candidates, logits, isa="portable")
            for out in range(len(logits)):
                if not step.candidates.wants_all(out):
                    logits[out] = np.nan  # nobody may look there
        return logits

    def law(self, context: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits after a context: a shuffled ramp, so that greedy and sampled tokens both depend on all of it."""
        if context[-1] == self.nan_after:
            return np.full(VOCAB, np.nan, np.float32)
        digest = hashlib.blake2b(np.array(context, np.int32).tobytes(), digest_size=8).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "little"))
        return (rng.permutation(VOCAB) / 16 + rng.random(VOCAB) / 32).astype(np.float32)  # sums of logits never tie

    def copy_block(self, group: int, source: int, target: int) -> None:
        self._slots[target] = self._slots[source]

    @property
    def kv_bytes_per_block(self) -> tuple[int, ...]:
        return (self._slots.shape[1] * 8,)

    def close(self) -> None:
        pass


class ByteText:
    """Token = byte = one Latin-1 character."""

    def push(self, token_id: int) -> str:
        return chr(token_id)

    def flush(self) -> str:
        return ""


def text_of_bytes(token_ids: Sequence[int]) -> str:
    return "".join(map(chr, token_ids))


class Listener:
    """Keeps what one request was told."""

    def __init__(self) -> None:
        self.tokens: list[TokenEvent] = []
        self.finish: FinishEvent | None = None

    def __call__(self, event: Event) -> None:
        assert self.finish is None, "an event came after the finish"
        if isinstance(event, TokenEvent):
            self.tokens.append(event)
        else:
            self.finish = event

    @property
    def token_ids(self) -> list[int]:
        return [event.token_id for event in self.tokens]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.tokens) + (self.finish.text if self.finish else "")


class Bench:
    """An engine on doubles, with everything a test wants to look at."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        config: SchedulerConfig | None = None,
        new_text: Callable[[Request], ByteText] = lambda request: ByteText(),
        speculator: Speculator | None = None,
        clock: VirtualClock | None = None,
        asks_candidates: bool = False,
    ) -> None:
        config = config or SchedulerConfig(max_rows=8, max_step_tokens=32, max_chunk_tokens=32)
        self.clock = clock or VirtualClock()
        self.reader = ScriptedReader(num_blocks=num_blocks, block_size=block_size, clock=self.clock)
        self.cache = KVCache(CacheConfig(block_size=block_size, num_blocks=(num_blocks,), windows=(None,)))
        self.scheduler = Scheduler(self.cache, config)
        self.engine = Engine(
            reader=self.reader,
            scheduler=self.scheduler,
            cache=self.cache,
            binder=Binder(
                self.cache,
                num_groups=1,
                max_tokens=config.max_step_tokens,
                max_rows=config.max_rows,
                max_blocks=num_blocks,
            ),
            sampler=Sampler(VOCAB),
            clock=self.clock,
            fit=StepCostFit(make_cost(base_s=STEP_S, token_s=TOKEN_S)),
            kv_size=KVSize(
                spec=KVSpec(precision="f32", block_size=block_size, num_blocks=(num_blocks,)),
                context=num_blocks * block_size,
                block_bytes=(block_size * 8,),
            ),
            kv_groups=(KVGroup(id=0, layers=(0,), num_kv_heads=1, head_dim=1, window=None),),
            new_text=new_text,
            speculator=speculator,
            new_chooser=lambda request: BeamChooser(request, text_of=text_of_bytes),
            candidates_from=1 if asks_candidates else None,
        )
        self._next = 0

    def add(
        self,
        prompt: Sequence[int] | bytes,
        *,
        params: SamplingParams | None = None,
        stop_token_ids: frozenset[int] = frozenset(),
        seed: int = 7,
        grammar: AnswerGrammar | None = None,
    ) -> tuple[str, Listener]:
        self._next += 1
        listener = Listener()
        request = Request(
            request_id=f"r{self._next}",
            prompt_token_ids=tuple(prompt),
            params=params or SamplingParams(max_tokens=8),
            arrival_s=self.clock.now(),
            seed=seed,
            stop_token_ids=stop_token_ids,
            grammar=grammar,
        )
        self.engine.add(request, listener)
        return request.request_id, listener

    def run(self, *, max_steps: int = 10_000) -> None:
        """Step until idle; the cache is whole after every step and empty at the end."""
        for _ in range(max_steps):
            if not self.engine.step():
                break
            self.cache.check_integrity()
        else:
            raise AssertionError(f"not idle after {max_steps} steps")
        assert self.engine.snapshot().blocks_held == 0


def answer_alone(prompt: Sequence[int] | bytes, *, params: SamplingParams | None = None, seed: int = 7) -> list[int]:
    """The tokens of a request that had the engine for itself."""
    bench = Bench()
    _, listener = bench.add(prompt, params=params, seed=seed)
    bench.run()
    return listener.token_ids
