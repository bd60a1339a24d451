"""Random walks of scheduler and cache with a scripted model: invariants of every step, the only right answers."""

import random

import pytest

from tests.builders_schedule import ScriptedEngine, answer_of, make_scheduler, make_sequence, make_step_cost


def walk(seed: int, *, num_requests: int = 25) -> ScriptedEngine:
    rng = random.Random(seed)
    windows = rng.choice([(None,), (None, 6), (5,), (None, 3, 9)])
    engine = ScriptedEngine(
        make_scheduler(
            num_blocks=rng.choice([10, 13, 30]),
            block_size=rng.choice([2, 4]) if windows != (None,) else 4,
            windows=windows,
            step_cost=rng.choice([None, make_step_cost(), make_step_cost(token_s=0.004, pair_s=1e-4)]),
            max_rows=rng.choice([2, 5]),
            max_step_tokens=rng.choice([6, 16]),
            max_chunk_tokens=rng.choice([1, 4, 16]),
            min_prefill_tokens=rng.choice([1, 4]),
            enable_prefix_cache=rng.random() < 0.7,
            max_preemptions=rng.choice([0, 1, 2]),
        )
    )
    heads = [[rng.randrange(9) for _ in range(9)] for _ in range(3)]
    left, next_id = num_requests, 0
    while left or engine.scheduler.has_work:
        if left and rng.random() < 0.3:
            prompt = rng.choice(heads)[: rng.randrange(1, 10)] + [rng.randrange(9) for _ in range(rng.randrange(4))]
            sequence = make_sequence(
                next_id,
                prompt=prompt,
                max_tokens=rng.randrange(1, 8),
                arrival_s=engine.now_s,
                priority=rng.choice([0, 0, 1]),
                stop_token_ids=[7] if rng.random() < 0.3 else [],
                salt=rng.choice(["", "", "other"]),
            )
            engine.add(sequence)
            next_id, left = next_id + 1, left - 1
        if rng.random() < 0.03 and next_id:
            victim = rng.randrange(next_id)
            had_ended = victim in engine.finished
            assert (engine.abort(victim) is None) == had_ended
        engine.step()
    return engine


@pytest.mark.parametrize("seed", [*range(60), 314])  # 314: who was preempted must not start in the same plan
def test_random_schedules_give_the_only_right_answers_and_leak_nothing(seed: int) -> None:
    engine = walk(seed)
    assert len(engine.finished) == 25
    for sequence in engine.finished.values():
        answer = answer_of(sequence)
        if sequence.finish_reason == "cancelled":
            answer = answer[: sequence.num_output_tokens]
        assert sequence.output_token_ids == answer
        assert sequence.num_cached < sequence.num_prompt_tokens
    counts = engine.cache.counts()
    assert counts.held == 0
    assert counts.free + counts.cached == counts.total
