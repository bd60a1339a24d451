"""Handles, collectors and streams on hand-fed events: what gathers, who waits, what cancels."""

import threading
from queue import SimpleQueue

import pytest

from tests.builders_cost import make_cost
from twostroke.core.account import Account, StepRecord
from twostroke.core.event import Event, FinishEvent, KVUsage, Timing, TokenEvent, Usage
from twostroke.core.ledger import Part
from twostroke.core.phase import Phase
from twostroke.core.sequence import FinishReason
from twostroke.core.step import RowPlan, TokenLogprob
from twostroke.errors import TwostrokeError
from twostroke.handle import EventStream, Handle, ResultCollector, result_of

WAIT_S = 10.0
COST = make_cost(token_s=0.001)


def token(number: int, text: str, *, logprob: float | None = None) -> TokenEvent:
    best = () if logprob is None else (TokenLogprob(number, logprob),)
    return TokenEvent("r1", number, text, 1.0 + number, logprob, best)


def finish(*, text: str = "", reason: FinishReason = FinishReason.STOP, error: str | None = None) -> FinishEvent:
    account = Account(request_id="r1", arrival_s=0.0, before={Part.TOKENIZE: 0.25}, first_token_s=2.0)
    for start_s, phase, start, count in ((1.0, Phase.PREFILL, 0, 3), (2.0, Phase.DECODE, 3, 1)):
        rows = (RowPlan(1, start, count, phase, needs_logits=True),)
        record = StepRecord(start_s, start_s + 0.5, start_s + 0.75, start_s + 1.0, rows, ("r1",), COST)
        account.steps.append((record, None))
    account.finish_s = 3.0
    return FinishEvent(
        request_id="r1",
        reason=reason,
        text=text,
        usage=Usage(prompt_tokens=3, cached_tokens=0, completion_tokens=2),
        timing=Timing(ttft_s=2.0, tpot_s=1.0, e2e_s=3.0, first_text_s=2.0),
        kv=KVUsage(tokens=4, bytes=64, blocks=1, waste_ratio=0.0),
        account=account,
        seed=5,
        error=error,
    )


class Canceller:
    def __init__(self) -> None:
        self.ids: list[str] = []

    def handle(self, collector: ResultCollector | None = None) -> Handle:
        return Handle("r1", cancel=self.ids.append, collector=collector or ResultCollector(None))


# Results


def test_a_result_joins_tokens_and_the_rest_of_the_text() -> None:
    result = result_of([token(1, "Hel"), token(2, "lo", logprob=-0.5)], finish(text="!"))
    assert (result.text, result.token_ids, result.seed) == ("Hello!", (1, 2), 5)
    assert result.logprobs == (None, -0.5)
    assert result.top_logprobs == ((), (TokenLogprob(2, -0.5),))
    assert (result.finish_reason, result.error) == (FinishReason.STOP, None)


def test_both_ledgers_add_up_and_the_first_has_no_decode() -> None:
    result = result_of([token(1, "a"), token(2, "b")], finish())
    assert result.ledger.total_s == pytest.approx(3.0)
    assert result.ledger.parts[Part.DECODE] == pytest.approx(0.5)
    assert result.ttft_ledger is not None
    assert result.ttft_ledger.total_s == pytest.approx(2.0)
    assert Part.DECODE not in result.ttft_ledger.parts


def test_no_ledger_is_read_before_somebody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of the neighbours wait while Python adds up."""
    monkeypatch.setattr(Account, "_read", None)
    result = result_of([token(1, "a"), token(2, "b")], finish())
    assert result.text == "ab"
    with pytest.raises(TypeError):
        _ = result.ledger


def test_an_answer_without_a_token_has_no_first_ledger() -> None:
    end = finish(reason=FinishReason.CANCELLED)
    end.account.first_token_s = None
    assert result_of([], end).ttft_ledger is None


# Collectors


def test_events_are_gathered_and_passed_on_in_order() -> None:
    heard: list[Event] = []
    collector = ResultCollector(heard.append)
    events: list[Event] = [token(1, "a"), token(2, "b"), finish(text="c")]
    for event in events:
        collector(event)
    assert heard == events
    assert collector.wait(None).text == "abc"


def test_waiting_ends_with_the_finish_and_not_before() -> None:
    collector = ResultCollector(None)
    collector(token(1, "a"))
    texts: list[str] = []
    waiter = threading.Thread(target=lambda: texts.append(collector.wait(WAIT_S).text))
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    threading.Thread(target=collector, args=(finish(),)).start()
    waiter.join(WAIT_S)
    assert texts == ["a"]


def test_a_listener_that_raises_at_the_end_keeps_nobody_waiting() -> None:
    def deaf(event: Event) -> None:
        raise ValueError("deaf")

    collector = ResultCollector(deaf)
    told: list[Event] = [token(1, "a"), finish()]
    for event in told:
        with pytest.raises(ValueError, match="deaf"):
            collector(event)
    assert collector.wait(0.0).text == "a"


def test_a_wait_that_is_too_long_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        Canceller().handle().result(0.01)


def test_the_thread_that_tells_cannot_wait_for_itself() -> None:
    collector = ResultCollector(None)
    collector(token(1, "a"))  # this thread is now the one that tells
    with pytest.raises(TwostrokeError, match="hand over to another thread"):
        collector.wait(None)
    collector(finish())
    assert collector.wait(None).text == "a"


# Handles and streams


def test_a_handle_cancels_its_own_request() -> None:
    canceller = Canceller()
    canceller.handle().cancel()
    assert canceller.ids == ["r1"]


def make_stream(canceller: Canceller, *events: Event) -> EventStream:
    queue: SimpleQueue[Event] = SimpleQueue()
    for event in events:
        queue.put(event)
    return EventStream(canceller.handle(), queue)


def test_a_stream_ends_with_the_finish_and_cancels_nothing() -> None:
    canceller = Canceller()
    events: list[Event] = [token(1, "a"), finish()]
    stream = make_stream(canceller, *events)
    assert list(stream) == events
    assert list(stream) == []
    stream.close()
    del stream
    assert canceller.ids == []


@pytest.mark.parametrize("leave", ["drop", "close", "context", "loop"])
def test_a_stream_left_early_cancels(leave: str) -> None:
    canceller = Canceller()
    stream = make_stream(canceller, token(1, "a"), token(2, "b"), finish())
    if leave == "close":
        stream.close()
    elif leave == "context":
        with stream:
            next(stream)
    elif leave == "loop":
        for _ in stream:
            break
    del stream
    assert set(canceller.ids) == {"r1"}


# Facts of a result


@pytest.mark.parametrize("reason", list(FinishReason))
def test_every_fact_of_the_finish_is_in_the_result(reason: FinishReason) -> None:
    end = finish(reason=reason, error="it broke")
    result = result_of([], end)
    assert (result.request_id, result.finish_reason, result.error, result.seed) == ("r1", reason, "it broke", 5)
    assert result.usage is end.usage
    assert result.timing is end.timing
    assert result.kv is end.kv
    assert result.account is end.account
    assert (result.text, result.token_ids, result.logprobs, result.top_logprobs) == ("", (), (), ())


def test_a_first_token_at_the_zero_of_the_clock_has_a_ledger() -> None:
    end = finish()
    end.account.first_token_s = 0.0
    ledger = result_of([token(1, "a")], end).ttft_ledger
    assert ledger is not None
    assert Part.DECODE not in ledger.parts


# Misuse


def test_a_listener_that_raises_in_the_middle_ends_nothing() -> None:
    def deaf(event: Event) -> None:
        raise ValueError("deaf")

    collector = ResultCollector(deaf)
    with pytest.raises(ValueError, match="deaf"):
        collector(token(1, "a"))
    told: list[str] = []

    def wait() -> None:  # this thread is the one that tells: another one has to wait
        try:
            collector.wait(0)
        except TimeoutError as error:
            told.append(str(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiter.join(WAIT_S)
    assert told == ["no answer within 0 s"]


def test_a_result_can_be_asked_for_again_and_after_a_timeout() -> None:
    collector = ResultCollector(None)
    handle = Canceller().handle(collector)
    with pytest.raises(TimeoutError, match=r"^no answer within 0 s$"):
        handle.result(0)
    teller = threading.Thread(target=collector, args=(finish(text="x"),))
    teller.start()
    teller.join(WAIT_S)
    assert [handle.result(0).text, handle.result().text] == ["x", "x"]


def test_cancelling_asks_each_time_and_waits_for_nothing() -> None:
    canceller = Canceller()
    handle = canceller.handle()
    handle.cancel()
    handle.cancel()
    assert canceller.ids == ["r1", "r1"]


def test_a_stream_closed_early_still_tells_what_was_on_its_way() -> None:
    canceller = Canceller()
    stream = make_stream(canceller, token(1, "a"), finish(reason=FinishReason.CANCELLED))
    stream.close()
    assert [type(event) for event in stream] == [TokenEvent, FinishEvent]
    stream.close()
    assert canceller.ids == ["r1"]
    with pytest.raises(StopIteration):
        next(stream)


def test_a_context_left_after_the_end_cancels_nothing_and_hides_no_error() -> None:
    canceller = Canceller()
    with make_stream(canceller, finish()) as stream:
        assert iter(stream) is stream
        next(stream)
    other = make_stream(canceller, finish())
    assert len(list(other)) == 1
    with pytest.raises(KeyError), other:
        raise KeyError
    assert canceller.ids == []


def test_a_stream_left_by_an_error_is_cancelled_once_before_it_is_dropped() -> None:
    canceller = Canceller()
    stream = make_stream(canceller, token(1, "a"), finish())
    with pytest.raises(KeyError), stream:
        raise KeyError
    assert canceller.ids == ["r1"]


@pytest.mark.parametrize("is_done", [False, True])
def test_only_an_answer_that_has_come_is_told_in_another_process(
    monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    collector = ResultCollector(None)
    stream = make_stream(Canceller(), token(1, "a"), finish())
    if is_done:
        collector(finish(text="x"))
        assert len(list(stream)) == 2
    monkeypatch.setattr("twostroke.handle.os.getpid", lambda: -1)
    if is_done:
        assert collector.wait(0).text == "x"
        assert list(stream) == []
    else:
        with pytest.raises(TwostrokeError, match="ask after the fork"):
            collector.wait(0)
        with pytest.raises(TwostrokeError, match="ask after the fork"):
            next(stream)
