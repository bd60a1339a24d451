"""Beams in the step loop, on a model that reads its context back from the blocks: one stale copy and all is wrong."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.builders import Bench, Listener, ScriptedReader, answer_alone
from tests.strategy_reference import beam_search
from twostroke.core.ledger import Part
from twostroke.core.sequence import FinishReason
from twostroke.errors import CapacityError
from twostroke.params import BeamSearch, SamplingParams
from twostroke.schedule.admission import Admission
from twostroke.schedule.config import SchedulerConfig

PROMPT = bytes(range(40, 53))
STOPS = frozenset(range(200, 240))  # frequent enough to end some beams early


def wish(width: int, *, max_tokens: int = 8, num_return: int | None = None, **options: object) -> SamplingParams:
    beam = BeamSearch(width=width, num_return=num_return or width, **options)  # type: ignore[arg-type]
    return SamplingParams(max_tokens=max_tokens, beam=beam)


def expected(
    prompt: bytes, params: SamplingParams, stop_token_ids: frozenset[int] = frozenset()
) -> list[tuple[int, ...]]:
    assert params.beam is not None
    law = ScriptedReader(num_blocks=1, block_size=1).law
    answers = beam_search(
        law, list(prompt), beam=params.beam, stop_token_ids=stop_token_ids, max_tokens=params.max_tokens
    )
    return [answer.token_ids for answer in answers[: params.beam.num_return]]


def found(listener: Listener) -> list[tuple[int, ...]]:
    assert listener.finish is not None
    assert listener.finish.error is None
    return [beam.token_ids for beam in listener.finish.beams]


@pytest.mark.parametrize("width", [1, 2, 3, 6])
@pytest.mark.parametrize("stops", [frozenset(), STOPS])
def test_beams_are_those_of_the_law(width: int, stops: frozenset[int]) -> None:
    bench, params = Bench(), wish(width)
    _, listener = bench.add(PROMPT, params=params, stop_token_ids=stops)
    bench.run()
    assert found(listener) == expected(PROMPT, params, stops)


def test_width_one_is_greedy() -> None:
    bench = Bench()
    _, listener = bench.add(PROMPT, params=wish(1))
    bench.run()
    assert list(found(listener)[0]) == answer_alone(PROMPT)


def test_neighbours_change_nothing_on_either_side() -> None:
    bench = Bench(num_blocks=128)
    searches = [(prompt, bench.add(prompt, params=wish(3))[1]) for prompt in (PROMPT, b"abcabc")]
    _, single = bench.add(b"neighbour", params=SamplingParams(max_tokens=12))
    bench.run()
    for prompt, listener in searches:
        assert found(listener) == expected(prompt, wish(3))
    assert single.token_ids == answer_alone(b"neighbour", params=SamplingParams(max_tokens=12))


@given(
    num_blocks=st.integers(26, 60),
    chunk=st.integers(1, 32),
    widths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    gaps=st.lists(st.integers(0, 5), min_size=4, max_size=4),
    caches=st.booleans(),
)
def test_no_schedule_changes_a_search(
    num_blocks: int, chunk: int, widths: list[int], gaps: list[int], caches: bool
) -> None:
    config = SchedulerConfig(max_rows=8, max_step_tokens=32, max_chunk_tokens=chunk, enable_prefix_cache=caches)
    bench = Bench(num_blocks=num_blocks, config=config)
    asked = []
    for width, gap in zip(widths, gaps, strict=False):
        asked.append((wish(width, max_tokens=6), bench.add(PROMPT[:9], params=wish(width, max_tokens=6))[1]))
        bench.add(PROMPT[:5], params=SamplingParams(max_tokens=9))
        for _ in range(gap):
            bench.engine.step()
    bench.run()
    for params, listener in asked:
        assert found(listener) == expected(PROMPT[:9], params)


def test_the_best_answer_is_told_token_by_token_at_the_end() -> None:
    bench = Bench()
    _, listener = bench.add(PROMPT, params=wish(3, num_return=2))
    bench.run()
    finish = listener.finish
    assert finish is not None
    best, second = finish.beams
    assert tuple(listener.token_ids) == best.token_ids
    assert finish.text == best.text == "".join(map(chr, best.token_ids))
    assert best.score >= second.score
    assert finish.reason is best.finish_reason is FinishReason.LENGTH
    assert finish.usage.completion_tokens == len(best.token_ids) + len(second.token_ids)
    assert finish.timing.ttft_s == finish.timing.e2e_s
    assert finish.timing.tpot_s is None


def test_a_stop_id_shows_no_text_and_names_the_reason() -> None:
    bench = Bench()
    _, listener = bench.add(PROMPT, params=wish(4, max_tokens=16), stop_token_ids=STOPS)
    bench.run()
    assert listener.finish is not None
    ended = [beam for beam in listener.finish.beams if beam.token_ids[-1] in STOPS]
    assert ended, "the law wants stop ids"
    for beam in ended:
        assert beam.finish_reason is FinishReason.STOP
        assert beam.text == "".join(map(chr, beam.token_ids[:-1]))


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
def test_a_cancelled_search_leaves_nothing_held(num_steps: int) -> None:
    bench = Bench(config=SchedulerConfig(max_rows=8, max_step_tokens=32, max_chunk_tokens=7))
    request_id, listener = bench.add(PROMPT, params=wish(4))
    for _ in range(num_steps):
        bench.engine.step()
    bench.engine.cancel(request_id)
    assert bench.engine.snapshot().blocks_held == 0
    bench.cache.check_integrity()
    assert listener.finish is not None
    assert listener.finish.reason is FinishReason.CANCELLED
    assert not bench.engine.has_work


def test_a_step_that_fails_ends_the_search_and_no_other() -> None:
    bench = Bench()
    _, listener = bench.add(PROMPT, params=wish(3))
    bench.reader.fail_at = {3}
    bench.run()
    assert listener.finish is not None
    assert listener.finish.reason is FinishReason.ERROR
    assert "told to fail" in (listener.finish.error or "")
    _, later = bench.add(PROMPT, params=wish(3))
    bench.run()
    assert found(later) == expected(PROMPT, wish(3))


def test_one_broken_row_ends_its_own_search_alone() -> None:
    bench = Bench()
    bench.reader.nan_after = expected(PROMPT, wish(3))[0][2]
    _, listener = bench.add(PROMPT, params=wish(3))
    _, neighbour = bench.add(b"abc", params=wish(1, max_tokens=3))
    bench.run()
    assert listener.finish is not None
    assert "a logit is nan" in (listener.finish.error or "")
    assert neighbour.finish is not None
    assert neighbour.finish.error is None


def test_the_prompt_is_held_once_and_no_more_than_was_set_aside() -> None:
    """blocks(prompt) + width * (ceil(generated / block) + 1) is the promise of the documentation."""
    bench, width, max_tokens = Bench(), 4, 10
    bench.add(PROMPT, params=wish(width, max_tokens=max_tokens))
    most = 0
    while bench.engine.step():
        most = max(most, bench.engine.snapshot().blocks_held)
    allowed = bench.cache.peak_blocks_of_beams(len(PROMPT), len(PROMPT) + max_tokens - 1, width=width, max_chunk=32)
    assert most <= allowed[0] <= -(-len(PROMPT) // 4) + width * (-(-max_tokens // 4) + 1)
    assert most > -(-(len(PROMPT) + max_tokens) // 4), "beams did not even grow apart"


def test_more_beams_than_rows_or_blocks_are_refused_with_the_arithmetic() -> None:
    bench = Bench(num_blocks=8)
    with pytest.raises(
        CapacityError, match="9 beams need as many rows of a step, it has 8: use 8 beams or fewer"
    ) as refused:
        bench.add(PROMPT, params=wish(9))
    assert refused.value.field == "width"
    with pytest.raises(CapacityError, match=r"for 4 beams needs 15 KV blocks of 4 tokens, KV group 0 has 8"):
        bench.add(PROMPT, params=wish(4, max_tokens=12))
    assert not bench.engine.has_work


def test_beams_take_their_rows_before_others_may_start() -> None:
    config = SchedulerConfig(max_rows=4, max_step_tokens=32, max_chunk_tokens=32)
    bench = Bench(config=config)
    for prompt in (PROMPT, b"abcd"):
        bench.add(prompt, params=wish(3))
    bench.engine.step()
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (3, 1)
    most = 0
    while bench.engine.step():
        most = max(most, bench.scheduler.num_running)
    assert most <= 4


def test_a_search_that_memory_interrupts_begins_anew_and_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beams are promised all they can need; where that promise breaks (here: a third of it) nothing else does."""
    honest = Admission._most
    monkeypatch.setattr(Admission, "_most", lambda self, each: tuple(n // 3 for n in honest(self, each)))
    bench = Bench(num_blocks=18)
    searches = [(prompt, bench.add(prompt, params=wish(3, max_tokens=10))[1]) for prompt in (PROMPT, b"abcabcabc")]
    bench.run()
    assert bench.scheduler.num_preemptions > 0, "the test wants memory pressure"
    for prompt, listener in searches:
        assert found(listener) == expected(prompt, wish(3, max_tokens=10))


class Counting:
    """Lets ids follow each other by their rests modulo 3, from 0 on; never the end."""

    def __init__(self, num_said: int = 0) -> None:
        self.num_said = num_said

    def allowed(self) -> bytes:
        return np.packbits(np.arange(256) % 3 == self.num_said % 3, bitorder="little").tobytes()

    def advance(self, token_id: int) -> None:
        assert token_id % 3 == self.num_said % 3, "what is not allowed came"
        self.num_said += 1

    def behind(self, token_id: int) -> "Counting":
        raise AssertionError("a search has no drafts")

    def fork(self) -> "Counting":
        return Counting(self.num_said)


def test_every_beam_follows_the_grammar_from_its_beginning_even_when_the_search_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params, prompts = wish(3, max_tokens=10), (PROMPT, b"abcabcabc")
    undisturbed = []
    for prompt in prompts:
        quiet = Bench()
        undisturbed.append(quiet.add(prompt, params=params, grammar=Counting())[1])
        quiet.run()
    honest = Admission._most
    monkeypatch.setattr(Admission, "_most", lambda self, each: tuple(n // 3 for n in honest(self, each)))
    bench, grammar = Bench(num_blocks=16), Counting()
    listeners = [bench.add(prompt, params=params, grammar=grammar)[1] for prompt in prompts]
    bench.run()
    assert bench.scheduler.num_preemptions > 0, "the test wants memory pressure"
    assert grammar.num_said == 0, "the request's own stays at its beginning"
    for listener, alone in zip(listeners, undisturbed, strict=True):
        assert found(listener) == found(alone)
        for token_ids in found(listener):
            assert [token_id % 3 for token_id in token_ids] == [0, 1, 2] * 3 + [0]


def test_the_ledger_of_a_search_closes() -> None:
    bench = Bench()
    _, listener = bench.add(PROMPT, params=wish(3))
    bench.add(b"abc", params=SamplingParams(max_tokens=12))
    bench.run()
    assert listener.finish is not None
    ledger = listener.finish.account.read()
    assert ledger.total_s == pytest.approx(listener.finish.timing.e2e_s)
    assert ledger.parts[Part.DECODE] > 0
    assert len(listener.finish.account.steps) == 8, "one entry per step, however many rows"


def test_length_is_the_answers_alone_whatever_stands_beside_it() -> None:
    """Prompts of 3 and 30 tokens in one batch: no padding and no prompt counts as length."""
    short, long, params = b"abc", bytes(range(100, 130)), wish(3, length_penalty=3.0)
    bench = Bench(num_blocks=128)
    listeners = [(prompt, bench.add(prompt, params=params, stop_token_ids=STOPS)[1]) for prompt in (short, long)]
    bench.run()
    for prompt, listener in listeners:
        assert found(listener) == expected(prompt, params, STOPS)


def test_a_stop_string_ends_beams_and_is_not_shown() -> None:
    bench = Bench()
    best = expected(PROMPT, wish(3, length_penalty=0.0))[0]
    stop = "".join(map(chr, best[1:3]))
    params = dataclasses.replace(wish(3, length_penalty=0.0), stop=(stop,))
    _, listener = bench.add(PROMPT, params=params)
    bench.run()
    assert listener.finish is not None
    ended = [beam for beam in listener.finish.beams if beam.finish_reason is FinishReason.STOP]
    assert ended
    for beam in ended:
        assert beam.token_ids[1:] == best[1:3]
        assert beam.text == chr(beam.token_ids[0])
