import asyncio
import time
from collections.abc import MutableMapping
from typing import Any

import pytest

from tests.serve.serve_builders import ScriptedHandle, ScriptedModel, make_finish
from tests.serve.time_builders import StillLoop, run_on
from twostroke.core.event import FinishEvent, TokenEvent, Usage
from twostroke.core.sequence import FinishReason
from twostroke.errors import TwostrokeError
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers, CancelCause
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


# How much may wait to be read


class Sudden(ScriptedModel):
    """Says all its pieces and the end before `submit` returns."""

    def submit(self, prompt: Any, params: Any = None, *, on_event: Any = None, **options: Any) -> ScriptedHandle:
        handle = ScriptedHandle("r1", num_prompt_tokens=len(prompt))
        self.handles.append(handle)
        self._speak("r1", prompt, params, on_event, handle)
        return handle


@pytest.mark.parametrize(("num_tokens", "is_cut"), [(4, False), (5, False), (6, True)])
def test_as_many_tokens_as_the_limit_may_wait_and_the_end_always_may(num_tokens: int, is_cut: bool) -> None:
    model = Sudden(["x"] * num_tokens)

    async def ask() -> list[tuple[int, str]] | ApiError:
        answers = Answers(max_pending=5)
        await answers.submit(model, ["p"], PARAMS, arrival_s=1.0)
        await asyncio.sleep(0)  # whatever the model said is waiting now
        try:
            return await collect(answers)
        except ApiError as error:
            return error

    found = asyncio.run(ask())
    assert model.handles[0].is_cancelled.is_set() is is_cut
    if is_cut:
        assert isinstance(found, ApiError)
        assert found.status == 503
        assert str(found) == "5 tokens waited to be read: read faster or ask for fewer"
    else:
        assert found == [(0, "x")] * num_tokens + [(0, "")]


def test_a_cancel_while_prompts_are_still_submitted_ends_those_that_began_and_begins_no_other() -> None:
    """A deadline does not wait until the last of a thousand texts was taken."""

    async def ask() -> None:
        answers = Answers(max_pending=100)

        class Closing(ScriptedModel):
            """The server ends during the second submit."""

            def submit(self, prompt: Any, *args: Any, **options: Any) -> ScriptedHandle:
                if prompt == "q":
                    answers.cancel()
                return super().submit(prompt, *args, **options)

        model = Closing(["x"] * 1000, pause_s=0.01)
        with pytest.raises(ApiError, match="the server is closing"):
            await answers.submit(model, ["p", "q", "r", "s"], PARAMS, arrival_s=1.0, num_choices=2)
        assert model.prompts == ["p", "q"]
        assert [handle.is_cancelled.is_set() for handle in model.handles] == [True] * 2
        while answers.num_unfinished:
            await asyncio.sleep(0.01)
        assert answers.has_ended

    asyncio.run(ask())


def test_a_client_that_only_goes_on_sending_is_still_there() -> None:
    model = ScriptedModel(["x"] * 3)

    async def ask() -> list[tuple[int, str]]:
        answers = Answers(max_pending=100)
        sent = iter([{"type": "http.request"}] * 3)

        async def receive() -> MutableMapping[str, Any]:
            message = next(sent, None)
            return message if message is not None else await never()

        async with answers.cancelled_when_client_leaves(receive):
            await asyncio.sleep(0)  # the watcher has heard all three
            await answers.submit(model, ["p"], PARAMS, arrival_s=1.0)
            return await collect(answers)

    assert asyncio.run(ask()) == [(0, "x")] * 3 + [(0, "")]
    assert not model.handles[0].is_cancelled.is_set()


def test_no_prompts_are_no_events() -> None:
    async def ask() -> list[tuple[int, str]]:
        answers = Answers(max_pending=1)
        await answers.submit(ScriptedModel(), [], PARAMS, arrival_s=1.0)
        return await collect(answers)

    assert asyncio.run(ask()) == []


def counted(answers: Answers) -> list[int]:
    """How many answers were open each time somebody was told that all had ended."""
    told: list[int] = []
    answers.observe_end(lambda each: told.append(each.num_unfinished))
    return told


def test_who_asks_for_the_end_behind_it_is_told_at_once() -> None:
    async def ask() -> list[int]:
        answers = Answers(max_pending=100)
        await answers.submit(ScriptedModel(["a"]), ["p"], PARAMS, arrival_s=1.0)
        await collect(answers)
        return counted(answers)

    assert asyncio.run(ask()) == [0]


@pytest.mark.parametrize(("prompts", "num_choices"), [(["p"], 1), (["p", "q"], 3)])
def test_the_end_is_told_once_after_the_last_answer(prompts: list[str], num_choices: int) -> None:
    async def ask() -> list[int]:
        answers = Answers(max_pending=100)
        told = counted(answers)
        await answers.submit(ScriptedModel(), prompts, PARAMS, arrival_s=1.0, num_choices=num_choices)
        await collect(answers)
        assert answers.has_ended
        return told

    assert asyncio.run(ask()) == [0]


def test_the_end_is_told_though_the_last_choice_was_never_started() -> None:
    """The first has ended when the second is refused: no event is to come that could tell it."""

    class SecondRefused(ScriptedModel):
        def submit(self, prompt: Any, *args: Any, **options: Any) -> ScriptedHandle:
            if options["choice_index"] == 1:
                while self.num_running:
                    time.sleep(0.001)
                raise TwostrokeError("no second one")
            return super().submit(prompt, *args, **options)

    async def ask() -> list[int]:
        answers = Answers(max_pending=100)
        told = counted(answers)
        await answers.submit(SecondRefused(["x"]), ["p"], PARAMS, arrival_s=1.0, num_choices=2)
        with pytest.raises(TwostrokeError, match="no second one"):
            await collect(answers)
        while not answers.has_ended:  # the first one's end may come behind the refusal
            await asyncio.sleep(0.001)
        return told

    assert asyncio.run(ask()) == [0]


@pytest.mark.parametrize("refused", ["p", "q", "r"])
def test_a_refused_prompt_leaves_those_before_it_to_end_and_counts_none_behind(refused: str) -> None:
    class OneRefused(ScriptedModel):
        def submit(self, prompt: Any, *args: Any, **options: Any) -> ScriptedHandle:
            if prompt == refused:
                raise TwostrokeError("not this one")
            return super().submit(prompt, *args, **options)

    async def ask() -> int:
        answers = Answers(max_pending=100)
        model = OneRefused(["x"] * 1000, pause_s=0.001)
        with pytest.raises(TwostrokeError, match="not this one"):
            await answers.submit(model, ["p", "q", "r"], PARAMS, arrival_s=1.0, num_choices=2)
        while model.num_running:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        return answers.num_unfinished

    assert asyncio.run(ask()) == 0


def test_answers_cancelled_before_they_begin_never_do() -> None:
    async def ask() -> None:
        answers, model = Answers(max_pending=100), ScriptedModel()
        answers.cancel(CancelCause.DELETED)
        with pytest.raises(ApiError, match="cancelled by a DELETE"):
            await answers.submit(model, ["p"], PARAMS, arrival_s=1.0)
        assert model.prompts == []

    asyncio.run(ask())


def test_work_before_the_answers_ends_with_a_cancel_and_else_with_its_outcome() -> None:
    async def quick() -> int:
        return 7

    async def ask() -> None:
        answers = Answers(max_pending=100)
        assert await answers.unless_cancelled(quick()) == 7
        waiting = asyncio.ensure_future(answers.unless_cancelled(asyncio.Event().wait()))
        await asyncio.sleep(0)
        answers.cancel(CancelCause.DEADLINE)
        with pytest.raises(ApiError, match="not complete after timeout_s"):
            await waiting
        assert len(asyncio.all_tasks()) == 1  # nothing waits on

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("cause", "is_told"),
    [
        (CancelCause.DELETED, True),
        (CancelCause.DEADLINE, True),
        (CancelCause.CLIENT_LEFT, True),
        (None, False),
        (CancelCause.REFUSED, False),
    ],
)
def test_what_is_cancelled_before_the_engine_was_asked_ends_once_and_is_told(
    cause: CancelCause | None, is_told: bool
) -> None:
    ended: list[Answers] = []

    async def ask() -> None:
        answers = Answers(max_pending=5, request_id="r")
        answers.observe_end(ended.append)
        if cause is not None:
            answers.cancel(cause)
            with pytest.raises(ApiError):
                await answers.submit(ScriptedModel(), ["p"], PARAMS, arrival_s=1.0)
        answers.end_unbegun()
        answers.end_unbegun()

    asyncio.run(ask())
    assert [answers.cause for answers in ended] == ([cause] if is_told else [])


# Tokens that are told at once


def test_a_teller_gets_the_tokens_that_come_while_nothing_waits_and_never_the_end() -> None:
    told: list[str] = []

    async def ask() -> list[tuple[int, str]]:
        answers, heard = Answers(max_pending=9), list[tuple[int, str]]()
        answers.num_unfinished = 1

        def tell(index: int, event: TokenEvent) -> bool:
            if event.text != "no":
                told.append(event.text)
            return event.text != "no"

        async def read() -> None:
            async for each in answers.events_or_silence(None, teller=tell):
                assert each is not None
                heard.append((each[0], each[1].text))

        def say(*texts: str) -> None:
            for text in texts:
                answers.take(0, TokenEvent("r", 0, text, 0.0))

        say("a")  # nobody reads yet
        reading = asyncio.create_task(read())
        await asyncio.sleep(0.001)
        say("b", "no", "c")  # behind one that waits
        await asyncio.sleep(0.001)
        say("d")
        answers.take(0, make_finish("r", reason=FinishReason.STOP, text="e", usage=Usage(1, 0, 5)))
        await reading
        return heard

    assert asyncio.run(ask()) == [(0, "a"), (0, "no"), (0, "c"), (0, "e")]
    assert told == ["b", "d"]


def test_what_a_teller_raises_is_its_readers() -> None:
    def tell(index: int, event: TokenEvent) -> bool:
        raise ZeroDivisionError

    async def ask() -> None:
        answers = Answers(max_pending=9)
        answers.num_unfinished = 1
        reading = asyncio.ensure_future(anext(answers.events_or_silence(None, teller=tell)))
        await asyncio.sleep(0.001)
        answers.take(0, TokenEvent("r", 0, "a", 0.0))
        await reading

    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask())


def test_a_token_told_at_once_breaks_the_silence_too() -> None:
    loop, signs = StillLoop(), list[float]()

    async def ask() -> None:
        answers = Answers(max_pending=9)
        answers.num_unfinished = 1

        async def read() -> None:
            async for each in answers.events_or_silence(10.0, teller=lambda *_: True):
                if each is None:
                    signs.append(loop.now_s)

        reading = asyncio.create_task(read())
        await loop.wait_until(0.0)
        await loop.wait_until(6.0)
        answers.take(0, TokenEvent("r", 0, "a", 6.0))
        for now_s in (10.0, 15.9, 16.0, 20.0):
            await loop.wait_until(now_s)
        answers.take(0, make_finish("r", reason=FinishReason.STOP, usage=Usage(1, 0, 1)))
        await reading

    run_on(loop, ask())
    assert signs == [16.0]
