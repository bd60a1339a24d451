"""One request's way out, alone: what its listener hears, when, and what becomes of it when something fails."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from twostroke.core.event import Event, FinishEvent, KVUsage, TokenEvent
from twostroke.core.ledger import Part
from twostroke.core.request import Request
from twostroke.core.sequence import FinishReason, Sequence
from twostroke.core.step import SampledToken, TokenLogprob
from twostroke.engine.output_stream import OutputStream
from twostroke.params import SamplingParams
from twostroke.stop_pattern import compile_patterns

NO_KV = KVUsage(tokens=0, bytes=0, blocks=0, waste_ratio=0.0)
END_ID = 99


class Letters:
    """Token 0 is "a", 1 is "b", and so on; `rest` is what the end brings, `fails_on` an id that breaks it."""

    def __init__(self, *, rest: str = "", fails_on: int | None = None, fails_at_end: bool = False) -> None:
        self.pushed: list[int] = []
        self._rest = rest
        self._fails_on = fails_on
        self._fails_at_end = fails_at_end

    def push(self, token_id: int) -> str:
        self.pushed.append(token_id)
        if token_id == self._fails_on:
            raise ValueError("no such letter")
        return "" if token_id == 26 else chr(ord("a") + token_id)

    def flush(self) -> str:
        if self._fails_at_end:
            raise ValueError("no end")
        return self._rest


class Ears:
    """Keeps every event; raises `error` on the event numbered `fails_at`."""

    def __init__(self, *, fails_at: int | None = None, error: BaseException | None = None) -> None:
        self.events: list[Event] = []
        self._fails_at = fails_at
        self._error = error or RuntimeError("not listening")

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if len(self.events) - 1 == self._fails_at:
            raise self._error

    @property
    def tokens(self) -> list[TokenEvent]:
        return [event for event in self.events if isinstance(event, TokenEvent)]

    @property
    def finish(self) -> FinishEvent:
        assert isinstance(self.events[-1], FinishEvent)
        return self.events[-1]


def make_request(*, stop: tuple[str, ...] = (), min_tokens: int = 0, **wishes: Any) -> Request:
    params = SamplingParams(stop=stop, min_tokens=min_tokens, **wishes)
    return Request(
        request_id="r1",
        prompt_token_ids=(5, 6, 7),
        params=params,
        arrival_s=100.0,
        seed=42,
        stop_token_ids=frozenset({END_ID, *params.stop_token_ids}),
        stop_patterns=compile_patterns(params.stop_regex),
        spent={Part.TOKENIZE: 0.25},
    )


def make_stream(
    ears: Ears, *, text: Letters | None = None, stop: tuple[str, ...] = (), min_tokens: int = 0, **wishes: Any
) -> tuple[OutputStream, Sequence]:
    request = make_request(stop=stop, min_tokens=min_tokens, **wishes)
    stream = OutputStream(request, text=text or Letters(), listener=ears)
    return stream, Sequence.from_request(request, sequence_id=3)


def say(stream: OutputStream, token_ids: list[int], *, start_s: float = 101.0) -> list[bool]:
    """Accept and hand over one token per second."""
    matched = []
    for index, token_id in enumerate(token_ids):
        matched.append(stream.accept(SampledToken(3, token_id)))
        stream.hand_over(start_s + index)
    return matched


def end(
    stream: OutputStream,
    sequence: Sequence,
    *,
    reason: FinishReason = FinishReason.LENGTH,
    now_s: float = 110.0,
    error: str | None = None,
) -> None:
    stream.finish(sequence, reason, now_s=now_s, kv=NO_KV, error=error)


@pytest.fixture
def loud() -> Iterator[list[logging.LogRecord]]:
    """Records of the engine's log, each with its traceback."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler, logger = Keep(), logging.getLogger("twostroke")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


def test_a_token_is_told_with_its_text_its_time_and_its_logprobs() -> None:
    ears = Ears()
    stream, _ = make_stream(ears)
    best = (TokenLogprob(1, -0.5), TokenLogprob(2, -1.5))
    stream.accept(SampledToken(3, 1, logprob=-0.5, top_logprobs=best))
    assert ears.events == [], "deciding tells nothing: the step is not committed yet"
    stream.hand_over(101.5)
    assert ears.events == [
        TokenEvent(request_id="r1", token_id=1, text="b", time_s=101.5, logprob=-0.5, top_logprobs=best)
    ]


def test_a_token_is_told_once() -> None:
    ears = Ears()
    stream, _ = make_stream(ears)
    stream.hand_over(100.5)
    say(stream, [0])
    stream.hand_over(102.0)
    assert [event.token_id for event in ears.tokens] == [0]


def test_a_stop_id_is_told_without_text_and_never_reaches_the_decoder() -> None:
    ears, text = Ears(), Letters()
    stream, sequence = make_stream(ears, text=text)
    say(stream, [0, END_ID])
    end(stream, sequence, reason=FinishReason.STOP)
    assert [(event.token_id, event.text) for event in ears.tokens] == [(0, "a"), (END_ID, "")]
    assert text.pushed == [0]


def test_only_the_token_that_completes_a_stop_string_says_so() -> None:
    ears = Ears()
    stream, sequence = make_stream(ears, stop=("bc",))
    assert say(stream, [0, 1, 2]) == [False, False, True]
    end(stream, sequence, reason=FinishReason.STOP)
    assert [event.text for event in ears.tokens] == ["a", "", ""]
    assert ears.finish.text == ""


def test_text_held_back_for_a_stop_string_comes_with_the_end() -> None:
    ears = Ears()
    stream, sequence = make_stream(ears, text=Letters(rest="!"), stop=("bcd",))
    say(stream, [0, 1, 2])
    end(stream, sequence)
    assert [event.text for event in ears.tokens] == ["a", "", ""]
    assert ears.finish.text == "bc!"


def test_stop_strings_are_looked_for_from_the_last_of_the_fewest_tokens_on() -> None:
    for min_tokens, ends in ((0, [True]), (1, [True]), (3, [False, False, True]), (4, [False] * 4)):
        stream, _ = make_stream(Ears(), stop=("a",), min_tokens=min_tokens)
        assert say(stream, [0, 1, 0, 1][: len(ends)]) == ends


@pytest.mark.parametrize(
    ("wishes", "token_ids", "shown", "stop_reason"),
    [
        ({"stop": ("bc",)}, [0, 1, 2], "a", "bc"),
        ({"stop": ("bc",), "include_stop": True}, [0, 1, 2], "abc", "bc"),
        ({"stop_regex": ("b[cd]",)}, [0, 1, 3], "a", "b[cd]"),
        ({"stop_regex": ("b[cd]",), "include_stop": True}, [0, 1, 3], "abd", "b[cd]"),
        ({"stop_token_ids": (2,)}, [0, 1, 2], "ab", 2),
        ({"stop_token_ids": (2,), "include_stop": True}, [0, 1, 2], "abc", 2),
        ({"stop_token_ids": (2,)}, [0, END_ID], "a", None),
    ],
)
def test_the_end_says_which_stop_it_met_and_shows_it_where_asked(
    wishes: dict[str, Any], token_ids: list[int], shown: str, stop_reason: str | int | None
) -> None:
    ears = Ears()
    stream, sequence = make_stream(ears, **wishes)
    say(stream, token_ids)
    sequence.token_ids += token_ids
    end(stream, sequence, reason=FinishReason.STOP)
    assert "".join(event.text for event in ears.events) == shown
    assert ears.finish.stop_reason == stop_reason


def test_other_ends_have_no_stop_reason() -> None:
    ears = Ears()
    stream, sequence = make_stream(ears, stop_token_ids=(2,))
    say(stream, [2])
    sequence.token_ids += [2]
    end(stream, sequence, reason=FinishReason.CANCELLED)
    assert ears.finish.stop_reason is None


def test_the_rest_of_the_decoder_may_complete_a_stop_string() -> None:
    ears = Ears()
    stream, sequence = make_stream(ears, text=Letters(rest="c?"), stop=("bc",))
    say(stream, [0, 1])
    end(stream, sequence)
    assert ears.finish.text == ""


def test_the_end_names_seed_usage_and_the_memory_held() -> None:
    ears = Ears()
    stream, sequence = make_stream(ears)
    sequence.token_ids += [0, 1]
    sequence.num_cached = 2
    held = KVUsage(tokens=5, bytes=640, blocks=2, waste_ratio=0.375)
    stream.finish(sequence, FinishReason.LENGTH, now_s=110.0, kv=held, error=None)
    finish = ears.finish
    assert (finish.usage.prompt_tokens, finish.usage.cached_tokens, finish.usage.completion_tokens) == (3, 2, 2)
    assert (finish.seed, finish.kv, finish.reason, finish.error) == (42, held, FinishReason.LENGTH, None)
    assert finish.account is stream.account
    assert (finish.account.arrival_s, finish.account.first_token_s, finish.account.finish_s) == (100.0, None, 110.0)
    assert finish.account.before == {Part.TOKENIZE: 0.25}


def test_times_count_from_arrival_and_tokens_from_the_first() -> None:
    ears = Ears()
    stream, sequence = make_stream(ears)
    say(stream, [0, 1, 2], start_s=102.0)  # at 102, 103, 104
    end(stream, sequence, now_s=110.0)
    timing = ears.finish.timing
    assert (timing.ttft_s, timing.tpot_s, timing.e2e_s, timing.first_text_s) == (2.0, 1.0, 10.0, 2.0)


def test_one_token_has_no_time_per_token_and_none_has_no_first() -> None:
    ears = Ears()
    stream, sequence = make_stream(ears)
    say(stream, [0])
    end(stream, sequence)
    assert (ears.finish.timing.ttft_s, ears.finish.timing.tpot_s) == (1.0, None)

    silent = Ears()
    stream, sequence = make_stream(silent)
    end(stream, sequence, reason=FinishReason.CANCELLED, now_s=103.0)
    timing = silent.finish.timing
    assert (timing.ttft_s, timing.tpot_s, timing.e2e_s, timing.first_text_s) == (None, None, 3.0, None)


def test_the_first_text_may_come_after_the_first_token() -> None:
    ears = Ears()
    stream, sequence = make_stream(ears)
    say(stream, [26, 26, 1, 2])  # 26 shows nothing: half a character
    end(stream, sequence)
    assert (ears.finish.timing.ttft_s, ears.finish.timing.first_text_s) == (1.0, 3.0)


def test_the_first_text_may_come_with_the_end() -> None:
    ears = Ears()
    stream, sequence = make_stream(ears, text=Letters(rest="?"))
    say(stream, [26])
    end(stream, sequence, now_s=104.0)
    assert (ears.finish.text, ears.finish.timing.first_text_s) == ("?", 4.0)


def test_a_listener_that_raises_hears_no_more_tokens_and_then_an_error(loud: list[logging.LogRecord]) -> None:
    ears = Ears(fails_at=1, error=SystemExit("gone"))
    stream, sequence = make_stream(ears)
    say(stream, [0, 1, 2])
    assert stream.fault == "its listener raised SystemExit('gone')"
    end(stream, sequence)
    assert [event.token_id for event in ears.tokens] == [0, 1]
    assert (ears.finish.reason, ears.finish.error) == (FinishReason.ERROR, stream.fault)
    assert [record.getMessage() for record in loud] == ["the listener of request r1 raised: the request ends"]
    assert loud[0].exc_info is not None


def test_a_listener_that_raises_at_the_end_leaves_its_fault_and_no_exception(loud: list[logging.LogRecord]) -> None:
    ears = Ears(fails_at=0)
    stream, sequence = make_stream(ears)
    end(stream, sequence)
    assert (ears.finish.reason, ears.finish.error) == (FinishReason.LENGTH, None)
    assert stream.fault == "its listener raised RuntimeError('not listening')"
    assert len(loud) == 1


def test_text_that_fails_ends_its_request_with_what_it_raised(loud: list[logging.LogRecord]) -> None:
    ears, text = Ears(), Letters(fails_on=1)
    stream, sequence = make_stream(ears, text=text)
    assert say(stream, [0, 1, 2]) == [False, False, False]
    end(stream, sequence)
    assert text.pushed == [0, 1], "broken text is left alone"
    assert [event.text for event in ears.tokens] == ["a"]
    assert (ears.finish.reason, ears.finish.text) == (FinishReason.ERROR, "")
    assert ears.finish.error == "its text failed: ValueError('no such letter')"
    assert [record.getMessage() for record in loud] == ["the text of request r1 failed: the request ends"]


def test_text_that_fails_at_the_end_makes_the_end_an_error(loud: list[logging.LogRecord]) -> None:
    ears = Ears()
    stream, sequence = make_stream(ears, text=Letters(fails_at_end=True))
    say(stream, [0])
    end(stream, sequence, reason=FinishReason.STOP)
    assert (ears.finish.reason, ears.finish.error) == (FinishReason.ERROR, "its text failed: ValueError('no end')")
    assert len(loud) == 1


@pytest.mark.parametrize(
    ("fails_on", "error", "wanted"),
    [
        (None, "NaN in layer 3", "NaN in layer 3"),
        (0, "NaN in layer 3", "NaN in layer 3"),
        (None, None, "the request failed"),
    ],
)
def test_an_error_is_the_engines_word_first(
    fails_on: int | None, error: str | None, wanted: str, loud: list[logging.LogRecord]
) -> None:
    ears = Ears()
    stream, sequence = make_stream(ears, text=Letters(fails_on=fails_on))
    say(stream, [0])
    end(stream, sequence, reason=FinishReason.ERROR, error=error)
    assert (ears.finish.reason, ears.finish.error) == (FinishReason.ERROR, wanted)
    assert len(loud) == (fails_on is not None)


def test_steps_lived_through_are_in_the_account() -> None:
    stream, _ = make_stream(Ears())
    record: Any = object()
    stream.live_through(record, None)
    assert stream.account.steps == [(record, None)]
    assert stream.account.request_id == "r1"
