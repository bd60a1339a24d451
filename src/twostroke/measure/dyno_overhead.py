"""What a step costs beside its kernels: the engine's Python around an empty step, and the choice of tokens."""

from collections.abc import Callable
from statistics import median

import numpy as np

from twostroke.cache.cache import KVCache
from twostroke.cache.config import CacheConfig
from twostroke.core.clock import Clock
from twostroke.core.request import Request
from twostroke.core.sequence import Sequence
from twostroke.core.step import SampledToken, StepResult
from twostroke.engine.bind import Binder
from twostroke.params import SamplingParams
from twostroke.sample.sampler import Sampler, SamplingRow
from twostroke.schedule.config import SchedulerConfig
from twostroke.schedule.scheduler import Scheduler

EMPTY_STEPS = 60
SAMPLINGS = 9
BLOCK_SIZE = 16
PROMPT = 20  # tokens


def step_overhead(*, clock: Clock, max_rows: int) -> tuple[float, float]:
    """Seconds of plan and bind: of a step, and of each row."""
    one_s = _empty_step(1, clock)
    if max_rows == 1:
        return one_s, 0.0
    most_s = _empty_step(max_rows, clock)
    row_s = max(0.0, (most_s - one_s) / (max_rows - 1))
    return max(0.0, one_s - row_s), row_s


def sampling_seconds(sampler: Sampler, *, clock: Clock) -> float:
    """Seconds of choosing one token, the likeliest, from random logits."""
    logits = np.random.default_rng(0).random((1, sampler.vocab_size), np.float32)
    row = SamplingRow(0, sampler.start(_request(0)))
    return median(_timed(lambda: sampler.sample(logits, [row]), clock) for _ in range(SAMPLINGS))


def _empty_step(rows: int, clock: Clock) -> float:
    """Median of plan and bind with `rows` decoding sequences."""
    tokens = PROMPT + EMPTY_STEPS + 2
    num_blocks = rows * (tokens // BLOCK_SIZE + 2)
    cache = KVCache(CacheConfig(block_size=BLOCK_SIZE, num_blocks=(num_blocks,), windows=(None,)))
    scheduler = Scheduler(cache, SchedulerConfig(max_rows=rows, max_step_tokens=rows * PROMPT + 1))
    binder = Binder(cache, num_groups=1, max_tokens=rows * PROMPT + 1, max_rows=rows, max_blocks=num_blocks)
    sequences = {number: Sequence.from_request(_request(number), sequence_id=number) for number in range(rows)}
    for sequence in sequences.values():
        scheduler.add(sequence)
    times = []
    for _ in range(EMPTY_STEPS):
        start_s = clock.now()
        plan = scheduler.plan(start_s)
        assert plan is not None, "sequences that never end have a next step"
        binder.bind(plan, sequences)
        times.append(clock.now() - start_s)
        tokens_of = tuple(SampledToken(row.sequence_id, 0) for row in plan.rows if row.needs_logits)
        scheduler.commit(StepResult(plan=plan, tokens=tokens_of))
    return median(times[len(times) // 2 :])  # the prompts are behind


def _timed(work: Callable[[], object], clock: Clock) -> float:
    start_s = clock.now()
    work()
    return clock.now() - start_s


def _request(number: int) -> Request:
    return Request(
        request_id=f"r{number}",
        prompt_token_ids=tuple(range(PROMPT)),
        params=SamplingParams(max_tokens=EMPTY_STEPS + 1, ignore_eos=True),
        arrival_s=0.0,
        seed=1,
    )
