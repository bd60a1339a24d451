"""The routes beside the answers themselves: models by name, requests by id, tokens, readiness and places."""

import asyncio
import json
import threading
import time
from typing import Any

import pytest

from tests.serve.serve_builders import (
    MODEL,
    ScriptedHandle,
    ScriptedModel,
    ScriptedShelf,
    client_of,
    error_of,
    events_of,
    make_chat,
    make_completion,
    registry_of,
)
from twostroke.core.sequence import FinishReason
from twostroke.errors import PromptError, QueueFullError
from twostroke.serve.app import create_app
from twostroke.serve.limits import LimitsConfig

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ENDLESS = ["x"] * 100_000


# Models


@pytest.mark.parametrize("name", [MODEL, "gpt", "org/name"])
def test_a_model_is_found_by_each_of_its_names(name: str) -> None:
    with client_of(aliases=["gpt", "org/name"]) as client:
        found = client.get(f"/v1/models/{name}").json()
        assert found in client.get("/v1/models").json()["data"]
    assert (found["id"], found["object"], found["max_model_len"]) == (name, "model", 4096)


@pytest.mark.parametrize("name", ["gpt", "..%2f..%2fetc%2fpasswd", "C:%5Cx", "a%00b", "x" * 5000, "http://h/x"])
def test_another_model_is_a_404_that_opens_nothing(name: str) -> None:
    with client_of() as client:
        response = client.get(f"/v1/models/{name}")
    assert response.status_code == 404
    assert len(error_of(response)["message"]) < 10_000


# Choices


def test_choices_are_started_once_the_first_has_its_prompt_in_the_cache_and_end_each() -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        reply = client.post(COMPLETIONS, json=make_completion(prompt=["p", "q"], n=3)).json()
    assert [choice["index"] for choice in reply["choices"]] == list(range(6))
    assert [choice["text"] for choice in reply["choices"]] == ["Hello!"] * 6
    assert sorted(model.prompts) == ["p"] * 3 + ["q"] * 3
    assert model.prompts[:1] == ["p"]
    assert sorted(model.choice_indices) == [0, 0, 1, 1, 2, 2]
    assert reply["usage"]["prompt_tokens"] == 2
    assert reply["usage"]["completion_tokens"] == 18


def test_a_stream_of_choices_tells_them_apart() -> None:
    with client_of() as client:
        response = client.post(CHAT, json=make_chat(n=3, stream=True))
    for index in range(3):
        assert response.text.count(f'"index":{index}') == 5  # who speaks, three tokens, the end


@pytest.mark.parametrize("error", [QueueFullError("full"), PromptError("bad")])
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_later_choice_that_is_refused_ends_the_request_with_its_error(error: Exception, is_stream: bool) -> None:
    class SecondRefused(ScriptedModel):
        def submit(self, prompt: Any, *args: Any, **options: Any) -> Any:
            if options["choice_index"] == 1:
                raise error
            return super().submit(prompt, *args, **options)

    model = SecondRefused(ENDLESS, pause_s=0.005)
    with client_of(model) as client:
        response = client.post(CHAT, json=make_chat(n=2, max_tokens=100_000, stream=is_stream))
    assert str(error) in response.text
    assert "[DONE]" in response.text or response.status_code in (400, 429)
    assert model.handles[0].is_cancelled.is_set()
    told = json.loads(events_of(response.text)[-2])["error"] if is_stream else error_of(response)
    assert told["type"] == "invalid_request_error"
    assert told["param"] == (None if isinstance(error, QueueFullError) else "messages")


def test_seeds_and_salts_reach_the_model_and_the_seed_comes_back() -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        reply = client.post(CHAT, json=make_chat(cache_salt="tenant")).json()
        client.post(CHAT, json=make_chat())
    assert model.salts == ["tenant", ""]
    assert reply["seed"] == 1
    assert reply["system_fingerprint"] == "scripted"


def test_an_echo_comes_before_the_answer_whole_and_streamed() -> None:
    for prompt in ("ab", [97, 98]):
        with client_of() as client:
            fields = make_completion(prompt=prompt, echo=True)
            assert client.post(COMPLETIONS, json=fields).json()["choices"][0]["text"] == "abHello!"
            streamed = client.post(COMPLETIONS, json=fields | {"stream": True}).text
        assert '"text":"abHel"' in streamed


# Requests by id


def test_a_request_goes_by_the_id_of_its_reply_and_its_ledger_can_be_asked_for() -> None:
    with client_of() as client:
        response = client.post(CHAT, json=make_chat())
        request_id = response.json()["id"]
        assert response.headers["x-request-id"] == request_id
        record = client.get(f"/v1/requests/{request_id}").json()
    assert (record["id"], record["status"], record["cancelled_by"]) == (request_id, "ended", None)
    (answer,) = record["answers"]
    assert (answer["finish_reason"], answer["seed"], answer["ttft_s"]) == ("stop", 1, 0.1)
    assert sum(time_s for part, time_s in answer["ledger"].items() if part != "stall") == pytest.approx(answer["e2e_s"])


def test_a_client_may_name_its_request() -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        response = client.post(CHAT, json=make_chat(n=2), headers={"x-request-id": "my.request-1"})
        assert response.json()["id"] == response.headers["x-request-id"] == "my.request-1"
        assert client.get("/v1/requests/my.request-1").status_code == 200
    assert [handle.request_id for handle in model.handles] == ["my.request-1.0", "my.request-1.1"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a/b", "ä".encode(), "..;"])
def test_other_names_are_refused(name: Any) -> None:
    with client_of() as client:
        response = client.post(CHAT, json=make_chat(), headers={"x-request-id": name})
    assert response.status_code == 400
    assert "X-Request-Id" in error_of(response)["message"]


def test_unknown_requests_are_a_404() -> None:
    with client_of() as client:
        for method in ("GET", "DELETE"):
            response = client.request(method, "/v1/requests/nobody")
            assert response.status_code == 404
            assert error_of(response)["code"] == "request_not_found"


def test_only_the_last_requests_are_kept() -> None:
    with client_of(limits=LimitsConfig(max_kept_requests=2)) as client:
        ids = [client.post(CHAT, json=make_chat()).json()["id"] for _ in range(3)]
        statuses = [client.get(f"/v1/requests/{request_id}").status_code for request_id in ids]
    assert statuses == [404, 200, 200]


class Background:
    """One request in a thread of its own."""

    def __init__(self, client: Any, fields: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self.response: Any = None
        self._thread = threading.Thread(target=self._ask, args=(client, fields, headers))
        self._thread.start()

    def _ask(self, client: Any, fields: dict[str, Any], headers: dict[str, str] | None) -> None:
        self.response = client.post(CHAT, json=fields, headers=headers)

    def join(self) -> Any:
        self._thread.join()
        return self.response


def wait_for(condition: Any) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_delete_ends_a_running_request_and_its_client_hears_it(is_stream: bool) -> None:
    model = ScriptedModel(ENDLESS, pause_s=0.002)
    with client_of(model) as client:
        running = Background(client, make_chat(max_tokens=100_000, stream=is_stream), headers={"x-request-id": "long"})
        wait_for(lambda: model.num_running == 1)
        record = client.get("/v1/requests/long").json()
        assert (record["status"], record["answers"]) == ("running", [])
        assert client.delete("/v1/requests/long").status_code == 200
        response = running.join()
        ended = client.get("/v1/requests/long").json()
    assert "cancelled by a DELETE" in response.text
    assert response.status_code == (200 if is_stream else 499)
    assert (ended["status"], ended["cancelled_by"]) == ("ended", "deleted")
    assert ended["answers"][0]["finish_reason"] == "cancelled"


def test_a_delete_of_an_ended_request_changes_nothing() -> None:
    with client_of() as client:
        request_id = client.post(CHAT, json=make_chat()).json()["id"]
        before = client.get(f"/v1/requests/{request_id}").json()
        assert client.delete(f"/v1/requests/{request_id}").json() == before


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_deadline_ends_what_is_not_complete(is_stream: bool) -> None:
    model = ScriptedModel(ENDLESS, pause_s=0.002)
    with client_of(model) as client:
        response = client.post(CHAT, json=make_chat(max_tokens=100_000, timeout_s=0.05, stream=is_stream))
    assert "not complete after timeout_s" in response.text
    assert response.status_code == (200 if is_stream else 499)
    assert model.num_running == 0


def test_a_deadline_that_is_not_reached_changes_nothing() -> None:
    with client_of() as client:
        assert client.post(CHAT, json=make_chat(timeout_s=1000)).json()["choices"][0]["finish_reason"] == "stop"


def test_a_name_that_is_taken_by_a_running_request_is_refused() -> None:
    model = ScriptedModel(ENDLESS, pause_s=0.002)
    with client_of(model) as client:
        running = Background(client, make_chat(max_tokens=100_000), headers={"x-request-id": "long"})
        wait_for(lambda: model.num_running == 1)
        response = client.post(CHAT, json=make_chat(), headers={"x-request-id": "long"})
        client.delete("/v1/requests/long")
        running.join()
    assert response.status_code == 400
    assert "a running request has it" in error_of(response)["message"]


# Places


def test_requests_beyond_the_limit_are_told_to_come_back_and_places_come_free() -> None:
    model = ScriptedModel(ENDLESS, pause_s=0.002)
    with client_of(model, limits=LimitsConfig(max_open_requests=2)) as client:
        running = [
            Background(client, make_chat(max_tokens=100_000), headers={"x-request-id": f"r{number}"})
            for number in range(2)
        ]
        wait_for(lambda: model.num_running == 2)
        for is_stream in (True, False):
            response = client.post(CHAT, json=make_chat(stream=is_stream))
            assert (response.status_code, response.headers["retry-after"]) == (429, "1")
            assert error_of(response)["code"] == "queue_full"
        for number in range(2):
            client.delete(f"/v1/requests/r{number}")
        for each in running:
            each.join()
        assert client.post(CHAT, json=make_chat(max_tokens=1)).status_code == 200


def test_bodies_that_are_refused_give_their_place_back() -> None:
    with client_of(limits=LimitsConfig(max_open_requests=1)) as client:
        for _ in range(3):
            assert client.post(CHAT, json=make_chat(seed="x")).status_code == 400
        assert client.post(CHAT, json=make_chat()).status_code == 200


def test_a_full_queue_of_the_model_is_a_429_too() -> None:
    with client_of(ScriptedModel(refuse=QueueFullError("8 wait"))) as client:
        response = client.post(CHAT, json=make_chat())
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")


# Readiness


def test_a_server_that_drains_is_alive_but_not_ready() -> None:
    with client_of() as client:
        assert client.get("/ready").json() == {"status": "ready"}
        client.app.state.routes.is_draining = True  # type: ignore[attr-defined]
        for response in (client.get("/ready"), client.post(CHAT, json=make_chat())):
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            assert error_of(response)["code"] == "closing"
        assert client.get("/health").status_code == 200


# Tokens


def test_text_becomes_tokens_and_tokens_text() -> None:
    with client_of() as client:
        told = client.post("/tokenize", json={"prompt": "ab", "model": MODEL}).json()
        assert told == {"tokens": [97, 98], "count": 2, "max_model_len": 4096}
        assert client.post("/detokenize", json={"tokens": [97, 98]}).json() == {"prompt": "ab"}
        shown = client.post("/tokenize", json={"prompt": "a", "return_token_strs": True}).json()
        assert shown["token_strs"] == ["a"]


def test_a_chat_becomes_the_tokens_of_its_template() -> None:
    with client_of() as client:
        told = client.post("/tokenize", json={"messages": [{"role": "user", "content": "hi"}]}).json()
    assert told["tokens"] == [104, 105]


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/tokenize", {}, 400),
        ("/tokenize", {"prompt": "x", "messages": []}, 400),
        ("/tokenize", {"prompt": 5}, 400),
        ("/tokenize", {"messages": []}, 400),
        ("/tokenize", {"prompt": "x", "add_special_tokens": False}, 400),
        ("/tokenize", {"prompt": "x", "model": "other"}, 404),
        ("/detokenize", {}, 400),
        ("/detokenize", {"tokens": "x"}, 400),
        ("/detokenize", {"tokens": [1.5]}, 400),
        ("/detokenize", {"tokens": [True]}, 400),
        ("/detokenize", {"tokens": [1], "x": 1}, 400),
        ("/detokenize", {"tokens": [1], "model": "other"}, 404),
    ],
)
def test_other_bodies_are_refused(path: str, fields: dict[str, Any], status: int) -> None:
    with client_of() as client:
        response = client.post(path, json=fields)
    assert response.status_code == status
    error_of(response)


@pytest.mark.parametrize(("path", "fields"), [("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]})])
def test_what_the_tokenizer_refuses_is_a_400(path: str, fields: dict[str, Any]) -> None:
    with client_of(ScriptedModel(refuse=PromptError("no such id"))) as client:
        response = client.post(path, json=fields)
    assert response.status_code == 400
    assert error_of(response)["message"] == "no such id"


def test_the_key_guards_every_new_route() -> None:
    with client_of(api_key="k") as client:
        asked = [
            client.get(f"/v1/models/{MODEL}"),
            client.get("/v1/requests/x"),
            client.get("/metrics"),
            client.delete("/v1/requests/x"),
            client.post("/tokenize", json={"prompt": "x"}),
            client.post("/detokenize", json={"tokens": [1]}),
        ]
        assert client.get("/ready").status_code == 200
    assert [response.status_code for response in asked] == [401] * 6


# The ledger in replies


def test_a_ledger_comes_with_the_reply_that_asked_for_it() -> None:
    with client_of() as client:
        assert client.post(CHAT, json=make_chat(ledger=True)).json()["ledger"] == {"queue": 0.2, "stall": []}
        assert "ledger" not in client.post(CHAT, json=make_chat()).json()
        streamed = client.post(CHAT, json=make_chat(ledger=True, stream=True)).text.split("\n\n")
    assert '"ledger":{"queue":0.2,"stall":[]}' in streamed[-3]
    assert '"choices":[]' in streamed[-3]


def test_an_error_has_no_ledger_but_its_record_has_until_the_error_was_sent() -> None:
    with client_of(ScriptedModel(reason=FinishReason.ERROR, error="it broke")) as client:
        response = client.post(CHAT, json=make_chat(ledger=True), headers={"x-request-id": "broken"})
        assert response.status_code == 500
        record = client.get("/v1/requests/broken").json()
    (answer,) = record["answers"]
    assert answer["error"] == "it broke"
    parts = {part: time_s for part, time_s in answer["ledger"].items() if part != "stall"}
    assert (parts["queue"], answer["ledger"]["stall"]) == (0.2, [])
    assert sum(parts.values()) == pytest.approx(answer["e2e_s"])
    assert answer["e2e_s"] > 0.2  # the scripted finish


# Places of requests that ask for no answer


@pytest.mark.parametrize(
    ("method", "path", "good", "status"),
    [
        ("POST", "/tokenize", {"prompt": "hi"}, 200),
        ("POST", "/detokenize", {"tokens": [104]}, 200),
        ("POST", "/api/show", {"model": MODEL}, 200),
        ("POST", "/api/pull", {"model": "tiny:1b", "stream": False}, 200),
        ("DELETE", "/api/delete", {"model": MODEL}, 409),
    ],
)
def test_every_request_with_a_body_holds_a_place_until_it_is_answered(
    method: str, path: str, good: dict[str, Any], status: int
) -> None:
    with client_of(limits=LimitsConfig(max_open_requests=1), shelf=ScriptedShelf()) as client:
        for fields, expected in ((good, status), ({"x": 1}, 400), (good, status)):
            assert client.request(method, path, json=fields).status_code == expected
    with client_of(limits=LimitsConfig(max_open_requests=0), shelf=ScriptedShelf()) as client:
        assert client.request(method, path, json=good).status_code == 429
        assert 'admission_rejections_total{reason="queue_full"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize(
    "path", [CHAT, COMPLETIONS, "/v1/embeddings", "/tokenize", "/api/chat", "/api/show", "/api/pull"]
)
def test_a_client_that_leaves_inside_its_body_leaves_nothing_open_and_no_word_in_the_log(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages: list[Any] = [
        {"type": "http.request", "body": b'{"model":', "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    app = create_app(registry_of(ScriptedModel()), shelf=ScriptedShelf())
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 499
    assert len(app.state.routes.records) == 0
    with app.state.routes.place():
        pass
    assert caplog.text == ""


def test_a_client_that_leaves_while_its_prompts_are_submitted_has_no_more_of_them_begun() -> None:
    has_left = asyncio.Event()

    class Left(ScriptedModel):
        """Its client leaves during the second submit."""

        def submit(self, *args: Any, **options: Any) -> ScriptedHandle:
            if len(self.prompts) == 1:
                loops[0].call_soon_threadsafe(has_left.set)
            return super().submit(*args, **options)

    model, loops = Left(["x"] * 1000, pause_s=0.01), list[asyncio.AbstractEventLoop]()
    body = json.dumps(make_completion(prompt=["p"] * 64)).encode()
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None: ...

    async def ask() -> None:
        loops.append(asyncio.get_running_loop())
        app = create_app(registry_of(model))
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": COMPLETIONS, "headers": headers, "query_string": b""}
        await app(scope, receive, send)
        while app.state.routes.records.running:
            await asyncio.sleep(0.001)

    asyncio.run(ask())
    assert 2 <= len(model.prompts) < 32
    assert all(handle.is_cancelled.is_set() for handle in model.handles)
