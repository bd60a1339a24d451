"""Accounts of requests: every second of their life gets a name, whatever happened."""

import pytest

from tests.core.account_builders import record, row
from twostroke.core.account import Account, StepRecord
from twostroke.core.ledger import Ledger, Part, StallKind
from twostroke.core.phase import Phase


def account(
    *steps: tuple[StepRecord, StallKind | None], arrival_s: float, finish_s: float, first_token_s: float | None = None
) -> Account:
    made = Account(request_id="r0", arrival_s=arrival_s, before={Part.TOKENIZE: 0.001})
    made.first_token_s = first_token_s
    made.steps.extend(steps)
    made.finish_s = finish_s
    return made


def test_steps_without_a_row_are_stalls_and_the_sum_is_closed() -> None:
    own = row(0, start=0, tokens=8, phase=Phase.PREFILL)
    later = row(0, start=8, tokens=1, phase=Phase.DECODE)
    other = row(1, start=3, tokens=1, phase=Phase.DECODE)
    made = account(
        (record(own, start_s=1.0), None),
        (record(other, start_s=1.2), StallKind.PREEMPTION),
        (record(later, start_s=1.4), None),
        arrival_s=0.5,
        first_token_s=1.103,
        finish_s=1.6,
    )
    ledger = made.read()
    assert ledger.total_s == pytest.approx(1.1)
    assert ledger.parts[Part.QUEUE] == pytest.approx(0.499)
    assert ledger.parts[Part.PREFILL] == pytest.approx(0.1)
    assert ledger.parts[Part.FIRST_SAMPLE] == pytest.approx(0.002)
    assert ledger.parts[Part.SAMPLE] == pytest.approx(0.002)
    (stall,) = ledger.stalls
    assert stall.kind is StallKind.PREEMPTION
    assert stall.time_s == pytest.approx(0.103)


def test_only_what_led_to_the_first_token_is_its_sampling() -> None:
    chunks = [record(row(0, start=8 * n, tokens=8, phase=Phase.PREFILL), start_s=1.0 + n) for n in range(2)]
    again = record(row(0, start=0, tokens=20, phase=Phase.PREFILL), start_s=5.0)  # recomputed after preemption
    steps = [(each, None) for each in (*chunks, again)]
    ledger = account(*steps, arrival_s=0.5, first_token_s=chunks[1].handed_s, finish_s=6.0).read()
    assert ledger.parts[Part.PREFILL] == pytest.approx(0.3)
    assert ledger.parts[Part.FIRST_SAMPLE] == pytest.approx(0.004)
    assert ledger.parts[Part.SAMPLE] == pytest.approx(0.002)
    assert ledger.total_s == pytest.approx(5.5)


def test_masks_are_a_part_of_sampling() -> None:
    rows = [row(0, start=0, tokens=8, phase=Phase.PREFILL), row(0, start=8, tokens=1, phase=Phase.DECODE)]
    steps = [(record(each, start_s=1.0 + n, mask_s=0.04), None) for n, each in enumerate(rows)]
    ledger = account(*steps, arrival_s=0.5, first_token_s=1.103, finish_s=3.0).read()
    assert ledger.parts[Part.PREFILL] == pytest.approx(0.06)
    assert ledger.parts[Part.DECODE] == pytest.approx(0.06)
    assert ledger.parts[Part.FIRST_SAMPLE] == pytest.approx(0.042)
    assert ledger.parts[Part.SAMPLE] == pytest.approx(0.042)
    assert ledger.total_s == pytest.approx(2.5)


def test_a_request_that_never_ran_only_queued() -> None:
    ledger = account(arrival_s=0.5, finish_s=0.9).read()
    assert ledger.parts == {Part.QUEUE: pytest.approx(0.399), Part.TOKENIZE: 0.001}


def test_a_running_account_cannot_be_closed() -> None:
    made = Account(request_id="r0", arrival_s=0.0, before={})
    with pytest.raises(AssertionError, match="r0"):
        made.read()


def make_account(*, finish_s: float) -> Account:
    return Account(request_id="r0", arrival_s=1.0, before={Part.TOKENIZE: 0.25}, finish_s=finish_s)


def test_time_spent_before_the_engine_is_not_queued_twice() -> None:
    account = make_account(finish_s=3.5)
    account.steps.append((record(row(0, start=0, tokens=8, phase=Phase.PREFILL), start_s=3.0), None))
    parts = account.read().parts
    assert parts[Part.TOKENIZE] == 0.25
    assert parts[Part.QUEUE] == pytest.approx(3.0 - 1.0 - 0.25)
    assert parts[Part.PREFILL] == pytest.approx(0.1)
    assert parts[Part.FIRST_SAMPLE] == pytest.approx(0.002)
    assert parts[Part.DETOKENIZE] == pytest.approx(0.001)
    assert parts[Part.OVERHEAD] == pytest.approx(3.5 - 3.103)


def test_steps_before_the_first_of_its_own_are_queueing_and_later_ones_stalls() -> None:
    account = make_account(finish_s=5.0)
    other = record(row(9, start=0, tokens=8, phase=Phase.PREFILL), start_s=2.0)
    own = record(row(0, start=0, tokens=8, phase=Phase.PREFILL), start_s=3.0)
    late = record(row(9, start=8, tokens=8, phase=Phase.PREFILL), start_s=4.0)
    account.steps += [(other, StallKind.SCHEDULER), (own, None), (late, StallKind.PREEMPTION)]
    ledger = account.read()
    assert ledger.parts[Part.QUEUE] == pytest.approx(1.75)
    assert [(stall.kind, stall.request_id) for stall in ledger.stalls] == [(StallKind.PREEMPTION, None)]
    assert ledger.stalls[0].time_s == pytest.approx(0.103)
    assert ledger.total_s == pytest.approx(4.0)


def test_an_account_read_up_to_a_time_leaves_out_what_began_then() -> None:
    account = make_account(finish_s=9.0)
    for start_s in (2.0, 3.0, 4.0):
        account.steps.append((record(row(0, start=9, tokens=1, phase=Phase.DECODE), start_s=start_s), None))
    ledger = account.read(until_s=4.0)
    assert ledger.parts[Part.DECODE] == pytest.approx(0.2)
    assert ledger.total_s == pytest.approx(3.0)
    assert account.read().parts[Part.DECODE] == pytest.approx(0.3)


def test_a_step_that_begins_when_the_first_token_is_told_led_to_the_second() -> None:
    account = make_account(finish_s=9.0)
    first = record(row(0, start=0, tokens=8, phase=Phase.PREFILL), start_s=2.0)
    account.first_token_s = first.handed_s
    second = record(row(0, start=8, tokens=1, phase=Phase.DECODE), start_s=first.handed_s)
    account.steps += [(first, None), (second, None)]
    parts = account.read().parts
    assert parts[Part.FIRST_SAMPLE] == pytest.approx(0.002)
    assert parts[Part.SAMPLE] == pytest.approx(0.002)


def test_what_a_held_token_took_after_its_choice_is_hold_back() -> None:
    account = make_account(finish_s=4.0)
    for number in range(3):
        step = record(row(0, start=9 + number, tokens=1, phase=Phase.DECODE), start_s=2.0 + number / 2)
        account.steps.append((step, None))
    account.held.add(1)
    parts = account.read().parts
    assert parts[Part.DETOKENIZE] == pytest.approx(0.002)
    assert parts[Part.HOLD_BACK] == pytest.approx(0.001)
    assert account.read().total_s == pytest.approx(3.0)


def test_an_account_is_read_once_when_it_is_complete_and_anew_while_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    own = (record(row(0, start=0, tokens=8, phase=Phase.PREFILL), start_s=1.0), None)
    made = account(own, arrival_s=0.5, finish_s=1.6, first_token_s=1.2)
    ends: list[float] = []
    read = Account._read

    def counted(self: Account, end_s: float) -> Ledger:
        ends.append(end_s)
        return read(self, end_s)

    monkeypatch.setattr(Account, "_read", counted)
    assert made.read() is made.read()
    assert made.read(until_s=1.2) is made.read(until_s=1.2)
    assert ends == [1.6, 1.2]
    running = Account(request_id="r0", arrival_s=0.5, before={}, steps=[own])
    before = running.read(until_s=2.0)
    running.steps.append((record(row(0, start=8, tokens=1, phase=Phase.DECODE), start_s=1.5), None))
    assert Part.DECODE in running.read(until_s=2.0).parts.keys() - before.parts.keys()
