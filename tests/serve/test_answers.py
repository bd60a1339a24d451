import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from tests.serve.serve_builders import ScriptedModel
from twostroke.core.event import FinishEvent, TokenEvent
from twostroke.core.sequence import FinishReason
from twostroke.errors import TwostrokeError
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers
from twostroke.serve.api_error import ApiError

PARAMS = SamplingParams()


async def never() -> MutableMapping[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


async def collect(answers: Answers) -> list[tuple[int, str]]:
    return [(index, event.text) async for index, event in answers.events()]


def test_events_arrive_in_order_and_end_with_the_last_finish() -> None:
    async def ask() -> list[tuple[int, str]]:
        answers = Answers(max_pending=100)
        await answers.submit(ScriptedModel(["a", "b"], rest="c"), ["p", "q"], PARAMS, arrival_s=1.0)
        return await collect(answers)

    found = asyncio.run(ask())
    for index in (0, 1):
        assert [text for owner, text in found if owner == index] == ["a", "b", "c"]


def test_a_client_that_leaves_cancels_every_choice() -> None:
    model = ScriptedModel(["x"] * 1000, pause_s=0.01)

    async def ask() -> list[FinishReason]:
        answers = Answers(max_pending=100)
        await answers.submit(model, ["p", "q"], PARAMS, arrival_s=1.0)
        messages = iter([{"type": "http.request"}, {"type": "http.disconnect"}])

        async def receive() -> MutableMapping[str, Any]:
            return next(messages)

        async with answers.cancelled_when_client_leaves(receive):
            return [event.reason async for _, event in answers.events() if isinstance(event, FinishEvent)]

    assert asyncio.run(ask()) == [FinishReason.CANCELLED] * 2
    assert model.num_running == 0


def test_leaving_the_block_early_cancels() -> None:
    model = ScriptedModel(["x"] * 1000, pause_s=0.01)

    async def ask() -> None:
        answers = Answers(max_pending=100)
        await answers.submit(model, ["p"], PARAMS, arrival_s=1.0)
        async with answers.cancelled_when_client_leaves(never):
            async for _ in answers.events():
                raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(ask())
    assert model.handles[0].is_cancelled.is_set()


def test_a_finished_answer_is_not_cancelled() -> None:
    model = ScriptedModel()

    async def ask() -> None:
        answers = Answers(max_pending=100)
        await answers.submit(model, ["p"], PARAMS, arrival_s=1.0)
        async with answers.cancelled_when_client_leaves(never):
            await collect(answers)

    asyncio.run(ask())
    assert not model.handles[0].is_cancelled.is_set()


def test_a_client_that_does_not_read_is_cut_off_with_the_number() -> None:
    model = ScriptedModel(["x"] * 50, pause_s=0.001)

    async def ask() -> None:
        answers = Answers(max_pending=5)
        await answers.submit(model, ["p"], PARAMS, arrival_s=1.0)
        await asyncio.to_thread(model.handles[0].is_cancelled.wait)  # nobody has read meanwhile
        await collect(answers)

    with pytest.raises(ApiError, match="5 tokens waited"):
        asyncio.run(ask())
    assert model.handles[0].is_cancelled.is_set()


def test_events_after_the_loop_has_closed_are_dropped_quietly() -> None:
    answers: list[Answers] = []

    async def ask() -> None:
        answers.append(Answers(max_pending=5))

    asyncio.run(ask())
    answers[0].listener(0)(TokenEvent("r1", 0, "late", 0.0))


def test_cancelling_a_closed_model_is_fine() -> None:
    class Closed(ScriptedModel):
        def submit(self, *args: Any, **options: Any) -> Any:
            handle = super().submit(*args, **options)

            def refuse() -> None:
                raise TwostrokeError("the model is closed")

            handle.cancel = refuse  # type: ignore[method-assign]
            return handle

    async def ask() -> None:
        answers = Answers(max_pending=5)
        await answers.submit(Closed(), ["p"], PARAMS, arrival_s=1.0)
        answers.cancel()
        answers.cancel()

    asyncio.run(ask())
