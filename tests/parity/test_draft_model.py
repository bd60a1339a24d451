"""A model that reads along and guesses: several sequences a step, KV in step with what was kept, no token changed."""

import dataclasses
import itertools
import random
from collections.abc import Sequence as Seq

import pytest
from hypothesis import given, strategies as st

from tests.builders import Bench, Listener, ScriptedReader, answer_alone
from tests.builders_cost import make_cost
from tests.builders_drafts import Contrary, Doubtful, Eager, Parrot, make_drafter
from tests.builders_schedule import make_sequence
from twostroke.core.clock import VirtualClock
from twostroke.core.event import NoDraft
from twostroke.core.ledger import Part, StallKind
from twostroke.core.request import Request
from twostroke.core.sequence import Sequence
from twostroke.core.step import BlockCopy
from twostroke.engine.draft_model import MIN_CHUNK, READING_S
from twostroke.errors import KernelError
from twostroke.params import SamplingParams
from twostroke.sample.sampler import SamplingState
from twostroke.schedule.config import SchedulerConfig

PROMPTS = [bytes(range(n, n + length)) for n, length in ((1, 3), (40, 17), (7, 1), (99, 30), (40, 12))]
GREEDY = SamplingParams(max_tokens=12)
SEEDED = SamplingParams(max_tokens=12, temperature=1.0, top_p=0.9)
PENALISED = dataclasses.replace(SEEDED, repetition_penalty=1.3, frequency_penalty=0.5, presence_penalty=-0.2)
MODELS = [ScriptedReader, Contrary, Parrot, Doubtful]


def answers(prompts: Seq[bytes], params: SamplingParams, speculator: Eager | None) -> list[list[int]]:
    """Of all prompts in one engine; the draft model's blocks are whole after every step and all free at the end."""
    bench = Bench(num_blocks=128, speculator=speculator)
    listeners = [bench.add(prompt, params=params)[1] for prompt in prompts]
    while bench.engine.step():
        bench.cache.check_integrity()
        if speculator is not None:
            speculator.model.cache.check_integrity()  # type: ignore[attr-defined]
    if speculator is not None:
        assert speculator.model.cache.counts().held == 0  # type: ignore[attr-defined]
        assert not speculator.model._followers  # type: ignore[attr-defined]
    return [each.token_ids for each in listeners]


@pytest.mark.parametrize("params", [GREEDY, SEEDED, PENALISED], ids=["greedy", "seeded", "penalised"])
def test_two_hundred_prompts_have_their_plain_answers_with_any_model_and_any_length(params: SamplingParams) -> None:
    """25 prompts per draft length: a model that is always right, always wrong, repeats itself, or is half right."""
    rng = random.Random(5)
    params = dataclasses.replace(params, max_tokens=6)
    for length in range(1, 9):
        prompts = [bytes(rng.choices(range(256), k=rng.randint(1, 9))) for _ in range(25)]
        expected = answers(prompts, params, None)
        for model in MODELS:
            eager = Eager(make_drafter(model), length=length)
            assert answers(prompts, params, eager) == expected, (length, model)
            assert eager.num_drafted > 0


@pytest.mark.parametrize("params", [GREEDY, SEEDED, PENALISED], ids=["greedy", "seeded", "penalised"])
@pytest.mark.parametrize("length", [1, 3, 8])
def test_a_model_that_is_the_same_is_always_right(params: SamplingParams, length: int) -> None:
    """It draws with the noise and the wishes of each position, so seeded tokens are guessed too."""
    eager = Eager(make_drafter(), length=length)
    answers(PROMPTS, params, eager)
    assert eager.num_accepted == eager.num_drafted > 0


def test_a_contrary_model_is_never_right_and_a_verifier_that_believed_it_would_be_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = answers(PROMPTS, GREEDY, None)
    eager = Eager(make_drafter(Contrary), length=4)
    assert answers(PROMPTS, GREEDY, eager) == expected
    assert eager.num_accepted == 0
    monkeypatch.setattr("twostroke.engine.verify._is_right", lambda drafted, drawn: True)
    assert answers(PROMPTS, GREEDY, Eager(make_drafter(Contrary), length=4)) != expected


def test_several_sequences_are_guessed_for_in_one_step() -> None:
    drafter = make_drafter()
    sequences = [make_sequence(n, prompt=PROMPTS[n], max_tokens=20) for n in range(5)]
    guesses = drafter.propose([(each, length) for each, length in zip(sequences, (1, 2, 3, 4, 4), strict=True)])
    assert drafter.reader.num_steps == 4  # type: ignore[attr-defined]
    assert [len(guesses[n]) for n in range(5)] == [1, 2, 3, 4, 4]
    for n in range(5):
        assert list(guesses[n]) == answer_alone(PROMPTS[n], params=SamplingParams(max_tokens=len(guesses[n])))


def test_a_guess_after_refused_ones_stands_on_what_was_said() -> None:
    drafter = make_drafter()
    sequence = make_sequence(1, prompt=PROMPTS[1], max_tokens=40)
    wrong = drafter.propose([(sequence, 6)])[1]
    sequence.token_ids += [*wrong[:2], (wrong[2] + 1) % 256]  # two were kept, the third was another token
    assert drafter.num_unread(sequence) == 1
    expected = answer_alone(sequence.token_ids, params=SamplingParams(max_tokens=3))
    assert list(drafter.propose([(sequence, 3)])[1]) == expected
    drafter.cache.check_integrity()


@pytest.mark.parametrize("params", [SEEDED, PENALISED], ids=["seeded", "penalised"])
def test_a_seeded_guess_after_refused_ones_has_the_noise_of_its_position(params: SamplingParams) -> None:
    drafter, plain = make_drafter(), make_sequence(1, prompt=PROMPTS[1])
    request = dataclasses.replace(plain.request, params=dataclasses.replace(params, temperature=5.0, top_p=1.0))
    sequence = Sequence.from_request(request, sequence_id=1)
    wrong = drafter.propose([(sequence, 6)])[1]
    sequence.token_ids += [*wrong[:2], (wrong[2] + 1) % 256]
    assert drafter.propose([(sequence, 6)]) == make_drafter().propose([(sequence, 6)])


def test_penalties_count_what_was_said_not_what_was_guessed() -> None:
    params = SamplingParams(max_tokens=40, frequency_penalty=2.0, repetition_penalty=1.9)
    prompt, eager = PROMPTS[1], Eager(make_drafter(Doubtful), length=5)
    assert answers([prompt], params, eager) == [answer_alone(prompt, params=params)]
    assert 0 < eager.num_accepted < eager.num_drafted


def test_a_guess_stops_where_the_answer_would() -> None:
    whole = answer_alone(PROMPTS[0], params=SamplingParams(max_tokens=8))
    sequence = make_sequence(1, prompt=PROMPTS[0], max_tokens=40, stop_token_ids=[whole[2]])
    assert list(make_drafter().propose([(sequence, 8)])[1]) == whole[:3]


def test_past_its_context_it_says_so_and_decoding_goes_on() -> None:
    expected = answers([PROMPTS[1]], dataclasses.replace(GREEDY, max_tokens=60), None)
    drafter = make_drafter(context=30)
    eager = Eager(drafter, length=4)
    assert answers([PROMPTS[1]], dataclasses.replace(GREEDY, max_tokens=60), eager) == expected
    assert 8 <= eager.num_drafted <= 13  # positions 18 to 30
    assert drafter.why_not(make_sequence(1, prompt=30)) is NoDraft.CONTEXT
    assert drafter.why_not(make_sequence(1, prompt=29)) is None


def test_a_prompt_longer_than_its_context_is_never_read() -> None:
    drafter = make_drafter(context=10)
    eager = Eager(drafter, length=4)
    assert answers(PROMPTS[3:4], GREEDY, eager) == answers(PROMPTS[3:4], GREEDY, None)
    assert drafter.reader.num_steps == 0  # type: ignore[attr-defined]


def test_a_full_store_leaves_sequences_without_drafts_and_takes_them_again_when_there_is_room() -> None:
    expected = answers(PROMPTS, GREEDY, None)
    drafter = make_drafter(num_blocks=12)
    eager = Eager(drafter, length=3)
    assert answers(PROMPTS, GREEDY, eager) == expected
    assert eager.num_accepted == eager.num_drafted > 0
    first, second = make_sequence(1, prompt=40), make_sequence(2, prompt=40)
    assert 1 in drafter.propose([(first, 2)])
    assert drafter.propose([(second, 2)]) == {}
    assert drafter.why_not(second) is NoDraft.MEMORY
    drafter.forget(1)
    assert drafter.why_not(second) is None
    assert 2 in drafter.propose([(second, 2)])


def test_a_step_of_it_that_fails_ends_its_drafting_and_nothing_else() -> None:
    drafter = make_drafter()
    drafter.reader.fail_at = {3}  # type: ignore[attr-defined]
    assert answers(PROMPTS, GREEDY, Eager(drafter, length=4)) == answers(PROMPTS, GREEDY, None)
    assert drafter.why_not(make_sequence(1)) is NoDraft.FAILED


def test_a_block_that_cannot_be_copied_is_a_failed_step_too(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter, sequence = make_drafter(), make_sequence(1, prompt=PROMPTS[0])
    monkeypatch.setattr(drafter.cache, "try_reserve", lambda sequence_id, *, end: [BlockCopy(0, 1, 2)])

    def fail(group: int, source: int, target: int) -> None:
        raise KernelError("no such block")

    monkeypatch.setattr(drafter.reader, "copy_block", fail)
    assert drafter.propose([(sequence, 4)]) == {}
    assert drafter.why_not(sequence) is NoDraft.FAILED


def test_a_row_it_cannot_draw_from_guesses_nothing() -> None:
    drafter = make_drafter()
    drafter.reader.nan_after = PROMPTS[0][-1]  # type: ignore[attr-defined]
    assert drafter.propose([(make_sequence(1, prompt=PROMPTS[0]), 4)]) == {1: ()}


def test_a_long_text_is_read_in_chunks_of_a_bounded_time() -> None:
    drafter = make_drafter(cost=make_cost(token_s=READING_S / 20), num_blocks=200)
    sequence = make_sequence(1, prompt=[n % 256 for n in range(190)], max_tokens=40)
    unread = [drafter.num_unread(sequence)]
    while not drafter.propose([(sequence, 1)]).get(1):
        unread.append(drafter.num_unread(sequence))
    assert unread[0] == 190
    assert {before - after for before, after in itertools.pairwise(unread)} == {20}
    dear = make_drafter(cost=make_cost(token_s=1.0), num_blocks=200)
    dear.propose([(sequence, 1)])
    assert dear.num_unread(sequence) == 190 - MIN_CHUNK


def test_several_long_texts_share_what_is_read_whatever_it_takes_and_short_ones_are_read_whole() -> None:
    drafter = make_drafter(cost=make_cost(token_s=1.0), num_blocks=200)
    long, other = (make_sequence(n, prompt=[n, *range(100)], max_tokens=40) for n in (1, 2))
    short = [make_sequence(n, prompt=[n] * MIN_CHUNK, max_tokens=40) for n in (3, 4)]
    guesses = drafter.propose([(each, 1) for each in (long, other, *short)])
    assert [len(guesses[n]) for n in (1, 2, 3, 4)] == [0, 0, 1, 1]
    assert {drafter.num_unread(each) for each in (long, other)} == {101, 101 - MIN_CHUNK}


@pytest.mark.parametrize(("params", "is_anew"), [(GREEDY, False), (SEEDED, False), (PENALISED, True)])
def test_wishes_that_do_not_look_back_are_never_told_a_text_again(
    params: SamplingParams, is_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes milliseconds where a text is long, and guesses are wrong all the time."""
    drafter = make_drafter(Doubtful)
    start, begun = drafter.sampler.start, list[str]()

    def noted(request: Request) -> SamplingState:
        begun.append(request.request_id)
        return start(request)

    monkeypatch.setattr(drafter.sampler, "start", noted)
    eager = Eager(drafter, length=5)
    assert answers(PROMPTS, params, eager) == answers(PROMPTS, params, None)
    assert 0 < eager.num_accepted < eager.num_drafted
    assert (len(begun) > len(PROMPTS)) is is_anew


def test_a_text_read_before_is_found_again() -> None:
    drafter = make_drafter()
    prompt = [n % 256 for n in range(41)]
    drafter.propose([(make_sequence(1, prompt=prompt), 1)])
    first = make_sequence(1, prompt=prompt)
    first.token_ids.append(9)
    drafter.num_unread(first)  # the prompt is sure now
    drafter.forget(1)
    assert drafter.num_unread(make_sequence(2, prompt=prompt)) == 1
    assert drafter.num_unread(make_sequence(3, prompt=prompt, salt="another's")) == 41
    drafter.cache.check_integrity()


def test_cancelled_and_preempted_requests_leave_nothing_behind() -> None:
    drafter, params = make_drafter(), SamplingParams(max_tokens=32)
    bench = Bench(num_blocks=26, speculator=Eager(drafter, length=4))
    prompts = [prompt for prompt in PROMPTS if len(prompt) < 20]
    listeners = [bench.add(prompt, params=params)[1] for prompt in prompts]
    cancelled, _ = bench.add(PROMPTS[0], params=params)
    num_steps = 0
    while bench.engine.step():
        drafter.cache.check_integrity()
        if (num_steps := num_steps + 1) == 3:
            bench.engine.cancel(cancelled)
        running = {each.sequence_id for each in bench.scheduler.running}
        assert set(drafter._followers) <= running, "a preempted sequence holds blocks of the draft model"
    assert bench.scheduler.num_preemptions > 0
    assert drafter.cache.counts().held == 0
    assert [each.token_ids for each in listeners] == [answer_alone(prompt, params=params) for prompt in prompts]


@given(
    seed=st.integers(0, 2**16),
    num_blocks=st.integers(14, 40),
    draft_blocks=st.integers(4, 40),
    chunk=st.integers(1, 32),
    length=st.integers(1, 8),
    model=st.sampled_from(MODELS),
)
def test_no_schedule_and_no_memory_pressure_changes_a_token(
    seed: int, num_blocks: int, draft_blocks: int, chunk: int, length: int, model: type[ScriptedReader]
) -> None:
    rng = random.Random(seed)
    config = SchedulerConfig(
        max_rows=rng.randint(1, 5), max_step_tokens=32, max_chunk_tokens=chunk, enable_prefix_cache=rng.random() < 0.5
    )
    params = rng.choice((GREEDY, SEEDED, PENALISED))
    prompts = [prompt for prompt in PROMPTS if len(prompt) < 20]
    drafter = make_drafter(model, num_blocks=draft_blocks, max_step_tokens=32, context=rng.choice((24, 1000)))
    bench = Bench(num_blocks=num_blocks, config=config, speculator=Eager(drafter, length=length))
    waiting, asked = list(prompts), list[tuple[bytes, Listener]]()
    while waiting or bench.engine.has_work:
        if waiting and rng.random() < 0.4:
            asked.append((waiting[0], bench.add(waiting.pop(0), params=params)[1]))
        bench.engine.step()
        drafter.cache.check_integrity()
    assert drafter.cache.counts().held == 0
    for prompt, listener in asked:
        assert listener.token_ids == answer_alone(prompt, params=params)


def test_log_probabilities_are_those_of_the_model_itself() -> None:
    params = dataclasses.replace(GREEDY, logprobs=2)
    told = []
    for speculator in (None, Eager(make_drafter(Doubtful), length=5)):
        bench = Bench(speculator=speculator)
        _, listener = bench.add(PROMPTS[0], params=params)
        bench.run()
        told.append([(event.logprob, event.top_logprobs) for event in listener.tokens])
    assert told[0] == told[1]


def test_its_time_is_in_the_ledger_and_not_in_the_cost_of_the_models_own_steps() -> None:
    clock = VirtualClock()
    drafter = make_drafter(clock=clock)
    bench = Bench(clock=clock, speculator=Eager(drafter, length=3))
    listeners = [bench.add(prompt, params=GREEDY)[1] for prompt in PROMPTS[:2]]
    bench.run()
    for listener in listeners:
        assert listener.finish is not None
        ledger = listener.finish.account.read()
        assert ledger.total_s == pytest.approx(listener.finish.timing.e2e_s)
        assert ledger.parts[Part.SPECULATE] > 0
        assert {stall.kind for stall in ledger.stalls} >= {StallKind.DECODE_OF_OTHERS}
    assert bench.engine._fit.reads.now == pytest.approx(1.0)


def test_warming_up_measures_its_steps_and_leaves_nothing() -> None:
    drafter = make_drafter()
    drafter.fit = dataclasses.replace(drafter.fit, is_measured=False)
    drafter.warm_up()
    assert drafter.fit.num_steps > 4
    assert drafter.cache.counts().held == 0


def test_no_guess_lies_beyond_its_context() -> None:
    drafter = make_drafter(context=20)
    sequence = make_sequence(1, prompt=PROMPTS[1], max_tokens=40)  # 17 tokens
    assert len(drafter.propose([(sequence, 8)])[1]) == 3


def test_blocks_of_refused_guesses_are_given_back() -> None:
    drafter = make_drafter(block_size=4)
    sequence = make_sequence(1, prompt=range(16), max_tokens=40)
    wrong = drafter.propose([(sequence, 8)])[1]
    with_guesses = drafter.held_bytes(1)
    sequence.token_ids.append((wrong[0] + 1) % 256)
    drafter.num_unread(sequence)
    assert drafter.held_bytes(1) == 4 * drafter.kv_size.block_bytes[0] < with_guesses
