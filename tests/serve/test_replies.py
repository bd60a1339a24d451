"""Every end of an answer and every count of it in OpenAI's words, whole and in chunks; errors in OpenAI's form."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.serve.serve_builders import (
    MODEL,
    ScriptedHandle,
    ScriptedModel,
    client_of,
    error_of,
    events_of,
    make_chat,
    make_completion,
    make_finish,
)
from twostroke.core.event import Event, FinishEvent, TokenEvent, Usage
from twostroke.core.sequence import FinishReason
from twostroke.core.step import DeadEnd
from twostroke.errors import (
    CapacityError,
    ChatTemplateError,
    ConfigError,
    DownloadError,
    KernelError,
    ModelFileError,
    ModelNotFoundError,
    ParamsError,
    PromptError,
    QueueFullError,
    RequestError,
    TermsError,
    TwostrokeError,
    UnsupportedModelError,
)
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers, CancelCause
from twostroke.serve.api_error import ApiError, as_api_error
from twostroke.serve.chunk_form import encode_event
from twostroke.serve.openai import StreamWish, Wish
from twostroke.serve.replies import Reply

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LINE_ENDS = ["\n", "\r", "\r\n\r\n", "\u2028", "\u2029", "\x85", "\v\f"]
ODD_TEXTS = [
    *LINE_ENDS,
    "\0",
    "\x1b[2J",
    "data: [DONE]",
    ": x",
    "\ufeff",
    '"\\',
    "漢",
    "\N{PINCHED FINGERS}",
    "e\u0301",
    " ",
]
ROUTES = [(CHAT, make_chat()), (COMPLETIONS, make_completion())]


def make_wish(*, is_chat: bool = True, includes_usage: bool = False, **more: Any) -> Wish:
    return Wish(
        model="alias",
        prompts=("a", "b"),
        params=SamplingParams(),
        is_chat=is_chat,
        is_stream=True,
        stream=StreamWish(includes_usage=includes_usage),
        **more,
    )


def make_reply(wish: Wish, *, counts: Sequence[int] = (10, 7), cause: CancelCause | None = None) -> Reply:
    """The reply to a wish whose prompts have so many tokens."""

    async def make() -> Answers:
        return Answers(max_pending=9, request_id="chatcmpl-1" if wish.is_chat else "cmpl-1")

    answers = asyncio.run(make())
    answers.cause = cause
    for index, count in enumerate(counts):
        for choice in range(wish.num_choices):
            answers.asked[index * wish.num_choices + choice] = ScriptedHandle("r", num_prompt_tokens=count)
    return Reply(wish, answers, model=ScriptedModel())


def chunks_of(reply: Reply, index: int, event: Event) -> list[dict[str, Any]]:
    return [json.loads(data) for data in events_of(reply.told(index, event).decode())]


def token(text: str = "x") -> TokenEvent:
    return TokenEvent("r1", 0, text, 0.0)


def finish(reason: FinishReason, *, error: str | None = None, counts: tuple[int, int, int] = (1, 0, 1)) -> FinishEvent:
    return make_finish("r1", reason=reason, usage=Usage(*counts), error=error)


# Ends


def outcome(event: FinishEvent, *, cause: CancelCause | None = None) -> str:
    reply = make_reply(make_wish(is_chat=False), cause=cause)
    return str(chunks_of(reply, 0, event)[-1]["choices"][0]["finish_reason"])


def test_an_answer_ends_in_one_of_two_ways() -> None:
    assert outcome(finish(FinishReason.STOP)) == "stop"
    assert outcome(finish(FinishReason.LENGTH)) == "length"


@pytest.mark.parametrize(
    ("event", "cause", "status", "said", "code"),
    [
        (finish(FinishReason.ERROR, error="a logit is nan"), None, 500, "a logit is nan", None),
        (finish(FinishReason.ERROR, error=DeadEnd("none left")), None, 400, "none left", "no_token_left"),
        (finish(FinishReason.ERROR), None, 500, "the request failed", None),
        (finish(FinishReason.ERROR, error=""), None, 500, "the request failed", None),
        (
            finish(FinishReason.CANCELLED),
            CancelCause.CLOSING,
            503,
            "the request was cancelled before its end: the server is closing, ask again",
            None,
        ),
        (
            finish(FinishReason.CANCELLED),
            CancelCause.DEADLINE,
            499,
            "the answer was not complete after timeout_s: ask for less or for more time",
            "deadline",
        ),
        (
            finish(FinishReason.CANCELLED),
            CancelCause.DELETED,
            499,
            "the request was cancelled by a DELETE of its id",
            "deleted",
        ),
    ],
)
def test_every_other_end_is_an_error(
    event: FinishEvent, cause: CancelCause | None, status: int, said: str, code: str | None
) -> None:
    with pytest.raises(ApiError) as caught:
        outcome(event, cause=cause)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    assert caught.value.status == status
    assert caught.value.body == {"error": {"message": said, "type": kind, "param": None, "code": code}}


@pytest.mark.parametrize(("path", "fields"), ROUTES)
@pytest.mark.parametrize("reason", list(FinishReason))
def test_both_routes_tell_the_same_end_whole_and_streamed(
    path: str, fields: dict[str, Any], reason: FinishReason
) -> None:
    with client_of(ScriptedModel(reason=reason, error="it broke")) as client:
        whole = client.post(path, json=fields)
        *chunks, done = events_of(client.post(path, json={**fields, "stream": True}).text)
    last = json.loads(chunks[-1])
    assert done == "[DONE]"
    if reason in (FinishReason.STOP, FinishReason.LENGTH):
        assert whole.json()["choices"][0]["finish_reason"] == last["choices"][0]["finish_reason"] == reason.value
    else:
        assert whole.status_code == (500 if reason is FinishReason.ERROR else 503)
        assert error_of(whole) == last["error"]


def test_usage_never_follows_a_failure() -> None:
    fields = make_chat(stream=True, stream_options={"include_usage": True})
    with client_of(ScriptedModel(reason=FinishReason.ERROR, error="it broke")) as client:
        *_, last, done = events_of(client.post(CHAT, json=fields).text)
    assert json.loads(last)["error"]["message"] == "it broke"
    assert done == "[DONE]"


# Counts


def test_counts_are_sums_over_the_answers_and_each_prompt_counts_once() -> None:
    reply = make_reply(make_wish(num_choices=2))
    for index, (cached, num_tokens) in enumerate([(4, 3), (9, 2), (1, 1), (6, 0)]):
        for _ in range(num_tokens):
            reply.take(index, token())
        reply.take(index, finish(FinishReason.STOP, counts=(0, cached, num_tokens)))
    assert reply.usage() == {
        "prompt_tokens": 17,
        "completion_tokens": 6,
        "total_tokens": 23,
        "prompt_tokens_details": {"cached_tokens": 5},
    }


# Frames


@pytest.mark.parametrize(
    ("is_chat", "prefix", "kind"), [(True, "chatcmpl-", "chat.completion.chunk"), (False, "cmpl-", "text_completion")]
)
@pytest.mark.parametrize("includes_usage", [False, True])
def test_every_chunk_of_a_reply_has_the_same_frame(is_chat: bool, prefix: str, kind: str, includes_usage: bool) -> None:
    reply = make_reply(make_wish(is_chat=is_chat, includes_usage=includes_usage))
    chunks = [*chunks_of(reply, 1, token()), *chunks_of(reply, 1, finish(FinishReason.STOP))]
    usage = {"usage"} if includes_usage else set()
    for chunk in chunks:
        assert set(chunk) == {"id", "created", "model", "object", "choices", "system_fingerprint"} | usage
        assert (chunk["object"], chunk["model"], chunk["system_fingerprint"]) == (kind, "alias", "scripted")
        assert chunk["id"].startswith(prefix)
        (choice,) = chunk["choices"]
        end = {"stop_reason"} if choice["finish_reason"] else set()
        assert set(choice) == {"index", "delta" if is_chat else "text", "logprobs", "finish_reason"} | end
        assert choice["index"] == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, "stop"]


def test_only_a_chat_says_who_speaks_once_for_each_answer() -> None:
    firsts = list(make_reply(make_wish()).first_chunks())
    assert [chunk["choices"][0]["delta"] for chunk in firsts] == [{"role": "assistant", "content": ""}] * 2
    assert [chunk["choices"][0]["index"] for chunk in firsts] == [0, 1]
    assert list(make_reply(make_wish(is_chat=False)).first_chunks()) == []


def test_each_choice_of_a_whole_reply_has_its_own_end() -> None:
    with client_of(ScriptedModel(["a"], reason=FinishReason.LENGTH)) as client:
        whole = client.post(COMPLETIONS, json=make_completion(prompt=["p", "q"])).json()
    assert whole["choices"] == [
        {"index": 0, "text": "a", "logprobs": None, "finish_reason": "length", "stop_reason": None},
        {"index": 1, "text": "a", "logprobs": None, "finish_reason": "length", "stop_reason": None},
    ]
    assert (whole["object"], whole["usage"]["total_tokens"]) == ("text_completion", 4)


def test_an_alias_is_answered_by_the_name_that_was_asked() -> None:
    with client_of(aliases=["gpt"]) as client:
        whole = client.post(CHAT, json=make_chat(model="gpt")).json()
        *chunks, _ = events_of(client.post(CHAT, json=make_chat(model="gpt", stream=True)).text)
    assert whole["model"] == "gpt"
    assert {json.loads(chunk)["model"] for chunk in chunks} == {"gpt"}


# Bytes of a stream


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_text_of_any_kind_stays_inside_its_event(text: str) -> None:
    with client_of(ScriptedModel([text, "x", text])) as client:
        response = client.post(COMPLETIONS, json=make_completion(stream=True))
    blocks = response.content.split(b"\n\n")
    assert len(blocks) == 3 + 1 + 1 + 1  # tokens, the end, [DONE], nothing
    assert all(block.startswith(b"data: ") and not set(block) & set(b"\r\n") for block in blocks[:-1])
    texts = [json.loads(block[6:])["choices"][0]["text"] for block in blocks[:-2]]
    assert texts == [text, "x", text, ""]


def test_an_event_is_compact_utf8() -> None:
    assert encode_event({"a": ["漢", 1], "b": None}) == 'data: {"a":["漢",1],"b":null}\n\n'.encode()


def test_no_proxy_may_keep_a_stream() -> None:
    with client_of() as client:
        assert client.post(CHAT, json=make_chat(stream=True)).headers["cache-control"] == "no-cache"


def test_a_bug_in_mid_stream_is_told_without_its_words_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Reply, index: int, event: Event) -> dict[str, Any]:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(Reply, "told", fail)
    with client_of() as client:
        response = client.post(CHAT, json=make_chat(stream=True))
    _, error, done = events_of(response.text)
    assert json.loads(error) == {
        "error": {"message": "internal error", "type": "server_error", "param": None, "code": None}
    }
    assert done == "[DONE]"
    assert "a secret" in caplog.text


# Errors


@pytest.mark.parametrize("prompt_field", ["messages", "prompt"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ParamsError("x", field="seed"), (400, "seed", None)),
        (PromptError("x"), (400, "its prompt", None)),
        (PromptError("x", field="messages"), (400, "messages", None)),
        (ChatTemplateError("x"), (400, "its prompt", "chat_template")),
        (CapacityError("x"), (400, "its prompt", "context_length_exceeded")),
        (CapacityError("x", field="width"), (400, "beam_width", None)),
        (QueueFullError("x"), (429, None, "queue_full")),
        (RequestError("x"), (500, None, None)),
    ],
)
def test_each_error_of_the_model_has_status_field_and_code(
    error: Exception, expected: tuple[int, str | None, str | None], prompt_field: str
) -> None:
    status, param, code = expected
    found = as_api_error(error, prompt_field=prompt_field, message="for strangers")
    assert found is not None
    assert (found.status, found.param, found.code) == (status, prompt_field if param == "its prompt" else param, code)
    assert str(found) == "for strangers"


@pytest.mark.parametrize(
    ("said", "field", "told"),
    [
        ("prompt[0] is -1", "prompt", "tokens[0] is -1"),
        ("structure of kind regex is refused", "structure", "format of kind regex is refused"),
        ("the prompt has no structure", "prompt", "the prompt has no structure"),
    ],
)
def test_a_field_that_an_error_names_has_the_clients_own_name(said: str, field: str, told: str) -> None:
    error = ParamsError(said, field=field)
    found = as_api_error(error, prompt_field="tokens", message=said, structure_field="format")
    assert str(found) == told


@pytest.mark.parametrize(
    "error",
    [
        TwostrokeError("x"),
        ConfigError("x"),
        DownloadError("x"),
        TermsError("x"),
        KernelError("x"),
        ModelFileError("a.gguf", "x"),
        ModelNotFoundError("x"),
        UnsupportedModelError("x"),
        ValueError("x"),
    ],
)
def test_what_no_client_can_mend_is_our_own_fault(error: Exception) -> None:
    assert as_api_error(error, prompt_field="prompt", message="x") is None


@pytest.mark.parametrize(
    ("status", "is_ours"), [(400, False), (401, False), (404, False), (499, False), (500, True), (503, True)]
)
def test_the_status_decides_whose_fault_it_is(status: int, is_ours: bool) -> None:
    kind = "server_error" if is_ours else "invalid_request_error"
    assert ApiError("x", status=status, param="p", code="c").body == {
        "error": {"message": "x", "type": kind, "param": "p", "code": "c"}
    }
    assert ApiError("x").status == 400


def test_the_key_guards_each_route_alone() -> None:
    with client_of(api_key="k") as client:
        asked = [client.get("/v1/models"), *(client.post(path, json=fields) for path, fields in ROUTES)]
    assert [response.status_code for response in asked] == [401] * 3
    assert [error_of(response)["type"] for response in asked] == ["invalid_request_error"] * 3
    assert not any(MODEL in response.text for response in asked)


def test_models_tell_owner_and_one_time_of_start() -> None:
    with client_of(aliases=["gpt"]) as client:
        first, second = (client.get("/v1/models").json()["data"] for _ in range(2))
    assert first == second
    assert {entry["owned_by"] for entry in first} == {"twostroke"}
    assert len({entry["created"] for entry in first}) == 1
