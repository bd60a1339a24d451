"""From the engine's finish to the last byte: what a slow client adds, and that everything else changes nothing."""

import asyncio
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response
from starlette.types import Message

from tests.serve.serve_builders import ScriptedModel, client_of, make_chat, make_finish, take_end
from twostroke.core.clock import VirtualClock
from twostroke.core.event import Usage
from twostroke.core.ledger import Part
from twostroke.core.sequence import FinishReason
from twostroke.serve.answers import Answers
from twostroke.serve.delivery import DeliveredReply
from twostroke.serve.records import record_of

CHAT = "/v1/chat/completions"


class Chunks(Response):
    """Sends as many pieces."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        for number in range(self._count):
            await send({"type": "http.response.body", "body": b"x", "more_body": number + 1 < self._count})


def deliver(reply: Response, *, seconds: list[float], finishes_before: int) -> tuple[Answers, float | None]:
    """Send a reply whose client takes `seconds` for each message; the answer ends (at 0.2 s) before one of them."""
    clock, told = VirtualClock(), [None]

    async def run() -> Answers:
        answers = Answers(max_pending=9, request_id="r")
        answers.num_unfinished = 1
        pauses = iter(enumerate(seconds))

        async def send(message: Message) -> None:
            number, pause_s = next(pauses)
            if number == finishes_before:
                usage = Usage(prompt_tokens=1, cached_tokens=0, completion_tokens=1)
                take_end(answers, make_finish("r", reason=FinishReason.STOP, usage=usage))
            clock.advance(pause_s)

        def note(answers: Answers, waited_s: float) -> None:
            told[0] = waited_s  # type: ignore[call-overload]

        await DeliveredReply(reply, answers, now=clock.now, on_sent=note)({}, None, send)  # type: ignore[arg-type]
        return answers

    return asyncio.run(run()), told[0]


def test_waiting_for_a_slow_client_after_the_end_is_backpressure() -> None:
    answers, waited_s = deliver(Chunks(4), seconds=[0.1, 0.1, 3.0, 0.5], finishes_before=2)
    assert waited_s == pytest.approx(3.5)
    ledger = answers.ledger_until_sent(0)
    assert ledger.parts[Part.BACKPRESSURE] == pytest.approx(3.5)
    assert ledger.total_s == pytest.approx(3.7)
    (told,) = record_of(answers)["answers"]
    assert told["e2e_s"] == pytest.approx(3.7)
    assert told["ledger"]["backpressure"] == pytest.approx(3.5)


def test_a_client_that_was_slow_before_the_end_waits_for_the_rest_alone() -> None:
    """The engine ended at 0.2 s, in the middle of a piece that took from 0 to 1 s."""
    answers, waited_s = deliver(Chunks(1), seconds=[1.0], finishes_before=0)
    assert waited_s == pytest.approx(0.8)
    assert answers.ledger_until_sent(0).total_s == pytest.approx(1.0)


def test_a_reply_that_ended_before_its_answer_is_not_accounted_for() -> None:
    answers, waited_s = deliver(Chunks(2), seconds=[1.0, 1.0], finishes_before=5)
    assert waited_s is None
    assert answers.sent_s is None


def test_status_headers_and_body_are_the_replys_own() -> None:
    async def run() -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        answers = Answers(max_pending=9)
        reply = JSONResponse({"a": 1}, status_code=201, headers={"X-Request-Id": "r"})
        clock = VirtualClock()
        await DeliveredReply(reply, answers, now=clock.now, on_sent=lambda *_: None)({"type": "http"}, None, send)  # type: ignore[arg-type]
        return sent

    start, body = asyncio.run(run())
    assert (start["status"], body["body"]) == (201, b'{"a":1}')
    assert (b"x-request-id", b"r") in start["headers"]


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_record_adds_up_to_its_time_until_the_reply_was_sent(is_stream: bool) -> None:
    with client_of(ScriptedModel()) as client:
        response = client.post(CHAT, json=make_chat(stream=is_stream), headers={"x-request-id": "mine"})
        assert response.status_code == 200
        (told,) = client.get("/v1/requests/mine").json()["answers"]
    parts = dict(told["ledger"])
    stalls = parts.pop("stall")
    assert sum(parts.values()) + sum(stall["time_s"] for stall in stalls) == pytest.approx(told["e2e_s"])
    assert told["e2e_s"] > 0.2  # the scripted finish; the clock of the sending is another
