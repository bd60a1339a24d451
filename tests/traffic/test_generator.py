"""Closed loops hold their concurrency, open loops their times; nothing that was sent is lost."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest

from tests.traffic.traffic_builders import FAST, make_item, mocked, run
from twostroke.traffic.generator import Ready, closed_loop, open_loop, prepare
from twostroke.traffic.mock_server import MockSchedule
from twostroke.traffic.outcome import Outcome
from twostroke.traffic.prompts import WORDS, PromptMaker
from twostroke.traffic.server import Server
from twostroke.traffic.workload import Item

SLOW = MockSchedule(ttft_s=30.0)


def ready_for(server: Server, items: Sequence[Item]) -> list[Ready]:
    return [
        Ready(place, item, server.body("word", output_tokens=item.output_tokens)) for place, item in enumerate(items)
    ]


def most_at_once(outcomes: Sequence[Outcome]) -> int:
    moments = sorted([(one.sent_s, 1) for one in outcomes] + [(one.end_s, -1) for one in outcomes])
    running = most = 0
    for _, change in moments:
        running += change
        most = max(most, running)
    return most


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_closed_loop_keeps_so_many_running(concurrency: int) -> None:
    async def send() -> list[Outcome]:
        async with mocked() as server:
            return await closed_loop(ready_for(server, [make_item()] * 9), server=server, concurrency=concurrency)

    outcomes = run(send())
    assert [one.place for one in outcomes] == list(range(9))
    assert most_at_once(outcomes) == concurrency
    assert all(one.error is None and one.due_s is None for one in outcomes)


def test_an_open_loop_sends_when_due_whatever_runs() -> None:
    """All are sent although no answer has come."""
    dues = [0.0, 0.01, 0.02, 0.05]
    all_here = asyncio.Barrier(len(dues))

    class AnswersAllAtOnce(Server):
        async def answer(self, body: bytes, outcome: Outcome) -> Outcome:
            outcome.sent_s = self.client.clock.now()
            await all_here.wait()
            outcome.end_s = self.client.clock.now()
            return outcome

    async def send() -> list[Outcome]:
        async with mocked(FAST) as mock:
            server = AnswersAllAtOnce(**{each.name: getattr(mock, each.name) for each in fields(mock)})
            return await open_loop(ready_for(server, [make_item(due_s=due_s) for due_s in dues]), server=server)

    outcomes = run(send())
    assert most_at_once(outcomes) == 4
    starts = [one.due_s for one in outcomes if one.due_s is not None]
    assert [due_s - starts[0] for due_s in starts] == pytest.approx(dues)
    assert all(one.late_s is not None and one.late_s >= 0 for one in outcomes)


class HastyLoop(asyncio.SelectorEventLoop):
    """Its timers are early, as those of a loop that rounds to milliseconds of its own."""

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_later(delay * 0.9, callback, *args, context=context)


def test_nothing_is_sent_before_it_is_due_on_a_loop_with_early_timers() -> None:
    async def send() -> list[Outcome]:
        async with mocked(FAST) as server:
            items = [make_item(due_s=due_s) for due_s in (0.0, 0.02, 0.05)] + [make_item(follows=0, pause_s=0.04)]
            return await open_loop(ready_for(server, items), server=server)

    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        outcomes = runner.run(send())
    assert [one.late_s is not None and one.late_s >= 0 for one in outcomes] == [True] * 4


def test_one_that_follows_waits_for_the_end_and_its_pause() -> None:
    items = [make_item(due_s=0.0), make_item(follows=0, pause_s=0.03), make_item(follows=1)]

    async def send() -> list[Outcome]:
        async with mocked() as server:
            return await open_loop(ready_for(server, items), server=server)

    first, second, third = run(send())
    assert second.due_s == pytest.approx(first.end_s + 0.03)
    assert third.due_s == pytest.approx(second.end_s)
    assert second.sent_s >= first.end_s + 0.03


def test_failures_are_outcomes_and_the_load_goes_on() -> None:
    async def send() -> list[Outcome]:
        async with mocked(MockSchedule(ttft_s=0.0, itl_s=0.0, fail_every=3)) as server:
            return await closed_loop(ready_for(server, [make_item()] * 9), server=server, concurrency=2)

    assert sum(one.error == "http 503" for one in run(send())) == 3


def test_who_follows_a_failure_is_still_sent() -> None:
    items = [make_item(due_s=0.0), make_item(follows=0)]

    async def send() -> list[Outcome]:
        async with mocked(MockSchedule(ttft_s=0.0, itl_s=0.0, fail_every=1)) as server:
            return await open_loop(ready_for(server, items), server=server)

    assert [one.error for one in run(send())] == ["http 503"] * 2


@pytest.mark.parametrize("is_open", [True, False])
def test_an_interrupt_ends_the_load_and_tells_what_was_sent(is_open: bool) -> None:
    async def send() -> list[Outcome]:
        async with mocked(SLOW) as server:
            items = ready_for(server, [make_item(due_s=0.0), make_item(due_s=0.0), make_item(due_s=99.0)])
            asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
            if is_open:
                return await open_loop(items, server=server)
            return await closed_loop(items, server=server, concurrency=2)

    assert [one.error for one in run(send())] == ["interrupted"] * 2


def test_a_mistake_of_our_own_is_raised() -> None:
    async def send() -> None:
        async with mocked() as server:
            await closed_loop([None], server=server, concurrency=1)  # type: ignore[list-item]

    with pytest.raises(AttributeError):
        run(send())


def test_bodies_are_made_before_the_load() -> None:
    async def make() -> list[Ready]:
        async with mocked(FAST) as server:
            maker = PromptMaker(words=WORDS, count=None, tokens_per_word=1.0, overhead=0)
            return await prepare([make_item(3, 7)], prompts=maker, server=server)

    (ready,) = run(make())
    assert (ready.outcome().wanted_prompt, ready.outcome().wanted_output, ready.place) == (3, 7, 0)
    assert b'"max_tokens": 7' in ready.body
