"""An engine that makes no more steps: who waits is told, who asks is refused, and its next step mends it all."""

import asyncio
import threading
from typing import Any

import pytest

from tests.serve.serve_builders import ScriptedHandle, ScriptedModel, client_of, error_of, events_of, make_chat
from twostroke.core.snapshot import Snapshot
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.watchdog import Watchdog

CHAT = "/v1/chat/completions"
QUICK = LimitsConfig(stall_s=0.1, answer_s=0.1)


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
            observe(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_request_of_an_engine_that_stands_still_ends_with_an_error(
    is_stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = StuckModel()
    with client_of(model, limits=QUICK) as client:
        response = client.post(CHAT, json=make_chat(stream=is_stream))
        if is_stream:
            *_, error, done = events_of(response.text)
            assert ("stopped making steps" in error, done) == (True, "[DONE]")
        else:
            assert response.status_code == 503
            assert error_of(response)["code"] == "stalled"
        assert "no step of the engine for 0.1 s: 1 requests are told so" in caplog.text
        for refused in (client.post(CHAT, json=make_chat()), client.get("/ready"), client.get("/health")):
            assert refused.status_code == 503
            assert error_of(refused)["code"] == "stalled"
        assert client.get("/metrics").status_code == 503
        model.may_go_on.set()
        model.step()
        assert client.post(CHAT, json=make_chat()).status_code == 200
        assert client.get("/health").status_code == 200


def test_an_engine_that_steps_is_let_alone_however_long_an_answer_takes() -> None:
    model = ScriptedModel(["x"] * 20, pause_s=0.02)
    with client_of(model, limits=QUICK) as client:
        steps = threading.Thread(target=lambda: [model.step_observers[1](None) for _ in iter(ticks(0.02, 25))])  # type: ignore[arg-type]
        steps.start()
        assert client.post(CHAT, json=make_chat(max_tokens=20)).status_code == 200
        steps.join()


def ticks(pause_s: float, count: int) -> Any:
    pause = threading.Event()
    for number in range(count):
        pause.wait(pause_s)
        yield number


def test_nothing_is_watched_while_nobody_waits() -> None:
    async def watch() -> bool:
        dog, answers = Watchdog(), Answers(max_pending=9)
        dog.watch(answers, stall_s=0.01)
        await answers.submit(ScriptedModel(), ["p"], SamplingParams(), arrival_s=0.0)
        await asyncio.sleep(0.05)
        return dog.is_stalled

    assert not asyncio.run(watch())
