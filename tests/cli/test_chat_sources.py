"""Who answers a chat: a model here or a server, told alike."""

import json
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.builders_chat import write_speaker
from tests.builders_llm import write_puppet
from twostroke.chat.answer import Content, Piece, Reasoning, answer_of
from twostroke.cli.answer import OnInterrupt, cancel_on_interrupt
from twostroke.cli.chat_sources import LoadedSource, RemoteSource, ledger_of, remote_source
from twostroke.cli.exit_code import ExitCode, code_of
from twostroke.cli.interrupts import Interrupts
from twostroke.config import resolve
from twostroke.core.ledger import Part, StallKind
from twostroke.errors import CapacityError, RemoteError
from twostroke.llm import LLM
from twostroke.params import SamplingParams
from twostroke.traffic.http_client import Address, HttpClient

QUESTION = [{"role": "user", "content": "why?"}]
TEXT = {"choices": [{"index": 0, "delta": {"content": "Blue"}, "finish_reason": None}]}
MORE = {"choices": [{"index": 0, "delta": {"content": "."}, "finish_reason": None}]}
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
LEDGER = {"queue": 0.001, "prefill": 0.02, "stall": [{"kind": "scheduler", "time_s": 0.5, "request_id": None}]}


@contextmanager
def listening_server(*replies: tuple[int, list[Any]]) -> Iterator[tuple[Address, list[dict[str, Any]]]]:
    """The address of a server that gives these replies in turn, and the bodies it was sent."""
    asked: list[dict[str, Any]] = []
    coming = iter(replies)

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append({"path": self.path})
            self.send_error(404)

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, events = next(coming)
            is_stream = status == 200
            said = [event if isinstance(event, str) else json.dumps(event) for event in events]
            body = "".join(f"data: {each}\n\n" for each in said) if is_stream else said[0]
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Address.of(f"http://127.0.0.1:{listening.server_port}"), asked
        finally:
            listening.shutdown()
            thread.join()


@contextmanager
def server(*replies: tuple[int, list[Any]]) -> Iterator[tuple[RemoteSource, list[dict[str, Any]]]]:
    """A source for such a server."""
    with listening_server(*replies) as (address, asked):
        yield RemoteSource(lambda: HttpClient(address), model="m"), asked


def test_a_server_of_ours_tells_its_ledger() -> None:
    closing = {"choices": [], "usage": USAGE, "ledger": LEDGER}
    shown: list[Piece] = []
    with server((200, [TEXT, MORE, END, closing, "[DONE]"])) as (source, asked):
        spoken = source.answer(QUESTION, {"seed": 4}, shown.append)
    assert (spoken.text, spoken.reason, spoken.num_tokens) == ("Blue.", "stop", 2)
    assert shown == [Content("Blue"), Content(".")]
    assert asked[0]["ledger"] is True
    assert (asked[0]["seed"], asked[0]["model"], asked[0]["messages"]) == (4, "m", QUESTION)
    first, *rest = spoken.phases()
    assert first.startswith("client   TTFT ")
    assert first.endswith("9 prompt tokens (4 cached), 2 answer tokens")
    assert rest == ["server   521.0 ms = queue 1.00 ms + prefill 20.0 ms + stall scheduler 500.0 ms"]


def test_what_a_server_thinks_is_shown_apart_and_no_part_of_the_answer() -> None:
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}, "finish_reason": None}]}
    shown: list[Piece] = []
    with server((200, [thought, TEXT, END, "[DONE]"])) as (source, _):
        spoken = source.answer(QUESTION, {}, shown.append)
    assert (spoken.text, shown) == ("Blue", [Reasoning("hm"), Content("Blue")])


def test_what_a_loaded_model_thinks_is_shown_apart_and_no_part_of_the_answer(tmp_path: Path) -> None:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}<think>\n{{ '</think>'[:0] }}"
    model = write_speaker(tmp_path / "thinker.gguf", "so it is\n</think>\n\nThe sky", template=template)
    shown: list[Piece] = []
    with LLM(model, threads=1, config=resolve({"TWOSTROKE_HOME": str(tmp_path)})) as llm:
        spoken = LoadedSource(llm, resolve({})).answer(QUESTION, {}, shown.append)
    answer = answer_of(shown)
    assert (answer.reasoning, answer.content, spoken.text) == ("so it is", "The sky", "The sky")


def test_a_server_that_knows_no_ledger_is_asked_without_and_from_then_on() -> None:
    refused = (400, [{"error": {"message": "ledger is refused: unknown"}}])
    told = (200, [TEXT, END, "[DONE]"])
    with server(refused, told, told) as (source, asked):
        spoken = source.answer(QUESTION, {}, lambda piece: None)
        source.answer(QUESTION, {}, lambda piece: None)
    assert ["ledger" in body for body in asked] == [True, False, False]
    assert spoken.phases()[-1] == "server   tells no ledger"


@pytest.mark.parametrize(
    ("status", "events", "kind", "words"),
    [
        (400, [{"error": {"message": "the context is 8"}}], "http 400", "the context is 8"),
        (200, [TEXT, {"error": {"message": "it broke"}}, "[DONE]"], "error event", "it broke"),
        (200, [TEXT], "stream cut", "broke off"),
    ],
)
def test_what_gives_no_answer_is_an_error(status: int, events: list[Any], kind: str, words: str) -> None:
    with server((status, events)) as (source, _), pytest.raises(RemoteError, match=words) as refused:
        source.answer(QUESTION, {}, lambda piece: None)
    assert refused.value.kind == kind


def test_ctrl_c_ends_the_answer_and_keeps_its_text() -> None:
    def interrupt(piece: Piece) -> None:
        raise KeyboardInterrupt

    with server((200, [TEXT, MORE, END, "[DONE]"])) as (source, _):
        spoken = source.answer(QUESTION, {}, interrupt)
    assert (spoken.text, spoken.reason) == ("Blue", "cancelled")


@contextmanager
def raw_server(
    then: Callable[[socket.socket], None], *, on_interrupt: OnInterrupt = cancel_on_interrupt
) -> Iterator[RemoteSource]:
    """A server that begins a chunked answer with one word, and what happens to its connection then."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    event = b"data: " + json.dumps(TEXT).encode() + b"\n\n"

    def serve() -> None:
        with listening.accept()[0] as connection:
            connection.recv(65_536)
            connection.sendall(head + b"%x\r\n%s\r\n" % (len(event), event))
            then(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        address = Address.of(f"http://127.0.0.1:{listening.getsockname()[1]}")
        try:
            yield RemoteSource(lambda: HttpClient(address), model="m", on_interrupt=on_interrupt)
        finally:
            thread.join()


def die(connection: socket.socket) -> None:
    """As a killed process: in the middle of a chunk."""
    connection.sendall(b"40\r\ndata: {")


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("end", [die, reset])
def test_a_server_that_dies_in_the_middle_of_an_answer_is_an_error(end: Callable[[socket.socket], None]) -> None:
    shown: list[Piece] = []
    with raw_server(end) as source, pytest.raises(RemoteError, match="connection") as refused:
        source.answer(QUESTION, {}, shown.append)
    assert refused.value.kind == "connection broke"


def test_ctrl_c_ends_the_wait_for_a_silent_server_and_closes_the_connection() -> None:
    """Beside the main thread, which sleeps in the event loop and is not woken by the signal itself."""
    was_closed: list[bytes] = []
    interrupts = Interrupts()

    def press_and_wait(connection: socket.socket) -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        was_closed.append(connection.recv(10))

    with interrupts.heard(), raw_server(press_and_wait, on_interrupt=interrupts.calling) as source:
        spoken = source.answer(QUESTION, {}, lambda piece: None)
    assert (spoken.reason, was_closed) == ("cancelled", [b""])


def test_a_named_model_is_known_by_the_answer_alone() -> None:
    """Some servers answer to any name and list none of them."""
    missing = {"error": {"message": "no model 'any'"}}
    with listening_server((200, [TEXT, END, "[DONE]"]), (404, [missing])) as (address, asked):
        named = remote_source(address.url, model="any", api_key=None)
        assert asked == []
        assert named.answer(QUESTION, {}, lambda piece: None).text == "Blue"
        with pytest.raises(RemoteError, match="no model 'any'") as refused:
            named.answer(QUESTION, {}, lambda piece: None)
    assert [each["model"] for each in asked] == ["any", "any"]
    assert code_of(refused.value) is ExitCode.USER_MISTAKE


def test_a_ledger_is_read_back_and_one_of_another_kind_refused() -> None:
    ledger = ledger_of(LEDGER)
    assert ledger.parts == {Part.QUEUE: 0.001, Part.PREFILL: 0.02}
    assert ledger.stalls[0].kind is StallKind.SCHEDULER
    with pytest.raises(RemoteError, match="of another kind"):
        ledger_of({"dreaming": 1.0})


def test_a_loaded_model_answers_with_its_own_defaults_and_reports_its_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twostroke.cli.chat_sources.peaks_of", lambda llm, result, config: None)
    model = write_puppet(tmp_path / "puppet.gguf")
    config = resolve({"TWOSTROKE_HOME": str(tmp_path)})
    with LLM(model, threads=1, config=config) as llm:
        source = LoadedSource(llm, config)
        assert source.name == str(model)
        assert (source.default("max_tokens"), source.default("seed")) == (256, None)
        shown: list[Piece] = []
        spoken = source.answer(QUESTION, {"max_tokens": 5}, shown.append)
        assert spoken.text == answer_of(shown).content == llm.chat(QUESTION, SamplingParams(max_tokens=5)).text
        assert spoken.reason in ("stop", "length")
        assert spoken.phases()[0].startswith("measured ")
        with pytest.raises(CapacityError, match=r"the context is 1024: max_tokens of at most \d+ fits"):
            source.answer(QUESTION, {"max_tokens": 1024}, shown.append)
