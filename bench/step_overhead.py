"""Python work of one decode step: plan, bind, sample, commit, hand over, around a reader that does nothing.

    python bench/step_overhead.py

The target is 60 + 10 x rows microseconds. Times are of the thread's own CPU, the second best of several runs:
a shared machine only ever adds to them.
"""

import argparse
from time import thread_time

import numpy as np
import numpy.typing as npt

from twostroke.cache.cache import KVCache
from twostroke.cache.config import CacheConfig
from twostroke.core.clock import WallClock
from twostroke.core.request import Request
from twostroke.engine.bind import Binder
from twostroke.engine.cost_fit import StepCostFit, StepCounts, assumed_cost
from twostroke.engine.engine import Engine
from twostroke.engine.kv_store import KVSize
from twostroke.handle import ResultCollector
from twostroke.params import SamplingParams
from twostroke.program.program import BoundStep, KVGroup
from twostroke.program.reader import KVSpec
from twostroke.sample.sampler import Sampler
from twostroke.schedule.config import SchedulerConfig
from twostroke.schedule.scheduler import Scheduler

VOCAB = 512  # small: the search for the best token is not Python's work
NUM_BLOCKS, BLOCK_SIZE = 20_000, 16
STEPS, RUNS, WARM_UP = 250, 6, 60
CASES = ((1, 0), (8, 0), (32, 0), (32, 100))  # rows, requests that wait


class NothingReader:
    """The same logits for every step."""

    def __init__(self) -> None:
        self._logits = np.random.default_rng(0).random((64, VOCAB), np.float32)

    def run(self, step: BoundStep) -> npt.NDArray[np.float32]:
        return self._logits[: len(step.selected)]

    def copy_block(self, group: int, source: int, target: int) -> None:
        pass

    @property
    def kv_bytes_per_block(self) -> tuple[int, ...]:
        return (BLOCK_SIZE,)

    def close(self) -> None:
        pass


class NothingText:
    def push(self, token_id: int) -> str:
        return "x"

    def flush(self) -> str:
        return ""


def make_engine() -> Engine:
    config = SchedulerConfig(max_rows=32, max_step_tokens=512)
    cache = KVCache(CacheConfig(block_size=BLOCK_SIZE, num_blocks=(NUM_BLOCKS,), windows=(None,)))
    counts = StepCounts(weight_bytes=1e5, token_ops=1e5, head_bytes=1e5, head_ops=1e5, kv_bytes=100, pair_ops=100)
    fit = StepCostFit(assumed_cost(counts))
    spec = KVSpec(precision="bf16", block_size=BLOCK_SIZE, num_blocks=(NUM_BLOCKS,))
    return Engine(
        reader=NothingReader(),
        scheduler=Scheduler(cache, config, fit.cost()),
        cache=cache,
        binder=Binder(cache, num_groups=1, max_tokens=512, max_rows=32, max_blocks=NUM_BLOCKS // 8),
        sampler=Sampler(VOCAB),
        clock=WallClock(),
        fit=fit,
        kv_size=KVSize(spec=spec, context=NUM_BLOCKS, block_bytes=(BLOCK_SIZE,)),
        kv_groups=(KVGroup(id=0, layers=(0,), num_kv_heads=1, head_dim=1, window=None),),
        new_text=lambda request: NothingText(),
        new_chooser=lambda request: None,
    )


def step_seconds(*, rows: int, waiting: int) -> float:
    """Time of one step in which `rows` sequences decode and nobody can start."""
    engine = make_engine()
    for number in range(rows + waiting):
        request = Request(
            request_id=f"r{number}",
            prompt_token_ids=tuple(range(20)),
            params=SamplingParams(max_tokens=5000),
            arrival_s=0.0,
            seed=1,
        )
        engine.add(request, ResultCollector(None))
    for _ in range(WARM_UP):
        engine.step()
    times = []
    for _ in range(RUNS):
        start_s = thread_time()
        for _ in range(STEPS):
            engine.step()
        times.append((thread_time() - start_s) / STEPS)
    return sorted(times)[1]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for rows, waiting in CASES:
        seconds = step_seconds(rows=rows, waiting=waiting)
        print(f"{rows:3} rows, {waiting:3} waiting: {seconds * 1e6:6.1f} us, the target is {60 + 10 * rows}")


if __name__ == "__main__":
    main()
