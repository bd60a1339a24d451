"""Records of requests: found while they run and for some time after, never more than two limits allow."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.serve.serve_builders import make_finish, take_end
from twostroke.core.event import Usage
from twostroke.core.ledger import Ledger, Part, Stall, StallKind
from twostroke.core.sequence import FinishReason
from twostroke.serve.answers import Answers
from twostroke.serve.records import RequestRecords, record_of

USAGE = Usage(prompt_tokens=3, cached_tokens=1, completion_tokens=2)


def make_answers(name: str, *, num_answers: int = 1, num_stalls: int = 0) -> Answers:
    """Ended ones, each kept waiting by so many others."""

    async def end() -> Answers:
        answers = Answers(max_pending=9, request_id=name)
        answers.num_unfinished = num_answers
        stalls = tuple(Stall(StallKind.PREFILL_OF_OTHER, 0.25, f"other-{number}") for number in range(num_stalls))
        for index in range(num_answers):
            finish = make_finish(name, reason=FinishReason.STOP, usage=USAGE)
            take_end(answers, finish, index=index, ledger=Ledger(parts={Part.DECODE: 0.2}, stalls=stalls))
        return answers

    return asyncio.run(end())


def bytes_of(answers: Answers) -> int:
    return len(json.dumps(record_of(answers)))


def keep(records: RequestRecords, each: Sequence[Answers]) -> None:
    for answers in each:
        records.open(answers)
        records.observe_books(answers)


def test_a_record_is_found_running_and_ended_and_says_the_same_of_what_ended() -> None:
    records, answers = RequestRecords(max_kept=9, max_bytes=10**6), make_answers("r", num_answers=2, num_stalls=2)
    records.open(answers)
    assert (len(records), records.num_kept, records.running) == (0, 0, [answers])  # what has ended holds no place
    running = records.find("r")
    records.observe_books(answers)
    assert (len(records), records.num_kept, records.find_running("r")) == (0, 1, None)
    assert running == records.find("r") == record_of(answers)
    assert records.find("s") is None


def test_a_refused_request_leaves_no_record() -> None:
    records, answers = RequestRecords(max_kept=9, max_bytes=10**6), make_answers("r")
    records.open(answers)
    records.close(answers)
    records.close(answers)
    assert (len(records), records.num_kept, records.find("r")) == (0, 0, None)


def test_who_took_over_an_id_is_not_closed_by_its_former_owner() -> None:
    records = RequestRecords(max_kept=9, max_bytes=10**6)
    former, owner = make_answers("r"), make_answers("r")
    records.open(owner)
    records.close(former)
    assert records.find_running("r") is owner


def test_the_oldest_go_beyond_the_number() -> None:
    records = RequestRecords(max_kept=2, max_bytes=10**6)
    keep(records, [make_answers(name) for name in "abc"])
    assert [records.find(name) is not None for name in "abc"] == [False, True, True]


def test_the_oldest_go_beyond_the_bytes_and_the_last_stays_whatever_its_size() -> None:
    small, large = [make_answers(name) for name in "abc"], make_answers("large", num_stalls=200)
    records = RequestRecords(max_kept=9, max_bytes=sum(map(bytes_of, small)))
    keep(records, small)
    assert records.num_kept == 3
    keep(records, [large])
    assert (records.num_kept, records.num_bytes) == (1, bytes_of(large))
    assert records.find("large") == record_of(large)
    keep(records, small[:1])
    assert (records.num_kept, records.find("large")) == (1, None)


def test_a_reply_that_was_sent_changes_the_record_and_its_bytes_in_their_place() -> None:
    records, first, second = RequestRecords(max_kept=2, max_bytes=10**6), make_answers("a"), make_answers("b")
    keep(records, [first, second])
    first.note_sent(sent_s=7.5, waited_s=1.0)
    records.observe_sent(first)
    assert records.num_bytes == bytes_of(first) + bytes_of(second)
    record = records.find("a")
    assert record is not None
    assert record["answers"][0]["e2e_s"] == 7.5
    keep(records, [make_answers("c")])
    assert records.find("a") is None, "its place is that of its end"
    records.observe_sent(first)
    assert records.find("a") is None, "what is gone does not come back"


def test_an_id_that_comes_again_has_its_last_record_as_the_newest() -> None:
    records = RequestRecords(max_kept=2, max_bytes=10**6)
    again = make_answers("a", num_stalls=3)
    keep(records, [make_answers("a"), make_answers("b"), again, make_answers("c")])
    assert [records.find(name) is not None for name in "abc"] == [True, False, True]
    assert records.find("a") == record_of(again)


@pytest.mark.parametrize("error", ['caf\u00e9 \udcff "quoted"', "\u2028\x00"])
def test_any_text_of_an_error_is_kept(error: str) -> None:
    answers = make_answers("r")
    answers.finishes[0] = make_finish("r", reason=FinishReason.ERROR, usage=USAGE, error=error)
    records = RequestRecords(max_kept=2, max_bytes=10**6)
    keep(records, [answers])
    record = records.find("r")
    assert record is not None
    assert record["answers"][0]["error"] == error


@given(
    ends=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 12)), max_size=30),
    max_kept=st.integers(1, 5),
    max_bytes=st.integers(0, 6000),
)
def test_any_crowd_keeps_the_newest_within_both_limits(
    ends: list[tuple[str, int]], max_kept: int, max_bytes: int
) -> None:
    records, naive = RequestRecords(max_kept=max_kept, max_bytes=max_bytes), dict[str, dict[str, Any]]()
    for name, num_stalls in ends:
        answers = make_answers(name, num_stalls=num_stalls)
        keep(records, [answers])
        naive.pop(name, None)
        naive[name] = record_of(answers)
        while len(naive) > 1 and (len(naive) > max_kept or sum(map(_size, naive.values())) > max_bytes):
            del naive[next(iter(naive))]
        assert records.num_bytes == sum(map(_size, naive.values()))
        assert {each: records.find(each) for each in "abcdef"} == {each: naive.get(each) for each in "abcdef"}


def _size(record: dict[str, Any]) -> int:
    return len(json.dumps(record))
