"""One answer of a server as an outcome: never an exception for what the server does."""

import asyncio
import json

import pytest

from tests.traffic.traffic_builders import FAST, RICH, json_reply, mocked, reply, run, stream_reply, talking
from twostroke.errors import RemoteError
from twostroke.traffic.mock_server import CONTEXT, MODEL, MockSchedule
from twostroke.traffic.outcome import Outcome
from twostroke.traffic.server import (
    Api,
    Dialect,
    Server,
    can_tokenize,
    context_of,
    count_tokens,
    first_model,
)

TEXT = {"choices": [{"index": 0, "text": "x", "finish_reason": None}]}
END = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}


def new_outcome() -> Outcome:
    return Outcome(place=0, wanted_prompt=3, wanted_output=5)


@pytest.mark.parametrize("api", list(Api))
def test_an_answer_has_its_tokens_and_counts(api: Api) -> None:
    async def ask() -> Outcome:
        async with mocked(api=api) as server:
            return await server.answer(server.body("one two three", output_tokens=5), new_outcome())

    outcome = run(ask())
    assert (outcome.error, outcome.prompt_tokens, outcome.num_tokens, len(outcome.text_times)) == (None, 3, 5, 5)
    assert outcome.finish_reason == "length"
    assert outcome.num_empty == (3 if api is Api.CHAT else 2)
    assert outcome.sent_s < outcome.text_times[0] < outcome.text_times[-1] <= outcome.end_s
    assert outcome.ttft_s is not None
    assert outcome.ttft_s >= FAST.ttft_s


def test_chunks_of_several_tokens_are_counted_where_the_server_counts_along() -> None:
    dialect = Dialect(has_lengths=True, has_usage=True, counts_along=True)

    async def ask() -> Outcome:
        async with mocked(MockSchedule(ttft_s=0.01, itl_s=0.001, tokens_per_chunk=3), dialect=dialect) as server:
            return await server.answer(server.body("one", output_tokens=9), new_outcome())

    outcome = run(ask())
    assert outcome.text_tokens == [1, 3, 3, 2]
    assert len(outcome.itls_s) == 8


@pytest.mark.parametrize(
    ("api", "dialect", "expected"),
    [
        (
            Api.COMPLETIONS,
            RICH,
            {"prompt": "hi", "stream_options": {"include_usage": True}, "ignore_eos": True, "min_tokens": 7},
        ),
        (Api.CHAT, Dialect(has_lengths=False, has_usage=False), {"messages": [{"role": "user", "content": "hi"}]}),
        (
            Api.COMPLETIONS,
            Dialect(has_lengths=False, has_usage=True, counts_along=True),
            {"prompt": "hi", "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        ),
    ],
)
def test_a_body_asks_what_the_server_takes_and_no_more(api: Api, dialect: Dialect, expected: dict[str, object]) -> None:
    async def make() -> bytes:
        async with mocked(api=api, dialect=dialect) as server:
            return server.body("hi", output_tokens=7)

    always = {"model": MODEL, "max_tokens": 7, "temperature": 0, "stream": True}
    assert json.loads(run(make())) == always | expected


def test_extra_fields_win() -> None:
    async def make() -> bytes:
        async with mocked() as server:
            extra = {"temperature": 1, "top_k": 5}
            other = Server(client=server.client, model=MODEL, api=server.api, dialect=RICH, timeout_s=1.0, extra=extra)
            return other.body("hi", output_tokens=7)

    made = json.loads(run(make()))
    assert (made["temperature"], made["top_k"]) == (1, 5)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (json_reply({"error": {"message": "busy"}}, status=503), "http 503", "busy"),
        (json_reply({"choices": []}), "no stream", "application/json"),
        (stream_reply(END, "[DONE]"), "no text", "no text"),
        (stream_reply(TEXT), "stream cut", "without finish_reason"),
        (stream_reply(TEXT, {"error": {"message": "the model broke"}}, "[DONE]"), "error event", "the model broke"),
        (stream_reply(TEXT, "rubbish"), "no chunk", "rubbish"),
        (None, "connection broke", ""),
    ],
)
def test_what_goes_wrong_is_a_kind_of_error_with_its_words(answer: bytes | None, kind: str, words: str) -> None:
    async def ask() -> Outcome:
        async with talking(lambda request: answer) as client:
            server = Server(client=client, model="m", api=Api.COMPLETIONS, dialect=RICH, timeout_s=5.0, extra={})
            return await server.answer(server.body("hi", output_tokens=2), new_outcome())

    outcome = run(ask())
    assert outcome.error == kind
    assert words in outcome.problem
    assert outcome.end_s >= outcome.sent_s > 0


def test_an_end_without_done_is_an_end_and_a_done_without_an_end_too() -> None:
    async def ask(*events: object) -> Outcome:
        async with talking(lambda request: stream_reply(*events)) as client:
            server = Server(client=client, model="m", api=Api.COMPLETIONS, dialect=RICH, timeout_s=5.0, extra={})
            return await server.answer(server.body("hi", output_tokens=2), new_outcome())

    assert run(ask(TEXT, END)).error is None
    assert run(ask(TEXT, "[DONE]")).error is None


def test_a_stream_that_breaks_off_and_one_that_takes_too_long() -> None:
    async def ask(schedule: MockSchedule, timeout_s: float) -> Outcome:
        async with mocked(schedule, timeout_s=timeout_s) as server:
            return await server.answer(server.body("one", output_tokens=5), new_outcome())

    broken = run(ask(MockSchedule(ttft_s=0.0, itl_s=0.0, cut_every=1), 20.0))
    assert (broken.error, len(broken.text_times)) == ("connection broke", 2)
    late = run(ask(MockSchedule(ttft_s=30.0), 0.05))
    assert (late.error, late.problem) == ("timeout", "no end after 0.05 s")


def test_an_interrupted_answer_says_so() -> None:
    async def ask() -> Outcome:
        async with mocked(MockSchedule(ttft_s=30.0)) as server:
            outcome = new_outcome()
            task = asyncio.create_task(server.answer(server.body("one", output_tokens=5), outcome))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return outcome

    assert run(ask()).error == "interrupted"


def test_facts_are_asked_of_the_server() -> None:
    async def ask() -> list[object]:
        async with mocked() as server:
            client = server.client
            facts: list[object] = [await first_model(client), await context_of(client, MODEL)]
            facts += [await context_of(client, "other"), await can_tokenize(client, MODEL)]
            return [*facts, await count_tokens(client, MODEL, "a b c")]

    assert run(ask()) == [(MODEL, CONTEXT), CONTEXT, None, True, 3]


def test_a_server_without_our_routes_is_one_that_tells_less() -> None:
    async def ask() -> list[object]:
        async with talking(lambda request: json_reply({"error": "no route"}, status=404)) as client:
            return [await context_of(client, MODEL), await can_tokenize(client, MODEL)]

    assert run(ask()) == [None, False]


@pytest.mark.parametrize("listed", [{"data": []}, {"data": [{}]}, {}, 3])
def test_a_server_without_models_needs_a_name(listed: object) -> None:
    async def ask() -> None:
        async with talking(lambda request: json_reply(listed)) as client:
            await first_model(client)

    with pytest.raises(RemoteError, match="name one with --model"):
        run(ask())


@pytest.mark.parametrize("length", ["many", 1e999, [1], True])
def test_a_context_that_is_no_number_is_not_told(length: object) -> None:
    async def ask() -> list[object]:
        async with talking(lambda request: json_reply({"data": [{"id": MODEL, "max_model_len": length}]})) as client:
            return [await first_model(client), await context_of(client, MODEL)]

    assert run(ask()) == [(MODEL, None), None]


@pytest.mark.parametrize("told", [{"ids": []}, {"count": 1e999}, {"count": "many"}])
def test_a_tokenize_route_of_another_kind_counts_nothing(told: object) -> None:
    async def ask() -> None:
        async with talking(lambda request: json_reply(told)) as client:
            await count_tokens(client, MODEL, "a")

    with pytest.raises(RemoteError, match="tells no count"):
        run(ask())


def test_a_reply_that_is_no_stream_is_told_by_its_kind() -> None:
    async def ask() -> Outcome:
        async with talking(lambda request: reply(b"hi", kind="text/html; charset=x")) as client:
            server = Server(client=client, model="m", api=Api.CHAT, dialect=RICH, timeout_s=5.0, extra={})
            return await server.answer(server.body("hi", output_tokens=2), new_outcome())

    assert run(ask()).problem == "the reply is text/html, no event stream"
