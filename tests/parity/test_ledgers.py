"""A thousand mixed requests on virtual time: every ledger is closed, and stalls are charged to who caused them."""

import random

import pytest

from tests.builders import Bench, Listener
from twostroke.core.ledger import Part, StallKind
from twostroke.core.sequence import FinishReason
from twostroke.params import SamplingParams
from twostroke.schedule.config import SchedulerConfig

CONFIG = SchedulerConfig(max_rows=8, max_step_tokens=32, max_chunk_tokens=32)


def random_params(rng: random.Random) -> SamplingParams:
    stop = (chr(rng.randrange(97, 123)),) if rng.random() < 0.2 else ()
    return SamplingParams(
        temperature=rng.choice((0.0, 0.8)), max_tokens=rng.randint(1, 24), stop=stop, min_tokens=rng.choice((0, 0, 1))
    )


def test_ledgers_of_a_thousand_mixed_requests_are_closed() -> None:
    """Some share prompts, some wait for blocks, some stop early, some are cancelled at any moment."""
    rng = random.Random(5)
    bench = Bench(num_blocks=48, config=CONFIG)
    prompts = [bytes(rng.randrange(256) for _ in range(rng.choice((1, 5, 20, 60, 120)))) for _ in range(80)]
    listeners: list[Listener] = []
    alive: list[tuple[str, Listener]] = []
    while len(listeners) < 1000:
        for _ in range(rng.choice((0, 0, 0, 1, 2)) if len(alive) < 12 else 0):
            made = bench.add(rng.choice(prompts), params=random_params(rng), seed=rng.randrange(9))
            alive.append(made)
            listeners.append(made[1])
        alive = [(name, listener) for name, listener in alive if listener.finish is None]
        if alive and rng.random() < 0.03:
            bench.engine.cancel(rng.choice(alive)[0])
        if not bench.engine.step():
            bench.clock.advance(0.001)
    bench.run()
    reasons = set()
    for listener in listeners:
        assert listener.finish is not None
        ledger, e2e_s = listener.finish.account.read(), listener.finish.timing.e2e_s
        assert ledger.total_s == pytest.approx(e2e_s, abs=1e-9)
        assert all(time_s >= -1e-9 for part, time_s in ledger.parts.items()), ledger
        assert ledger.parts.get(Part.OVERHEAD, 0.0) <= max(0.001, 0.01 * e2e_s)
        assert ledger.parts.get(Part.BACKPRESSURE) is None
        reasons.add(listener.finish.reason)
    assert reasons == {FinishReason.LENGTH, FinishReason.STOP, FinishReason.CANCELLED}


def victim_alone_and_beside(num_tokens: int) -> tuple[float, float, dict[str | None, float]]:
    """E2E of the same request alone and beside a planted prompt, and what it charges to whom."""
    times, charged = [], {}
    for has_plant in (False, True):
        bench = Bench(num_blocks=num_tokens, config=CONFIG)
        _, victim = bench.add(b"abc", params=SamplingParams(max_tokens=400))
        for _ in range(3):
            bench.engine.step()
        if has_plant:
            prompt = [position % 251 for position in range(num_tokens)]
            bench.add(prompt, params=SamplingParams(max_tokens=1))
        bench.run()
        assert victim.finish is not None
        times.append(victim.finish.timing.e2e_s)
        charged = {
            stall.request_id: stall.time_s
            for stall in victim.finish.account.read().stalls
            if stall.kind is StallKind.PREFILL_OF_OTHER
        }
    return times[0], times[1], charged


def test_what_a_planted_prompt_of_four_thousand_tokens_costs_is_charged_to_it() -> None:
    alone_s, beside_s, charged = victim_alone_and_beside(4000)
    assert beside_s > 1.5 * alone_s
    assert set(charged) == {"r2"}
    assert 0.95 <= charged["r2"] / (beside_s - alone_s) <= 1.05
