"""Verified drafts in the step loop: the tokens are those of plain decoding, whatever is guessed beside whatever."""

import dataclasses
import random
from collections.abc import Mapping, Sequence as Seq
from functools import cache
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.builders import Bench, Listener, ScriptedReader, answer_alone
from tests.builders_drafts import Forced
from twostroke.core.account import StepRecord
from twostroke.core.ledger import Part
from twostroke.core.sequence import FinishReason, Sequence
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.params import SamplingParams
from twostroke.schedule.config import SchedulerConfig
from twostroke.strategy.ngram import NgramDrafter
from twostroke.strategy.speculation import SpeculationControl

PROMPTS = tuple(bytes(range(n, n + length)) for n, length in ((1, 3), (40, 17), (7, 1), (99, 30), (40, 12)))
GREEDY = SamplingParams(max_tokens=14)
SEEDED = SamplingParams(max_tokens=14, temperature=1.0, top_p=0.9, repetition_penalty=1.3, frequency_penalty=0.5)

CHAINED = SamplingParams(
    max_tokens=14,
    temperature=1.2,
    dynatemp_range=0.5,
    typical_p=0.9,
    top_n_sigma=2.0,
    xtc_probability=0.5,
    dry_multiplier=0.8,
    no_repeat_ngram_size=2,
    presence_penalty=0.5,
    penalty_last_n=5,
)
MIROSTAT = SamplingParams(max_tokens=14, temperature=1.0, mirostat_tau=3.0, mirostat_eta=0.5, dry_multiplier=0.8)


@cache
def answers_of(
    prompts: tuple[bytes, ...], params: SamplingParams
) -> dict[tuple[tuple[int, ...], SamplingParams], list[int]]:
    return {(tuple(prompt), params): answer_alone(prompt, params=params) for prompt in prompts}


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize("wrong", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("params", [GREEDY, SEEDED, CHAINED, MIROSTAT], ids=["greedy", "seeded", "chained", "mirostat"])
def test_tokens_are_those_of_plain_decoding(params: SamplingParams, length: int, wrong: float) -> None:
    answers = answers_of(PROMPTS, params)
    forced = Forced(answers, length=length, wrong=wrong)
    bench = Bench(num_blocks=96, speculator=forced)
    listeners = [bench.add(prompt, params=params)[1] for prompt in PROMPTS]
    bench.run()
    assert [each.token_ids for each in listeners] == [answers[tuple(prompt), params] for prompt in PROMPTS]
    assert forced.num_drafted > 0
    if wrong == 0.0:
        assert forced.num_accepted >= 0.8 * 13 * len(PROMPTS) * length / (length + 1)
    if wrong == 1.0:
        assert forced.num_accepted == 0


def test_two_hundred_prompts_greedy_and_seeded() -> None:
    rng = random.Random(4)
    prompts = tuple(bytes(rng.choices(range(256), k=rng.randint(1, 9))) for _ in range(100))
    for params in (dataclasses.replace(GREEDY, max_tokens=6), dataclasses.replace(SEEDED, max_tokens=6)):
        answers = answers_of(prompts, params)
        bench = Bench(num_blocks=64, speculator=Forced(answers, length=4, wrong=0.4))
        listeners = [bench.add(prompt, params=params)[1] for prompt in prompts]
        bench.run()
        assert [each.token_ids for each in listeners] == [answers[tuple(prompt), params] for prompt in prompts]


def test_a_verifier_that_kept_every_draft_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = answers_of(PROMPTS, GREEDY)
    monkeypatch.setattr("twostroke.engine.verify._is_right", lambda drafted, drawn: True)
    bench = Bench(num_blocks=96, speculator=Forced(answers, length=4, wrong=0.5))
    listeners = [bench.add(prompt, params=GREEDY)[1] for prompt in PROMPTS]
    bench.run()
    assert [each.token_ids for each in listeners] != [answers[tuple(prompt), GREEDY] for prompt in PROMPTS]


@given(
    seed=st.integers(0, 2**16),
    num_blocks=st.integers(14, 40),
    chunk=st.integers(1, 32),
    length=st.integers(1, 8),
    wrong=st.sampled_from([0.0, 0.2, 0.7]),
)
def test_no_schedule_and_no_memory_pressure_changes_a_token(
    seed: int, num_blocks: int, chunk: int, length: int, wrong: float
) -> None:
    rng = random.Random(seed)
    config = SchedulerConfig(
        max_rows=rng.randint(1, 5), max_step_tokens=32, max_chunk_tokens=chunk, enable_prefix_cache=rng.random() < 0.5
    )
    params = rng.choice((GREEDY, SEEDED, CHAINED, MIROSTAT))
    prompts = tuple(prompt for prompt in PROMPTS if len(prompt) < 20)
    answers = answers_of(prompts, params)
    bench = Bench(
        num_blocks=num_blocks, config=config, speculator=Forced(answers, length=length, wrong=wrong, seed=seed)
    )
    waiting, asked = list(prompts), list[tuple[bytes, Listener]]()
    while waiting or bench.engine.has_work:
        if waiting and rng.random() < 0.4:
            asked.append((waiting[0], bench.add(waiting.pop(0), params=params)[1]))
        bench.engine.step()
        bench.cache.check_integrity()
    assert bench.engine.snapshot().blocks_held == 0
    for prompt, listener in asked:
        assert listener.token_ids == answers[tuple(prompt), params]


def test_fewer_steps_and_as_many_tokens() -> None:
    answers = answers_of(PROMPTS[:1], GREEDY)
    plain, fast = Bench(), Bench(speculator=Forced(answers, length=6, wrong=0.0))
    for bench in (plain, fast):
        bench.add(PROMPTS[0], params=GREEDY)
        bench.run()
    assert plain.reader.num_steps == 14
    assert fast.reader.num_steps == 3  # the prompt's, then 7 and 6 tokens


def test_stop_strings_and_ids_inside_a_draft_end_the_answer_there() -> None:
    whole = answer_alone(PROMPTS[1], params=GREEDY)
    with_stop = dataclasses.replace(GREEDY, stop=("".join(map(chr, whole[3:5])),))
    answers = {(tuple(PROMPTS[1]), params): whole for params in (GREEDY, with_stop)}
    bench = Bench(speculator=Forced(answers, length=8, wrong=0.0))
    _, by_text = bench.add(PROMPTS[1], params=with_stop)
    _, by_id = bench.add(PROMPTS[1], params=GREEDY, stop_token_ids=frozenset({whole[4]}))
    bench.run()
    for listener in (by_text, by_id):
        assert listener.finish is not None
        assert listener.finish.reason is FinishReason.STOP
        assert listener.token_ids == whole[:5]
        assert listener.finish.usage.completion_tokens == 5
    assert by_text.text == "".join(map(chr, whole[:3]))


def test_an_answer_never_grows_past_its_length() -> None:
    params = SamplingParams(max_tokens=3)
    longer = {(prompt, params): answer for (prompt, _), answer in answers_of(PROMPTS[:2], GREEDY).items()}
    bench = Bench(speculator=Forced(longer, length=8, wrong=0.0))
    listeners = [bench.add(prompt, params=params)[1] for prompt in PROMPTS[:2]]
    bench.run()
    assert [each.token_ids for each in listeners] == [longer[tuple(prompt), params][:3] for prompt in PROMPTS[:2]]


def test_log_probabilities_come_with_every_verified_token() -> None:
    params = dataclasses.replace(GREEDY, logprobs=2)
    answers = answers_of(PROMPTS[:1], params)
    told = []
    for speculator in (None, Forced(answers, length=5, wrong=0.2)):
        bench = Bench(speculator=speculator)
        _, listener = bench.add(PROMPTS[0], params=params)
        bench.run()
        told.append([(event.logprob, event.top_logprobs) for event in listener.tokens])
    assert told[0] == told[1]


def test_the_ledger_closes_and_names_what_drafts_took() -> None:
    answers = answers_of(PROMPTS[:2], GREEDY)
    bench = Bench(speculator=Forced(answers, length=5, wrong=0.3))
    listeners = [bench.add(prompt, params=GREEDY)[1] for prompt in PROMPTS[:2]]
    bench.run()
    for listener in listeners:
        assert listener.finish is not None
        ledger = listener.finish.account.read()
        assert ledger.total_s == pytest.approx(listener.finish.timing.e2e_s)
        assert ledger.parts[Part.SPECULATE] > 0
        assert ledger.parts[Part.DECODE] > 0


def test_only_steps_that_looked_for_guesses_book_the_time_and_pay_for_it() -> None:
    """Where nothing is worth a look, the account of each request stays as short as without drafts."""
    paid: list[float] = []

    class Slow(Forced):
        """Looks in every other step, half a second each."""

        num_steps = 0

        def has_nothing(self, num_running: int) -> bool:
            self.num_steps += 1
            return self.num_steps % 2 == 0

        def draft(self, decoding: Seq[Sequence], cost: StepCost) -> Mapping[int, tuple[int, ...]]:
            bench.clock.advance(0.5)
            return {}

        def learn(self, rows: Seq[RowPlan], num_grown: Mapping[int, int], **facts: Any) -> None:
            paid.append(facts["draft_s"])

    bench = Bench(speculator=Slow({}, length=1, wrong=0.0))
    records: list[StepRecord] = []
    bench.engine.observe_steps(records.append)
    bench.add(PROMPTS[0], params=GREEDY)
    bench.run()
    # nobody decodes in the first
    assert [record.draft_s for record in records] == pytest.approx([0.0, 0.0, *[0.5, 0.0] * 6])
    assert paid == [record.draft_s for record in records]


def test_a_step_that_fails_with_drafts_fails_its_requests_alone() -> None:
    answers = answers_of(PROMPTS[:2], GREEDY)
    bench = Bench(speculator=Forced(answers, length=4, wrong=0.0))
    bench.reader.fail_at = {2}
    _, broken = bench.add(PROMPTS[0], params=GREEDY)
    bench.run()
    assert broken.finish is not None
    assert broken.finish.reason is FinishReason.ERROR
    _, later = bench.add(PROMPTS[1], params=GREEDY)
    bench.run()
    assert later.token_ids == answers[tuple(PROMPTS[1]), GREEDY]


def test_a_draft_behind_a_broken_row_of_logits_is_never_taken() -> None:
    whole = answer_alone(PROMPTS[0], params=GREEDY)
    bench = Bench(speculator=Forced({(tuple(PROMPTS[0]), GREEDY): whole}, length=6, wrong=0.0))
    bench.reader.nan_after = whole[3]
    _, listener = bench.add(PROMPTS[0], params=GREEDY)
    bench.run()
    assert listener.finish is not None
    assert "a logit is nan" in (listener.finish.error or "")


class Repeating(ScriptedReader):
    """The next token is the one that followed the last token's first appearance: a text that repeats its prompt."""

    def law(self, context: Seq[int]):  # type: ignore[no-untyped-def]
        logits = super().law(context)
        place = list(context).index(context[-1])
        logits[context[place + 1] if place + 1 < len(context) else context[0]] += 50
        return logits


def test_prompt_lookup_finds_a_repeated_text_and_says_what_it_won() -> None:
    prompt, params = bytes(range(60, 90)), SamplingParams(max_tokens=60)
    benches = [Bench(), Bench(speculator=SpeculationControl(NgramDrafter()))]
    told = []
    for bench in benches:
        bench.reader.__class__ = Repeating
        _, listener = bench.add(prompt, params=params)
        bench.run()
        told.append(listener)
    assert told[0].token_ids == told[1].token_ids
    assert benches[1].reader.num_steps < 0.5 * benches[0].reader.num_steps
    assert told[1].finish is not None
    speculation = told[1].finish.speculation
    assert speculation is not None
    assert speculation.accepted > 30
    assert told[0].finish is not None
    assert told[0].finish.speculation is None


def test_an_empty_draft_is_a_plain_step_and_nothing_grows() -> None:
    """A text without repetition: the look-up finds nothing for long, then a passage comes again."""
    lookup = NgramDrafter()
    control = SpeculationControl(lookup)
    bench = Bench(speculator=control, num_blocks=128)
    params = SamplingParams(max_tokens=200)
    _, listener = bench.add(PROMPTS[4], params=params)
    bench.run()
    plain = Bench(num_blocks=128)
    _, expected = plain.add(PROMPTS[4], params=params)
    plain.run()
    assert listener.token_ids == expected.token_ids
    assert not control._records
    assert not lookup._runs
