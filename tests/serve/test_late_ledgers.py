"""A reply does not wait for its ledger, unless it tells it; records and metrics do, and so does who asks for them."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import uvicorn

from tests.serve.serve_builders import (
    MODEL,
    ScriptedModel,
    ScriptedShelf,
    client_of,
    make_chat,
    make_completion,
    make_finish,
    registry_of,
)
from tests.serve.test_model_registry import GB, Shelf
from twostroke.core.account import Account
from twostroke.core.event import Event, FinishEvent, Usage
from twostroke.core.ledger import Ledger, Part
from twostroke.core.sequence import FinishReason
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers, CancelCause, EventBridge
from twostroke.serve.api_error import ApiError
from twostroke.serve.json_log import log_end
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.records import RequestRecords, record_of
from twostroke.serve.routes import Routes
from twostroke.serve.server import _Server

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

    def observe_books(self, answers: Answers) -> None:
        self.told.append("books closed")


def owed(books: Books, *, num_answers: int = 1) -> Answers:
    answers = Answers(max_pending=9, request_id="r", observers=[books.observe], book_observers=[books.observe_books])
    answers.observe_end(books.observe_end)
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
        assert (answers.has_ended, answers.is_booked) == (True, False)
        assert books.told == ["end"]
        answers.take_ledger(0, LEDGER)
        assert books.told == ["end", "finish 0.2 s", "books closed"]
        assert answers.is_booked

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
        assert books.told == ["end", "finish 0.2 s", "books closed"]

    asyncio.run(run())


def test_books_are_closed_once_behind_the_last_ledger_in_whatever_order_they_come() -> None:
    async def run() -> None:
        books = Books()
        answers = owed(books, num_answers=2)
        answers.take(1, make_end())
        answers.take(0, make_end())
        assert await read(answers) == [1, 0]
        answers.take_ledger(0, LEDGER)
        assert books.told == ["end", "finish 0.2 s"]
        answers.take_ledger(1, LEDGER)
        assert books.told == ["end", "finish 0.2 s", "finish 0.2 s", "books closed"]
        answers.cancel()
        answers.end_unbegun()
        assert books.told.count("books closed") == 1

    asyncio.run(run())


@pytest.mark.parametrize("is_sent_first", [True, False])
def test_the_time_of_the_sending_is_told_with_the_ledger_of_the_last_answer_and_counted_once(
    is_sent_first: bool,
) -> None:
    async def run() -> Answers:
        books = Books()
        answers = owed(books, num_answers=2)
        earlier = make_end()
        earlier.account.finish_s = 0.1
        answers.take(1, make_end())
        answers.take(0, earlier)
        if is_sent_first:
            answers.note_sent(sent_s=0.7, waited_s=0.4)
        answers.take_ledger(0, LEDGER)
        answers.take_ledger(1, LEDGER)
        if not is_sent_first:
            answers.note_sent(sent_s=0.7, waited_s=0.4)
        assert books.told == ["end", "finish 0.2 s", "finish 0.2 s", "books closed"]  # whoever counts adds it himself
        return answers

    answers = asyncio.run(run())
    assert answers.ledger_until_sent(0) == LEDGER
    ledger = answers.ledger_until_sent(1)
    assert ledger.total_s == pytest.approx(0.7)
    assert ledger.parts[Part.BACKPRESSURE] == pytest.approx(0.4)
    until_sent, until_finish = record_of(answers), record_of(answers, until_sent=False)
    assert [answer["e2e_s"] for answer in until_sent["answers"]] == pytest.approx([0.2, 0.7])
    assert [answer["e2e_s"] for answer in until_finish["answers"]] == pytest.approx([0.2, 0.2])


def test_a_record_is_of_a_running_request_until_its_ledger_is_there() -> None:
    async def run() -> None:
        records = RequestRecords(max_kept=9, max_bytes=9999)
        answers = Answers(max_pending=9, request_id="r", book_observers=[records.observe_books])
        answers.num_unfinished = 1
        records.open(answers)
        answers.take(0, make_end())
        running = records.find("r")
        assert running is not None
        assert (running["status"], running["answers"]) == ("running", [])
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
        await bridge.booked()
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


@pytest.mark.parametrize("route", ["/api/generate", "/api/embed"])
def test_ollamas_replies_tell_durations_and_wait_for_them(let_go: threading.Event, route: str) -> None:
    threading.Timer(0.05, let_go.set).start()
    body = {"model": MODEL, "prompt": "hi", "stream": False} if "generate" in route else {"model": MODEL, "input": "hi"}
    with client_of(ScriptedModel(["a"]), shelf=ScriptedShelf()) as client:
        reply = client.post(route, json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["total_duration"] == 200_000_000


def test_what_a_wish_for_the_ledger_holds_is_told_in_order() -> None:
    async def run() -> None:
        books = Books()
        answers = owed(books)
        await answers.submit(ScriptedModel(["a"], rest=""), [], SamplingParams(), arrival_s=0.0, wants_ledger=True)
        answers.num_unfinished = 1
        answers.take(0, make_end())
        assert books.told == []
        answers.take_ledger(0, LEDGER)
        assert books.told == ["finish 0.2 s", "end", "books closed"]

    asyncio.run(run())


def test_a_place_is_free_with_the_reply(let_go: threading.Event) -> None:
    with client_of(ScriptedModel(["a"]), limits=LimitsConfig(max_open_requests=2)) as client:
        codes = [client.post("/v1/completions", json=make_completion()).status_code for _ in range(2)]
        threading.Timer(0.05, let_go.set).start()  # as many unread ledgers as there are places: the next waits for them
        codes.append(client.post("/v1/completions", json=make_completion()).status_code)
        assert let_go.is_set()
    assert codes == [200, 200, 200]


def test_a_model_is_free_with_the_reply(let_go: threading.Event) -> None:
    shelf = Shelf({"a": 60 * GB, "b": 60 * GB})  # one at a time
    with client_of(shelf.registry) as client:
        codes = [client.post("/v1/completions", json=make_completion(model=name)).status_code for name in "ab"]
        let_go.set()
    assert codes == [200, 200]


def test_a_server_ends_behind_the_ledgers_so_that_its_log_is_whole(
    let_go: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def shut(server: uvicorn.Server, sockets: object = None) -> None:
        """Its connections are closed: every reply was sent."""

    monkeypatch.setattr(uvicorn.Server, "shutdown", shut)
    caplog.set_level(logging.INFO, logger="twostroke.requests")

    async def run() -> None:
        models = registry_of(ScriptedModel(["a"]))
        routes = Routes(models, limits=LimitsConfig())
        server = _Server(uvicorn.Config("no.application"), models=models, routes=routes, drain_s=60.0)
        answers = Answers(max_pending=9, request_id="r", bridge=routes._bridge_here(), book_observers=[log_end])
        answers.num_unfinished = 1
        answers.listener(0)(make_end())
        assert await read(answers) == [0]
        assert not caplog.records
        threading.Timer(0.05, let_go.set).start()
        await server.shutdown()

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == ["request ended"]


def test_who_looks_does_not_wait_for_ever(let_go: threading.Event) -> None:
    with client_of(ScriptedModel(["a"]), limits=LimitsConfig(answer_s=0.05)) as client:
        assert client.post("/v1/completions", json=make_completion()).status_code == 200
        assert client.get("/metrics").status_code == 200


def test_choices_that_were_cancelled_before_they_began_are_an_error_and_no_mistake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        answers = Answers(max_pending=9)
        answers.num_unfinished, answers._siblings[0] = 3, range(1, 3)
        answers.cancel(CancelCause.DELETED)
        answers.take(0, make_end())
        with pytest.raises(ApiError, match="cancelled by a DELETE"):
            await read(answers)

    asyncio.run(run())
    assert not caplog.records
