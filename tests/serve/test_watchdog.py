"""An engine that makes no more steps: who waits is told, who asks is refused, and its next step mends it all."""

import asyncio
import threading
import weakref
from typing import Any

import pytest

from tests.serve.serve_builders import (
    ScriptedHandle,
    ScriptedModel,
    client_of,
    error_of,
    events_of,
    make_chat,
    make_finish,
    registry_of,
    take_end,
)
from tests.serve.time_builders import StillLoop, run_on
from twostroke.core.event import Usage
from twostroke.core.sequence import FinishReason
from twostroke.core.snapshot import Snapshot
from twostroke.serve.answers import Answers
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.routes import Routes
from twostroke.serve.state_routes import StateRoutes
from twostroke.serve.watchdog import NUM_LOOKS, Watchdog

CHAT = "/v1/chat/completions"
STATE = ("ready", "health", "metrics")
STEP: Any = None  # only that there was one counts


class StuckModel(ScriptedModel):
    """Takes requests and never answers, not even for its counts, until `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()

    def submit(self, prompt: Any, params: Any = None, **options: Any) -> ScriptedHandle:
        handle = ScriptedHandle("stuck", num_prompt_tokens=1)
        say = super().submit

        def later() -> None:
            self.may_go_on.wait()
            say(prompt, params, **options)

        threading.Thread(target=later, daemon=True).start()
        return handle

    def snapshot(self) -> Snapshot:
        self.may_go_on.wait()
        return super().snapshot()

    def step(self) -> None:
        for observe in self.step_observers[1:]:  # the metrics want a real record
            observe(STEP)


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_request_of_an_engine_that_stands_still_ends_with_an_error(
    is_stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = StuckModel()
    models = registry_of(model)
    with client_of(models, limits=LimitsConfig(stall_s=0.1)) as client:
        response = client.post(CHAT, json=make_chat(stream=is_stream))
        if is_stream:
            *_, error, done = events_of(response.text)
            assert ("stopped making steps" in error, done) == (True, "[DONE]")
        else:
            assert response.status_code == 503
            assert error_of(response)["code"] == "stalled"
        assert "no step of the engine for 0.1 s: 1 requests are told so" in caplog.text
        for refused in (client.post(CHAT, json=make_chat()), *(client.get(f"/{path}") for path in STATE)):
            assert refused.status_code == 503
            assert error_of(refused)["code"] == "stalled"
    model.may_go_on.set()
    model.step()
    with client_of(models) as client:  # whose patience no machine is too slow for
        assert client.post(CHAT, json=make_chat()).status_code == 200
        assert [client.get(f"/{path}").status_code for path in STATE] == [200] * 3


def test_who_asks_for_counts_is_told_that_the_engine_does_not_give_them_and_holds_no_second_thread() -> None:
    model = StuckModel()
    with client_of(model, limits=LimitsConfig(answer_s=0.05)) as client:
        for path in ("/health", "/metrics", "/health"):
            refused = client.get(path)
            assert (refused.status_code, error_of(refused)["code"]) == (503, "stalled")
        model.may_go_on.set()


@pytest.mark.parametrize("times_s", [[1000.0], [1.0, 2.0, 3.0], [5.0, 1000.0, 2000.0]])
def test_who_asks_for_counts_is_patient_with_a_process_that_was_stopped(times_s: list[float]) -> None:
    """However long it was, it is one look of many; those that find nothing count, not their time."""
    loop, model = StillLoop(), StuckModel()

    async def ask() -> int:
        models = registry_of(model)
        limits = LimitsConfig(answer_s=float(NUM_LOOKS))
        state = StateRoutes(models, routes=Routes(models, limits=limits), limits=limits)
        asking = asyncio.create_task(state.health())
        await asyncio.sleep(0)
        for now_s in times_s:
            await loop.wait_until(now_s)
        model.may_go_on.set()
        return (await asking).status_code

    assert run_on(loop, ask()) == 200


def owed() -> Answers:
    """One answer the engine was asked for."""
    answers = Answers(max_pending=9)
    answers.asked[0], answers.num_unfinished = ScriptedHandle("r", num_prompt_tokens=1), 1
    return answers


def end(answers: Answers) -> None:
    usage = Usage(prompt_tokens=1, cached_tokens=0, completion_tokens=1)
    take_end(answers, make_finish("r", reason=FinishReason.STOP, usage=usage))


def test_an_engine_that_steps_is_let_alone_however_long_an_answer_takes() -> None:
    loop, dog = StillLoop(), Watchdog()

    async def watch() -> None:
        answers = owed()
        dog.watch(answers, stall_s=NUM_LOOKS)
        for second in range(5 * NUM_LOOKS):
            if second % (NUM_LOOKS - 1) == 0:
                dog.observe_step(STEP)
            await loop.wait_until(second + 1.0)
            assert not dog.is_stalled
        for second in range(5 * NUM_LOOKS, 7 * NUM_LOOKS):
            await loop.wait_until(second + 1.0)
        assert dog.is_stalled
        with pytest.raises(Exception, match="stopped making steps"):
            await anext(answers.events())

    run_on(loop, watch())


@pytest.mark.parametrize("sign", ["a step", "an end"])
def test_any_sign_of_life_mends_it(sign: str) -> None:
    """A hang between two steps may end without another step: cancelled answers end at once."""
    loop, dog = StillLoop(), Watchdog()

    async def watch() -> None:
        answers = owed()
        dog.watch(answers, stall_s=NUM_LOOKS)
        for second in range(NUM_LOOKS + 1):
            await loop.wait_until(second + 1.0)
        assert dog.is_stalled
        if sign == "a step":
            dog.observe_step(STEP)
        else:
            end(answers)
        assert not dog.is_stalled

    run_on(loop, watch())


def test_what_ended_before_it_was_watched_is_not_kept() -> None:
    async def run() -> None:
        dog, answers = Watchdog(), owed()
        end(answers)
        dog.watch(answers, stall_s=NUM_LOOKS)
        kept = weakref.ref(answers)
        del answers
        assert kept() is None

    run_on(StillLoop(), run())


def test_nothing_is_watched_while_nobody_waits() -> None:
    loop, dog = StillLoop(), Watchdog()

    async def watch() -> None:
        answers = owed()
        dog.watch(answers, stall_s=NUM_LOOKS)
        await loop.wait_until(1.0)
        end(answers)
        for second in range(3 * NUM_LOOKS):
            await loop.wait_until(second + 2.0)
        assert not dog.is_stalled
        assert len(asyncio.all_tasks()) == 1

    run_on(loop, watch())
