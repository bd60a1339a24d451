"""The step loop on doubles: same tokens whatever happens around them, failures that stay alone, closed accounts."""

import random

import pytest
from hypothesis import given, strategies as st

from tests.builders import VOCAB, Bench, ByteText, Listener, ScriptedReader, answer_alone
from twostroke.core.account import StepRecord
from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.core.ledger import Part, StallKind
from twostroke.core.sequence import FinishReason
from twostroke.errors import CapacityError, ParamsError
from twostroke.params import SamplingParams
from twostroke.schedule.config import SchedulerConfig

PROMPTS = [bytes(range(n, n + length)) for n, length in ((1, 3), (40, 17), (7, 1), (99, 40), (40, 12))]
SEEDED = SamplingParams(max_tokens=8, temperature=1.0, top_p=0.9)


def test_the_answer_follows_the_law_of_its_whole_context() -> None:
    law = ScriptedReader(num_blocks=1, block_size=1).law
    context = list(b"abc")
    for token_id in answer_alone(b"abc"):
        assert token_id == law(context).argmax()
        context.append(token_id)


@pytest.mark.parametrize("params", [SamplingParams(max_tokens=8), SEEDED])
def test_a_batch_answers_like_one_by_one(params: SamplingParams) -> None:
    bench = Bench()
    listeners = [bench.add(prompt, params=params)[1] for prompt in PROMPTS]
    bench.run()
    assert [each.token_ids for each in listeners] == [answer_alone(prompt, params=params) for prompt in PROMPTS]


@pytest.mark.parametrize("chunk", [1, 3, 32])
def test_a_chunked_prompt_answers_like_a_whole_one(chunk: int) -> None:
    bench = Bench(config=SchedulerConfig(max_rows=8, max_step_tokens=32, max_chunk_tokens=chunk))
    _, listener = bench.add(PROMPTS[3])
    bench.run()
    assert listener.token_ids == answer_alone(PROMPTS[3])


def test_a_repeated_prompt_is_read_from_the_cache_and_answers_the_same() -> None:
    bench = Bench()
    answers = []
    for _ in range(2):
        _, listener = bench.add(PROMPTS[3])
        bench.run()
        answers.append(listener)
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[0].finish is not None
    assert answers[1].finish is not None
    assert answers[0].finish.usage.cached_tokens == 0
    assert answers[1].finish.usage.cached_tokens == 36  # 9 whole blocks of 4; the last prompt token is computed


def test_preempted_sequences_answer_like_undisturbed_ones() -> None:
    bench = Bench(num_blocks=12)
    params = SamplingParams(max_tokens=20)
    listeners = [bench.add(prompt, params=params)[1] for prompt in PROMPTS if len(prompt) < 20]
    bench.run()
    expected = [answer_alone(prompt, params=params) for prompt in PROMPTS if len(prompt) < 20]
    assert [each.token_ids for each in listeners] == expected
    assert bench.scheduler.num_preemptions > 0, "the test wants memory pressure"


@given(st.integers(0, 2**32 - 1))
def test_random_schedules_give_one_answer_per_prompt(seed: int) -> None:
    rng = random.Random(seed)
    config = SchedulerConfig(
        max_rows=rng.randint(1, 6),
        max_step_tokens=rng.randint(8, 32),
        max_chunk_tokens=rng.randint(1, 32),
        enable_prefix_cache=rng.random() < 0.5,
    )
    bench = Bench(num_blocks=rng.randint(14, 40), config=config)
    waiting = [(prompt, rng.choice((SamplingParams(max_tokens=8), SEEDED))) for prompt in PROMPTS * 2]
    rng.shuffle(waiting)
    asked: list[tuple[bytes, SamplingParams, Listener]] = []
    while waiting or bench.engine.has_work:
        if waiting and rng.random() < 0.4:
            prompt, params = waiting.pop()
            asked.append((prompt, params, bench.add(prompt, params=params)[1]))
        bench.engine.step()
        bench.cache.check_integrity()
    for prompt, params, listener in asked:
        assert listener.token_ids == answer_alone(prompt, params=params)


def test_stop_strings_end_an_answer_across_token_borders_and_stay_hidden() -> None:
    whole = answer_alone(b"abc")
    stop = "".join(map(chr, whole[2:4]))
    bench = Bench()
    _, listener = bench.add(b"abc", params=SamplingParams(max_tokens=8, stop=(stop,)))
    bench.run()
    assert listener.text == "".join(map(chr, whole[:2]))
    assert listener.finish is not None
    assert listener.finish.reason is FinishReason.STOP
    assert listener.finish.usage.completion_tokens == 4


def test_stop_ids_end_an_answer_and_show_no_text() -> None:
    whole = answer_alone(b"abc")
    bench = Bench()
    _, listener = bench.add(b"abc", stop_token_ids=frozenset({whole[3]}))
    bench.run()
    assert listener.token_ids == whole[:4]
    assert listener.text == "".join(map(chr, whole[:3]))
    assert listener.finish is not None
    assert listener.finish.reason is FinishReason.STOP


def test_length_ends_an_answer() -> None:
    bench = Bench()
    _, listener = bench.add(b"abc", params=SamplingParams(max_tokens=3))
    bench.run()
    assert listener.finish is not None
    assert listener.finish.reason is FinishReason.LENGTH
    assert len(listener.token_ids) == 3


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
def test_cancel_takes_effect_at_once_inside_prefill_and_decode(num_steps: int) -> None:
    bench = Bench(config=SchedulerConfig(max_rows=8, max_step_tokens=16, max_chunk_tokens=16))
    request_id, listener = bench.add(bytes(range(40)))
    for _ in range(num_steps):
        bench.engine.step()
    bench.engine.cancel(request_id)
    assert listener.finish is not None
    assert listener.finish.reason is FinishReason.CANCELLED
    assert bench.engine.snapshot().blocks_held == 0
    assert not bench.engine.has_work


def test_cancelling_a_finished_request_changes_nothing() -> None:
    bench = Bench()
    request_id, _ = bench.add(b"abc")
    bench.run()
    bench.engine.cancel(request_id)
    bench.engine.cancel("never heard of")


def test_a_kernel_error_fails_its_step_and_the_engine_goes_on() -> None:
    bench = Bench()
    bench.reader.fail_at = {2}
    _, first = bench.add(b"abc")
    bench.run()
    _, second = bench.add(b"abc")
    bench.run()
    assert first.finish is not None
    assert first.finish.reason is FinishReason.ERROR
    assert "told to fail" in (first.finish.error or "")
    assert second.token_ids == answer_alone(b"abc")


def test_a_row_of_nan_fails_alone() -> None:
    bench = Bench()
    bench.reader.nan_after = ord("z")
    _, broken = bench.add(b"xyz")
    _, healthy = bench.add(b"abc")
    bench.run()
    assert broken.finish is not None
    assert broken.finish.reason is FinishReason.ERROR
    assert "nan" in (broken.finish.error or "")
    assert healthy.token_ids == answer_alone(b"abc")


def test_a_listener_that_raises_loses_its_request_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    told: list[Event] = []

    def deaf(event: Event) -> None:
        told.append(event)
        raise ValueError("deaf")

    bench.add(b"abc")
    bench.engine._live["r1"].stream._listener = deaf
    _, neighbour = bench.add(b"abcd")
    bench.run()
    assert neighbour.token_ids == answer_alone(b"abcd")
    assert "deaf" in caplog.text
    first, finish = told
    assert isinstance(first, TokenEvent)
    assert isinstance(finish, FinishEvent)
    assert (finish.reason, finish.error) == (FinishReason.ERROR, "its listener raised ValueError('deaf')")


def test_what_can_never_fit_is_refused_and_leaves_nothing_behind() -> None:
    bench = Bench(num_blocks=4, block_size=4)
    with pytest.raises(CapacityError, match="needs 5 KV blocks of 4 tokens, KV group 0 has 4: max_tokens of 7 fits"):
        bench.add(bytes(10), params=SamplingParams(max_tokens=8))  # 18 tokens, the last never computed
    assert not bench.engine.has_work
    _, listener = bench.add(b"abc")
    bench.run()
    assert len(listener.token_ids) == 8


def test_fail_all_ends_everything_with_an_error() -> None:
    bench = Bench()
    _, running = bench.add(b"abc")
    bench.engine.step()
    _, waiting = bench.add(b"abcd")
    bench.engine.fail_all(RuntimeError("boom"))
    for listener in (running, waiting):
        assert listener.finish is not None
        assert listener.finish.reason is FinishReason.ERROR
        assert "boom" in (listener.finish.error or "")
    assert not bench.engine.has_work


def test_logits_scores_a_text_beside_the_schedule() -> None:
    bench = Bench()
    _, listener = bench.add(b"abc")
    bench.engine.step()
    scores = bench.engine.logits(list(b"hello there"))
    bench.run()
    assert listener.token_ids == answer_alone(b"abc")
    for end in range(1, 12):
        assert (scores[end - 1] == bench.reader.law(list(b"hello there")[:end])).all()


def test_parts_of_a_ledger_add_up_to_the_end_to_end_time() -> None:
    bench = Bench()
    listeners = [bench.add(prompt)[1] for prompt in PROMPTS]
    bench.run()
    for listener in listeners:
        assert listener.finish is not None
        ledger = listener.finish.account.read()
        assert ledger.total_s == pytest.approx(listener.finish.timing.e2e_s, abs=1e-9)
        assert min(ledger.parts.values()) >= 0
        assert ledger.parts.get(Part.OVERHEAD, 0.0) < 0.01 * listener.finish.timing.e2e_s


def test_the_ledger_closed_at_the_first_token_adds_up_to_ttft() -> None:
    bench = Bench(config=SchedulerConfig(max_rows=8, max_step_tokens=16, max_chunk_tokens=16))
    _, listener = bench.add(bytes(range(40)))
    bench.run()
    assert listener.finish is not None
    account = listener.finish.account
    ledger = account.read(until_s=account.first_token_s)
    assert ledger.total_s == pytest.approx(listener.finish.timing.ttft_s, abs=1e-9)
    assert Part.DECODE not in ledger.parts


def test_a_long_prompt_is_charged_for_the_stall_of_its_victim() -> None:
    bench = Bench(num_blocks=200, config=SchedulerConfig(max_rows=8, max_step_tokens=32, max_chunk_tokens=32))
    _, victim = bench.add(b"abc", params=SamplingParams(max_tokens=30))
    bench.engine.step()
    bench.engine.step()
    culprit, _ = bench.add(bytes(i % 251 for i in range(400)), params=SamplingParams(max_tokens=1))
    bench.run()
    assert victim.finish is not None
    ledger = victim.finish.account.read()
    prefill = [stall for stall in ledger.stalls if stall.kind is StallKind.PREFILL_OF_OTHER]
    assert {stall.request_id for stall in prefill} == {culprit}
    assert sum(stall.time_s for stall in prefill) > 0.9 * sum(stall.time_s for stall in ledger.stalls)


def test_timing_follows_the_definitions() -> None:
    bench = Bench()
    _, listener = bench.add(b"abc", params=SamplingParams(max_tokens=5))
    bench.run()
    finish = listener.finish
    assert finish is not None
    times = [event.time_s for event in listener.tokens]
    assert finish.timing.ttft_s == times[0]
    assert finish.timing.tpot_s == pytest.approx((times[-1] - times[0]) / 4)
    assert finish.timing.first_text_s == times[0]


def test_one_token_has_no_tpot() -> None:
    bench = Bench()
    _, listener = bench.add(b"abc", params=SamplingParams(max_tokens=1))
    bench.run()
    assert listener.finish is not None
    assert listener.finish.timing.tpot_s is None


def test_a_listener_that_raises_at_the_last_token_still_ends_once() -> None:
    bench = Bench()
    bench.add(b"abc", params=SamplingParams(max_tokens=1))
    stream = bench.engine._live["r1"].stream
    told: list[Event] = []

    def deaf(event: Event) -> None:
        told.append(event)
        raise ValueError("deaf")

    stream._listener = deaf
    bench.run()
    assert [type(event) for event in told] == [TokenEvent, FinishEvent]


def test_a_request_the_text_stream_refuses_leaves_nothing_behind() -> None:
    def broken(request: object) -> ByteText:
        raise ZeroDivisionError("a bug")

    bench = Bench(new_text=broken)
    with pytest.raises(ZeroDivisionError):
        bench.add(b"abc")
    assert not bench.engine.has_work
    assert bench.engine.snapshot().num_waiting == 0
    assert not bench.engine.step()


def test_everyone_hears_the_end_even_when_the_scheduler_is_at_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    listeners = [bench.add(prompt)[1] for prompt in PROMPTS]

    def broken(*args: object, **options: object) -> None:
        raise AssertionError("an invariant")

    monkeypatch.setattr(bench.scheduler, "abort", broken)
    bench.engine.fail_all(RuntimeError("boom"))
    assert [each.finish.reason for each in listeners if each.finish] == [FinishReason.ERROR] * len(PROMPTS)
    assert "an invariant" in caplog.text
    assert not bench.engine.has_work


def test_scores_fit_into_the_steps_of_a_small_engine() -> None:
    bench = Bench()  # 32 tokens a step
    text = list(range(50))
    scores = bench.engine.logits(text)
    assert scores.shape == (50, VOCAB)
    assert all((scores[end - 1] == bench.reader.law(text[:end])).all() for end in (1, 32, 33, 50))


def test_scores_that_do_not_fit_beside_others_say_so_and_leave_nothing_behind() -> None:
    bench = Bench(num_blocks=12)
    _, listener = bench.add(bytes(range(20)), params=SamplingParams(max_tokens=8))
    bench.engine.step()
    held = bench.engine.snapshot().blocks_held
    with pytest.raises(CapacityError, match=r"40 tokens need .* 1 running requests leave .*: try later"):
        bench.engine.logits(list(range(40)))
    assert bench.engine.snapshot().blocks_held == held
    bench.run()
    assert listener.token_ids == answer_alone(bytes(range(20)))


def test_a_started_sequence_without_a_row_books_the_step_as_a_stall() -> None:
    config = SchedulerConfig(max_rows=8, max_step_tokens=10, max_chunk_tokens=8)
    bench = Bench(config=config)
    _, long = bench.add(bytes(range(100, 130)), params=SamplingParams(max_tokens=1))
    bench.engine.step()
    others = [bench.add(bytes([n] * 8), params=SamplingParams(max_tokens=1))[1] for n in range(3)]
    bench.run()
    assert all(other.finish for other in others)
    assert long.finish is not None
    ledger = long.finish.account.read()
    assert StallKind.SCHEDULER in {stall.kind for stall in ledger.stalls}
    assert ledger.total_s == pytest.approx(long.finish.timing.e2e_s, abs=1e-9)


def test_a_waiting_request_has_no_steps_in_its_account() -> None:
    bench = Bench(config=SchedulerConfig(max_rows=1, max_step_tokens=32, max_chunk_tokens=32))
    bench.add(b"abc")
    _, waiting = bench.add(b"abcd", params=SamplingParams(max_tokens=2))
    bench.run()
    assert waiting.finish is not None
    assert len(waiting.finish.account.steps) == 2
    assert not bench.engine._started


class FailingText(ByteText):
    """Raises where it is told to."""

    def __init__(self, where: str, error: BaseException) -> None:
        self.where = where
        self.error = error

    def push(self, token_id: int) -> str:
        if self.where == "push":
            raise self.error
        return super().push(token_id)

    def flush(self) -> str:
        if self.where == "flush":
            raise self.error
        return super().flush()


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), SystemExit(3)])
@pytest.mark.parametrize(("where", "num_told"), [("push", 0), ("flush", 8)])
@pytest.mark.parametrize("max_tokens", [1, 8])
def test_a_text_that_fails_ends_its_own_request_with_an_error(
    caplog: pytest.LogCaptureFixture, where: str, num_told: int, max_tokens: int, error: BaseException
) -> None:
    texts = {"r1": FailingText(where, error)}
    bench = Bench(new_text=lambda request: texts.get(request.request_id, ByteText()))
    params = SamplingParams(max_tokens=max_tokens)
    _, failing = bench.add(b"abc", params=params)
    _, neighbour = bench.add(b"abcd")
    bench.run()
    assert neighbour.token_ids == answer_alone(b"abcd")
    assert len(failing.token_ids) == min(num_told, max_tokens)
    assert failing.finish is not None
    assert (failing.finish.reason, failing.finish.error) == (FinishReason.ERROR, f"its text failed: {error!r}")
    assert "text of request r1 failed" in caplog.text


def test_fail_all_reaches_everyone_behind_a_text_that_fails() -> None:
    texts = {"r1": FailingText("flush", ZeroDivisionError("a bug"))}
    bench = Bench(new_text=lambda request: texts.get(request.request_id, ByteText()))
    listeners = [bench.add(prompt)[1] for prompt in PROMPTS]
    bench.engine.step()
    bench.engine.fail_all(RuntimeError("boom"))
    assert ["boom" in (each.finish.error or "") for each in listeners if each.finish] == [True] * len(PROMPTS)
    assert not bench.engine.has_work


def test_fail_all_goes_on_past_an_end_that_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    listeners = [bench.add(prompt)[1] for prompt in PROMPTS]

    def broken(*args: object, **options: object) -> None:
        raise AssertionError("an account that does not add up")

    monkeypatch.setattr(bench.engine._live["r1"].stream, "finish", broken)
    bench.engine.fail_all(RuntimeError("boom"))
    assert [each.finish is not None for each in listeners] == [False, *[True] * (len(PROMPTS) - 1)]
    assert "request r1 could not be told its end" in caplog.text
    assert not bench.engine.has_work


def test_an_observer_hears_every_step_with_its_rows_and_times() -> None:
    bench = Bench()
    records: list[StepRecord] = []
    bench.engine.observe_steps(records.append)
    bench.add([1, 2, 3], params=SamplingParams(max_tokens=4))
    bench.run()
    assert [sum(row.num_tokens for row in record.rows) for record in records] == [3, 1, 1, 1]
    assert all(record.start_s < record.logits_s <= record.sampled_s <= record.handed_s for record in records)


def test_an_observer_that_raises_hears_no_more_and_nobody_else_minds(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    num_heard = []

    def fail(record: StepRecord) -> None:
        num_heard.append(1)
        raise ValueError("not listening")

    bench.engine.observe_steps(fail)
    _, listener = bench.add([1, 2, 3], params=SamplingParams(max_tokens=4))
    bench.run()
    assert len(num_heard) == 1
    assert len(listener.token_ids) == 4
    assert "an observer of steps raised" in caplog.text


def test_waste_is_the_share_of_held_slots_without_a_token() -> None:
    bench = Bench(block_size=4)
    assert bench.engine.snapshot().waste_ratio == 0.0
    bench.add([1, 2, 3, 4, 5], params=SamplingParams(max_tokens=8))
    bench.engine.step()
    assert bench.engine.snapshot().waste_ratio == pytest.approx(3 / 8)
    bench.run()
    assert bench.engine.snapshot().waste_ratio == 0.0


def test_progress_is_told_of_running_requests_alone() -> None:
    bench = Bench(config=SchedulerConfig(max_rows=2, max_step_tokens=4, max_chunk_tokens=4, min_prefill_tokens=1))
    name, _ = bench.add(list(range(1, 11)), params=SamplingParams(max_tokens=2))
    assert bench.engine.progress(name) == 0
    seen = []
    while bench.engine.step():
        seen.append(bench.engine.progress(name))
    assert seen == [4, 8, 10, None]
    assert bench.engine.progress("nobody") is None


def test_a_name_that_a_running_request_has_is_refused_and_changes_nothing() -> None:
    bench = Bench()
    bench.add([1, 2])
    bench._next = 0
    with pytest.raises(ParamsError, match="request_id is 'r1'"):
        bench.add([3, 4])
    bench.run()
