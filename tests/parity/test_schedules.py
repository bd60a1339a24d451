"""One answer per prompt, bit for bit: whatever arrives beside it, however it is cut, cached, preempted or threaded.

Native kernels, real cache, scheduler and sampler; every logit that led to a token is part of the hash.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.builders import ByteText, Listener, text_of_bytes
from tests.builders_cost import make_cost
from tests.builders_drafts import Answers, Forced
from tests.builders_gguf import write_gemma3, write_llama
from twostroke import _native
from twostroke.cache.cache import KVCache
from twostroke.cache.config import CacheConfig
from twostroke.core.account import StepRecord
from twostroke.core.clock import VirtualClock
from twostroke.core.request import Request
from twostroke.core.step import SampledToken
from twostroke.core.strategy import Speculator
from twostroke.engine.bind import Binder
from twostroke.engine.cost_fit import StepCostFit
from twostroke.engine.engine import Engine
from twostroke.engine.kv_store import KVSize, block_bytes
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.model.source import ModelSource
from twostroke.params import SamplingParams
from twostroke.program.native import NativeReader
from twostroke.program.program import Program
from twostroke.program.reader import KVSpec, Precision
from twostroke.sample.sampler import Sampler, SamplingRow
from twostroke.schedule.config import SchedulerConfig
from twostroke.schedule.scheduler import Scheduler
from twostroke.strategy.beam import BeamChooser

BLOCK_SIZE = 16
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
SEEDED = SamplingParams(max_tokens=24, ignore_eos=True, temperature=0.9, top_k=40, top_p=0.95, repetition_penalty=1.1)
SHARED = [int(token) for token in np.random.default_rng(0).integers(3, 259, 40)]  # a prefix some prompts share
PROMPTS = [
    SHARED[:1],
    SHARED[:33],
    [*SHARED, 5, 6, 7],
    [*SHARED, 5, 6, 8, 9],
    [int(token) for token in np.random.default_rng(1).integers(3, 259, 300)],  # longer than one chunk of keys
]


class HashingSampler(Sampler):
    """Keeps a running hash of the logits each sequence was sampled from."""

    def __init__(self, vocab_size: int, *, isa: str | None, pool: _native.Pool) -> None:
        super().__init__(vocab_size, isa=isa, pool=pool)
        self.hashes: dict[int, bytes] = {}

    def sample(
        self,
        logits: npt.NDArray[np.float32],
        rows: Sequence[SamplingRow],
        *,
        at: Sequence[int] | None = None,
        candidates: _native.Candidates | None = None,
    ) -> list[SampledToken]:
        tokens = super().sample(logits, rows, at=at, candidates=candidates)
        for row, token, source in zip(rows, tokens, range(len(rows)) if at is None else at, strict=True):
            before = self.hashes.get(row.sequence_id, b"")
            data = before + _seen(logits, candidates, source) + token.token_id.to_bytes(4, "little")
            self.hashes[row.sequence_id] = hashlib.blake2b(data, digest_size=16).digest()
        return tokens


def _seen(logits: npt.NDArray[np.float32], candidates: _native.Candidates | None, source: int) -> bytes:
    """What a token was chosen from."""
    if candidates is None or candidates.wants_all(source):
        seen = logits[source]
    else:
        panels = sorted(candidates.found(source))
        seen = np.concatenate([np.array([panel, *values], np.float32) for panel, values in panels])
    return bytes(seen.tobytes())


@dataclass(frozen=True)
class Schedule:
    """How one run disturbs its requests."""

    seed: int
    threads: int
    num_blocks: int
    config: SchedulerConfig


def random_schedule(seed: int) -> Schedule:
    rng = random.Random(seed)
    max_step_tokens = rng.choice((17, 33, 64, 128))
    config = SchedulerConfig(
        max_rows=rng.randint(1, 6),
        max_step_tokens=max_step_tokens,
        max_chunk_tokens=rng.randint(1, max_step_tokens) if rng.random() < 0.5 else max_step_tokens,
        enable_prefix_cache=rng.random() < 0.5,
    )
    return Schedule(seed=seed, threads=rng.choice((1, 2)), num_blocks=rng.randint(22, 34), config=config)


class Lab:
    """One model, run under many schedules."""

    def __init__(
        self, source: ModelSource, *, precision: Precision, isa: str | None = None, asks_candidates: bool = False
    ) -> None:
        self.asks_candidates = asks_candidates
        self.source = source
        self.program: Program = build_program(source)
        self.precision = precision
        self.isa = isa
        self.num_preemptions = 0
        self.num_hits = 0
        self.answers: Answers = {}  # of the last run
        self.told: list[Listener] = []  # of the last run, in the order asked

    def run(
        self,
        schedule: Schedule,
        asked: Sequence[tuple[list[int], SamplingParams]],
        *,
        speculator: Speculator | None = None,
        steps: list[StepRecord] | None = None,
    ) -> list[str]:
        """A hash per request, in the order asked; arrivals are spread over the run. `steps` get what was run."""
        rng = random.Random(schedule.seed)
        engine, sampler, cache, scheduler = self._engine(schedule, speculator)
        if steps is not None:
            engine.observe_steps(steps.append)
        listeners = [Listener() for _ in asked]
        order = rng.sample(range(len(asked)), len(asked))
        sequence_of: dict[int, int] = {}
        while order or engine.has_work:
            if order and (rng.random() < 0.5 or not engine.has_work):
                number = order.pop()
                prompt, params = asked[number]
                sequence_of[number] = len(sequence_of)
                request = Request(
                    request_id=str(number), prompt_token_ids=tuple(prompt), params=params, arrival_s=0.0, seed=11
                )
                engine.add(request, listeners[number])
            engine.step()
            cache.check_integrity()
        self.num_preemptions += scheduler.num_preemptions
        self.num_hits += cache.num_hits
        assert all(listener.finish is not None and listener.finish.error is None for listener in listeners)
        self.told = listeners
        self.answers = {
            (tuple(prompt), params): listener.token_ids
            for (prompt, params), listener in zip(asked, listeners, strict=True)
        }
        return [sampler.hashes[sequence_of[number]].hex() for number in range(len(asked))]

    def _engine(
        self, schedule: Schedule, speculator: Speculator | None
    ) -> tuple[Engine, HashingSampler, KVCache, Scheduler]:
        program, config = self.program, schedule.config
        num_blocks = (schedule.num_blocks,) * len(program.kv_groups)
        spec = KVSpec(precision=self.precision, block_size=BLOCK_SIZE, num_blocks=num_blocks)
        reader = NativeReader(
            program,
            self.source.tensors,
            kv=spec,
            threads=schedule.threads,
            max_tokens=config.max_step_tokens,
            max_rows=config.max_rows,
            isa=self.isa,
        )
        windows = tuple(group.window for group in program.kv_groups)
        cache = KVCache(CacheConfig(block_size=BLOCK_SIZE, num_blocks=num_blocks, windows=windows))
        scheduler = Scheduler(cache, config)
        sampler = HashingSampler(program.vocab_size, isa=self.isa, pool=reader.pool)
        engine = Engine(
            reader=reader,
            scheduler=scheduler,
            cache=cache,
            binder=Binder(
                cache,
                num_groups=len(program.kv_groups),
                max_tokens=config.max_step_tokens,
                max_rows=config.max_rows,
                max_blocks=schedule.num_blocks,
            ),
            sampler=sampler,
            clock=VirtualClock(),
            fit=StepCostFit(make_cost(base_s=0.01, token_s=0.001)),
            kv_size=KVSize(
                spec=spec,
                context=schedule.num_blocks * BLOCK_SIZE,
                block_bytes=tuple(
                    block_bytes(group, precision=self.precision, block_size=BLOCK_SIZE) for group in program.kv_groups
                ),
            ),
            kv_groups=program.kv_groups,
            new_text=lambda request: ByteText(),
            speculator=speculator,
            new_chooser=lambda request: BeamChooser(request, text_of=text_of_bytes),
            candidates_from=1 if self.asks_candidates else None,
        )
        assert reader.brings_candidates
        return engine, sampler, cache, scheduler


QUIET = Schedule(
    seed=0,
    threads=1,
    num_blocks=60,
    config=SchedulerConfig(max_rows=1, max_step_tokens=512, max_chunk_tokens=512, enable_prefix_cache=False),
)
ASKED = [(prompt, params) for prompt in PROMPTS for params in (GREEDY, SEEDED)]


def check(lab: Lab, schedules: Sequence[int]) -> None:
    expected = lab.run(QUIET, ASKED)
    for seed in schedules:
        schedule = random_schedule(seed)
        assert lab.run(schedule, ASKED) == expected, schedule
        if seed % 8 == 3:
            forced = Forced(lab.answers, length=1 + seed // 8 % 8, wrong=0.3, seed=seed)
            assert lab.run(schedule, ASKED, speculator=forced) == expected, f"drafts in {schedule}"
            assert forced.num_accepted > 0
    assert lab.num_preemptions > 0, "no schedule preempted anybody"
    assert lab.num_hits > 0, "no schedule read a cached prefix"


@pytest.mark.parametrize("tensor_type", ["Q4_1", "Q4_0", "Q8_0", "F16", "Q4_K"])
def test_random_schedules_change_no_bit(tensor_type: str, tmp_path: Path) -> None:
    source = open_model(write_llama(tmp_path / "llama.gguf", tensor_type=tensor_type))
    check(Lab(source, precision="bf16"), range(8))


@pytest.mark.parametrize("precision", ["f32", "f16", "int8"])
def test_random_schedules_change_no_bit_in_other_kv_precisions(precision: Precision, tmp_path: Path) -> None:
    source = open_model(write_llama(tmp_path / "llama.gguf", tensor_type="Q5_0"))
    check(Lab(source, precision=precision), range(8))


def test_random_schedules_change_no_bit_behind_sliding_windows(tmp_path: Path) -> None:
    source = open_model(write_gemma3(tmp_path / "gemma3.gguf", tensor_type="Q8_0"))
    check(Lab(source, precision="bf16"), range(8))


def test_random_schedules_change_no_bit_on_portable_kernels(tmp_path: Path) -> None:
    source = open_model(write_llama(tmp_path / "llama.gguf", tensor_type="Q6_K"))
    check(Lab(source, precision="bf16", isa="portable"), range(6))


def test_two_hundred_random_schedules_change_no_bit(tmp_path: Path) -> None:
    source = open_model(write_llama(tmp_path / "model.gguf", tensor_type="Q4_1"))
    check(Lab(source, precision="bf16"), range(200))


@pytest.mark.slow
def test_two_hundred_random_schedules_change_no_bit_behind_sliding_windows(tmp_path: Path) -> None:
    source = open_model(write_gemma3(tmp_path / "model.gguf", tensor_type="Q4_1"))
    check(Lab(source, precision="bf16"), range(200))
