"""A reply does not wait for its ledger, unless it tells it; records and metrics do, and so does who asks for them."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.serve.serve_builders import MODEL, ScriptedModel, client_of, make_chat, make_completion, make_finish
from twostroke.core.account import Account
from twostroke.core.event import Event, FinishEvent, Usage
from twostroke.core.ledger import Ledger, Part
from twostroke.core.sequence import FinishReason
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers, EventBridge
from twostroke.serve.records import RequestRecords

LEDGER = Ledger({Part.DECODE: 0.2}, ())


def make_end() -> FinishEvent:
    return make_finish("r", reason=FinishReason.STOP, usage=Usage(1, 0, 1))


class Books:
    """What observers were told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def observe(self, answers: Answers, index: int, event: Event) -> None:
        ledger = answers.ledgers[index]  # a finish is told with it
        self.told.append(f"finish {ledger.total_s:.1f} s")

    def observe_end(self, answers: Answers) -> None:
        self.told.append("end")


def owed(books: Books, *, num_answers: int = 1) -> Answers:
    answers = Answers(max_pending=9, request_id="r", observers=[books.observe], end_observers=[books.observe_end])
    answers.num_unfinished = num_answers
    return answers


async def read(answers: Answers) -> list[int]:
    return [index async for index, _ in answers.events()]


def test_the_reader_hears_of_an_end_before_its_ledger_is_there_and_the_books_with_it() -> None:
    async def run() -> None:
        books = Books()
        answers = owed(books)
        answers.take(0, make_end())
        assert await read(answers) == [0]
        assert answers.has_ended
        assert books.told == []
        answers.take_ledger(0, LEDGER)
        assert books.told == ["finish 0.2 s", "end"]

    asyncio.run(run())


def test_a_ledger_may_come_first() -> None:
    async def run() -> None:
        books = Books()
        answers = owed(books)
        answers.take_ledger(0, LEDGER)
        assert not answers.has_ended
        assert books.told == []
        answers.take(0, make_end())
        assert await read(answers) == [0]
        assert books.told == ["finish 0.2 s", "end"]

    asyncio.run(run())


def test_the_end_is_told_once_behind_the_last_ledger_in_whatever_order_they_come() -> None:
    async def run() -> None:
        books = Books()
        answers = owed(books, num_answers=2)
        answers.take(1, make_end())
        answers.take(0, make_end())
        assert await read(answers) == [1, 0]
        answers.take_ledger(0, LEDGER)
        assert books.told == ["finish 0.2 s"]
        answers.take_ledger(1, LEDGER)
        assert books.told == ["finish 0.2 s", "finish 0.2 s", "end"]

    asyncio.run(run())


@pytest.mark.parametrize("is_sent_first", [True, False])
def test_the_time_of_the_sending_joins_the_ledger_whichever_comes_first(is_sent_first: bool) -> None:
    async def run() -> Ledger:
        answers = owed(Books())
        answers.take(0, make_end())
        if is_sent_first:
            answers.note_sent(sent_s=0.7, waited_s=0.4)
        answers.take_ledger(0, LEDGER)
        if not is_sent_first:
            answers.note_sent(sent_s=0.7, waited_s=0.4)
        return answers.ledgers[0]

    ledger = asyncio.run(run())
    assert ledger.total_s == pytest.approx(0.7)
    assert ledger.parts[Part.BACKPRESSURE] == pytest.approx(0.4)


def test_a_record_is_of_a_running_request_until_its_ledger_is_there() -> None:
    async def run() -> None:
        records = RequestRecords(max_kept=9, max_bytes=9999)
        answers = Answers(max_pending=9, request_id="r", end_observers=[records.observe_end])
        answers.num_unfinished = 1
        records.open(answers)
        answers.take(0, make_end())
        running = records.find("r")
        assert running is not None
        assert running["answers"] == []
        answers.take_ledger(0, LEDGER)
        ended = records.find("r")
        assert ended is not None
        assert (ended["status"], ended["answers"][0]["ledger"]["decode"]) == ("ended", 0.2)

    asyncio.run(run())


@pytest.fixture
def let_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No ledger is read until it is set."""
    event = threading.Event()

    def held(account: Account, *, until_s: float | None = None) -> Ledger:
        assert event.wait(60)
        return LEDGER

    monkeypatch.setattr(Account, "read", held)
    yield event
    event.set()


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_reply_comes_while_its_ledger_is_held_and_who_asks_behind_it_finds_everything(
    let_go: threading.Event, is_stream: bool
) -> None:
    with client_of(ScriptedModel(["a"])) as client:
        body = make_chat(stream=is_stream)
        assert client.post("/v1/chat/completions", json=body, headers={"x-request-id": "mine"}).status_code == 200
        threading.Timer(0.05, let_go.set).start()
        record = client.get("/v1/requests/mine").json()
        assert record["status"] == "ended"
        assert record["answers"][0]["ledger"]["decode"] == 0.2


def test_a_scrape_waits_for_the_ledgers_of_what_ended(let_go: threading.Event) -> None:
    with client_of(ScriptedModel(["a"])) as client:
        assert client.post("/v1/completions", json=make_completion()).status_code == 200
        threading.Timer(0.05, let_go.set).start()
        text = client.get("/metrics").text
    assert f'twostroke_ledger_seconds_total{{model_name="{MODEL}",part="decode"}} 0.2' in text


def test_an_id_is_free_again_with_the_reply(let_go: threading.Event) -> None:
    with client_of(ScriptedModel(["a"])) as client:
        for _ in range(2):
            body, headers = make_completion(), {"x-request-id": "mine"}
            assert client.post("/v1/completions", json=body, headers=headers).status_code == 200
        let_go.set()
        assert client.get("/v1/requests/mine").json()["status"] == "ended"


def test_a_reply_that_tells_its_ledger_waits_for_it(let_go: threading.Event) -> None:
    threading.Timer(0.05, let_go.set).start()
    with client_of(ScriptedModel(["a"])) as client:
        body = make_completion(ledger=True)
        assert client.post("/v1/completions", json=body).json()["ledger"]["decode"] == 0.2


def test_an_end_whose_ledger_cannot_be_read_comes_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    class Unreadable(Account):
        def read(self, *, until_s: float | None = None) -> Ledger:
            raise ZeroDivisionError

    async def ask() -> Answers:
        bridge = EventBridge()
        answers = Answers(max_pending=9, bridge=bridge)
        answers.num_unfinished = 1
        account = Unreadable(request_id="r", arrival_s=0.0, before={}, finish_s=0.2)
        answers.listener(0)(replace(make_end(), account=account))
        assert await read(answers) == [0]
        await bridge.settled()
        return answers

    assert asyncio.run(ask()).ledgers[0].total_s == pytest.approx(0.2)
    assert "the ledger of request r cannot be read" in caplog.text


def test_a_wish_for_the_ledger_holds_the_finish_of_each_answer_until_its_own_is_read() -> None:
    async def run() -> None:
        answers = Answers(max_pending=9)
        model = ScriptedModel(["a"], rest="")
        params = SamplingParams(max_tokens=1)
        await answers.submit(model, ["p"], params, arrival_s=0.0, wants_ledger=True)
        async for index, event in answers.events():
            if isinstance(event, FinishEvent):
                assert index in answers.ledgers

    asyncio.run(run())
