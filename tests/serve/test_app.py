import asyncio
import gzip
import json
import logging
import socket
import threading
import time
from typing import Any

import pytest
import uvicorn

from tests.serve.serve_builders import (
    MODEL,
    ScriptedModel,
    client_of,
    error_of,
    make_chat,
    make_completion,
    registry_of,
)
from twostroke.core.sequence import FinishReason
from twostroke.core.snapshot import Snapshot
from twostroke.errors import (
    CapacityError,
    ChatTemplateError,
    ConfigError,
    ParamsError,
    PromptError,
    QueueFullError,
    RequestError,
)
from twostroke.params import SamplingParams
from twostroke.serve.app import create_app
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.model_slot import served_name
from twostroke.serve.openai import read_wish
from twostroke.serve.server import listen

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def test_health_tells_requests_and_blocks() -> None:
    with client_of() as client:
        assert client.get("/health").json() == {
            "status": "ok",
            "requests": {"running": 0, "waiting": 0},
            "kv_blocks": {"free": 8, "cached": 0, "held": 0, "total": 8},
            "models": {MODEL: "loaded"},
        }


def test_models_lists_the_name_and_its_aliases() -> None:
    with client_of(aliases=["gpt"]) as client:
        body = client.get("/v1/models").json()
        assert body["object"] == "list"
        assert [entry["id"] for entry in body["data"]] == [MODEL, "gpt"]
        assert {entry["object"] for entry in body["data"]} == {"model"}


def test_a_chat_is_answered() -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        body = client.post(CHAT, json=make_chat(temperature=0.5)).json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == MODEL
    assert abs(body["created"] - time.time()) < 60
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello!", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": 3,
        "total_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    assert model.prompts == [({"role": "user", "content": "hi"},)]
    assert model.params[0].temperature == 0.5
    assert model.arrivals[0] is not None


def test_a_completion_is_answered() -> None:
    with client_of() as client:
        body = client.post(COMPLETIONS, json=make_completion()).json()
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    end = {"finish_reason": "stop", "stop_reason": None}
    assert body["choices"] == [{"index": 0, "text": "Hello!", "logprobs": None, **end}]


def test_several_prompts_are_choices_in_order_and_their_usage_is_summed() -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        body = client.post(COMPLETIONS, json=make_completion(prompt=[[1, 2], [3]])).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert model.prompts == [[1, 2], [3]]
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 6


def test_text_held_until_the_end_is_part_of_the_answer() -> None:
    with client_of(ScriptedModel(["a", "", "b"], rest="?")) as client:
        assert client.post(COMPLETIONS, json=make_completion()).json()["choices"][0]["text"] == "ab?"


def test_the_token_limit_is_told_as_length() -> None:
    with client_of() as client:
        for name in ("max_tokens", "max_completion_tokens"):
            body = client.post(CHAT, json=make_chat(**{name: 2})).json()
            assert body["choices"][0]["finish_reason"] == "length"
            assert body["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("refuse", "status", "param", "code"),
    [
        (ChatTemplateError("System role not supported"), 400, "messages", "chat_template"),
        (PromptError("the prompt has no tokens"), 400, "messages", None),
        (ParamsError("top_p is wrong", field="top_p"), 400, "top_p", None),
        (CapacityError("70 + 10 = 80, the context is 64"), 400, "messages", "context_length_exceeded"),
        (QueueFullError("9 requests wait, the limit is 9"), 429, None, "queue_full"),
        (RequestError("it broke"), 500, None, None),
    ],
)
def test_what_the_model_refuses_is_a_status_before_any_event(
    refuse: Exception, status: int, param: str | None, code: str | None, is_stream: bool
) -> None:
    with client_of(ScriptedModel(refuse=refuse)) as client:
        response = client.post(CHAT, json=make_chat(stream=is_stream))
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    error = error_of(response)
    assert error["message"] == str(refuse)
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)


def test_our_own_mistakes_are_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with (
        client_of(ScriptedModel(refuse=RuntimeError("/home/someone/secret"))) as client,
        caplog.at_level(logging.ERROR),
    ):
        response = client.post(CHAT, json=make_chat())
    assert response.status_code == 500
    assert "secret" not in response.text
    assert error_of(response)["type"] == "server_error"
    assert "secret" in caplog.text


def test_a_refused_second_prompt_cancels_the_first() -> None:
    class SecondRefused(ScriptedModel):
        def submit(self, prompt: Any, *args: Any, **options: Any) -> Any:
            if prompt == "bad":
                raise PromptError("bad prompt")
            return super().submit(prompt, *args, **options)

    model = SecondRefused(pause_s=0.05)
    with client_of(model) as client:
        assert client.post(COMPLETIONS, json=make_completion(prompt=["good", "bad"])).status_code == 400
    assert model.handles[0].is_cancelled.is_set()


def test_a_failed_request_is_a_500_with_its_reason() -> None:
    with client_of(ScriptedModel(reason=FinishReason.ERROR, error="a logit is nan")) as client:
        response = client.post(CHAT, json=make_chat())
    assert response.status_code == 500
    assert error_of(response)["message"] == "a logit is nan"


def test_a_cancelled_request_is_no_answer() -> None:
    with client_of(ScriptedModel(reason=FinishReason.CANCELLED)) as client:
        assert client.post(CHAT, json=make_chat()).status_code == 503


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("body", [b"", b"{:", b"[]", b'{"model": NaN}', b"\xff\xfe", b'{"model": "\\ud800"}'])
def test_broken_bodies_are_a_400_and_the_server_lives(path: str, body: bytes) -> None:
    with client_of() as client:
        response = client.post(path, content=body, headers={"content-type": "application/json"})
        assert response.status_code == 400
        assert error_of(response)["message"]
        assert client.get("/health").status_code == 200


def test_an_unknown_field_is_a_400_that_names_it() -> None:
    with client_of() as client:
        response = client.post(CHAT, json=make_chat(tools=[], stream=True))
        assert response.status_code == 400
        assert error_of(response)["param"] == "tools"


def test_another_model_is_a_404() -> None:
    with client_of() as client:
        response = client.post(CHAT, json=make_chat(model="../../etc/passwd"))
        assert response.status_code == 404
        assert error_of(response)["code"] == "model_not_found"


def test_a_compressed_body_is_a_415_that_says_so() -> None:
    with client_of() as client:
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        response = client.post(CHAT, content=gzip.compress(json.dumps(make_chat()).encode()), headers=headers)
        assert response.status_code == 415
        assert "Content-Encoding" in error_of(response)["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_other_content_types_are_a_415(kind: str) -> None:
    with client_of() as client:
        response = client.post(CHAT, content=json.dumps(make_chat()), headers={"content-type": kind})
        assert response.status_code == 415
        assert "application/json" in error_of(response)["message"]


def test_json_with_a_charset_is_fine() -> None:
    with client_of() as client:
        headers = {"content-type": "Application/JSON; charset=utf-8"}
        assert client.post(CHAT, content=json.dumps(make_chat()), headers=headers).status_code == 200


def test_bodies_beyond_the_limit_are_a_413_announced_or_chunked() -> None:
    with client_of(limits=LimitsConfig(max_body_bytes=1000)) as client:
        headers = {"content-type": "application/json"}
        fits = json.dumps(make_completion(prompt="x")).ljust(1000).encode()
        assert client.post(COMPLETIONS, content=fits, headers=headers).status_code == 200
        assert client.post(COMPLETIONS, content=iter([fits[:500], fits[500:]]), headers=headers).status_code == 200
        for content in (fits + b" ", iter([fits, b" "])):
            response = client.post(COMPLETIONS, content=content, headers=headers)
            assert response.status_code == 413
            assert "1000" in error_of(response)["message"]


def test_unknown_paths_and_methods_answer_in_the_same_form() -> None:
    with client_of() as client:
        assert error_of(client.get("/v1/nothing"))["message"].endswith("Not Found")
        response = client.get(CHAT)
        assert response.status_code == 405
        assert response.headers["allow"] == "POST"
        error_of(response)
        assert client.get("/docs").status_code == 404


def test_no_page_of_another_origin_may_read_answers() -> None:
    with client_of() as client:
        response = client.post(CHAT, json=make_chat(), headers={"origin": "https://evil.example"})
        assert not [name for name in response.headers if name.startswith("access-control")]


def test_the_key_guards_everything_but_health() -> None:
    with client_of(api_key="s3cret") as client:
        assert client.get("/health").status_code == 200
        for headers in ({}, {"authorization": "Bearer no"}, {"authorization": "Bearer s3cret\u00e9".encode()}):
            response = client.post(CHAT, json=make_chat(), headers=headers)  # type: ignore[arg-type]
            assert response.status_code == 401
            assert error_of(response)["code"] == "invalid_api_key"
        good = {"authorization": "Bearer s3cret"}
        assert client.post(CHAT, json=make_chat(), headers=good).status_code == 200
        assert client.get("/v1/models", headers=good).status_code == 200


def test_a_key_may_have_any_letters() -> None:
    with client_of(api_key="schlüssel") as client:
        given = {"authorization": "Bearer schlüssel".encode()}
        assert client.get("/v1/models", headers=given).status_code == 200  # type: ignore[arg-type]
        assert client.get("/v1/models", headers={"authorization": "Bearer schl?ssel"}).status_code == 401


def test_what_a_client_made_long_is_cut_in_messages() -> None:
    with client_of() as client:
        for response in (
            client.get("/" + "x" * 9000),
            client.post(CHAT, content=b"{}", headers={"content-type": "x" * 9000}),
            client.post(CHAT, json={}, headers={"content-encoding": "x" * 9000}),
        ):
            assert 400 <= response.status_code < 500
            assert len(error_of(response)["message"]) < 200


def test_a_path_is_served_under_its_last_part(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tiny.gguf"
    file.touch()
    assert served_name(str(file)) == "tiny.gguf"
    assert served_name(str(tmp_path) + "/") == tmp_path.name
    monkeypatch.setenv("HOME", str(tmp_path))
    assert served_name("~/tiny.gguf") == "tiny.gguf"
    assert served_name("hf:org/repo:Q8_0") == "hf:org/repo:Q8_0"


def test_errors_tell_the_name_of_the_model_not_its_folder(tmp_path: Any) -> None:
    file = tmp_path / "tiny.gguf"
    file.touch()
    model = ScriptedModel(refuse=ChatTemplateError(f"{file} has no chat template"), name=str(file))
    with client_of(model) as client:
        response = client.post(CHAT, json=make_chat(model="tiny.gguf"))
        assert error_of(response)["message"] == "tiny.gguf has no chat template"


def test_requests_run_side_by_side() -> None:
    together = threading.Barrier(8)

    class Patient(ScriptedModel):
        """Says nothing before eight requests are there."""

        def _speak(self, *request: Any) -> None:
            together.wait()
            super()._speak(*request)

    model = Patient()
    with client_of(model) as client:
        threads = [threading.Thread(target=client.post, args=(CHAT,), kwargs={"json": make_chat()}) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(model.handles) == 8


def test_absent_fields_have_the_defaults_of_the_model_and_given_ones_replace_them_one_by_one() -> None:
    model = ScriptedModel(default_params=SamplingParams(temperature=0.5, top_k=7, max_tokens=2, stop=("x",)))
    with client_of(model) as client:
        client.post(CHAT, json=make_chat())
        client.post(CHAT, json=make_chat(temperature=0, stop=["y"]))
    assert model.params == [
        SamplingParams(temperature=0.5, top_k=7, max_tokens=2, stop=("x",)),
        SamplingParams(temperature=0, top_k=7, max_tokens=2, stop=("x", "y")),
    ]


def test_a_hostile_body_is_judged_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def spying(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return read_wish(*arguments, **options)

    monkeypatch.setattr("twostroke.serve.routes.read_wish", spying)
    with client_of() as client:
        assert client.post(CHAT, json=make_chat()).status_code == 200
    assert threads
    assert all(name.startswith("asyncio_") for name in threads)


@pytest.mark.parametrize("host", ["..", "x" * 70])
def test_a_host_that_cannot_be_a_name_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on {host}:0: .*; choose another address or port"):
        listen(host, 0)


def test_a_client_that_comes_while_the_model_loads_waits_for_its_answer() -> None:
    with listen(port=0) as listener, socket.create_connection(listener.getsockname(), timeout=20) as early:
        early.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        early.settimeout(0.05)
        with pytest.raises(TimeoutError):
            early.recv(1)
        early.settimeout(20)
        server = uvicorn.Server(
            uvicorn.Config(create_app(registry_of(ScriptedModel())), log_config=None, lifespan="off")
        )
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        serving.start()
        answer = early.recv(12)
        server.should_exit = True
        serving.join()
    assert answer == b"HTTP/1.1 200"


# Small facts of the routes


def test_health_tells_each_count_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel()
    counts = Snapshot(
        num_running=1,
        num_waiting=2,
        num_preemptions=3,
        blocks_free=4,
        blocks_cached=5,
        blocks_held=6,
        blocks_total=7,
        prefix_queries=8,
        prefix_hits=9,
    )
    monkeypatch.setattr(model, "snapshot", lambda: counts)
    with client_of(model) as client:
        assert client.get("/health").json() == {
            "status": "ok",
            "requests": {"running": 1, "waiting": 2},
            "kv_blocks": {"free": 4, "cached": 5, "held": 6, "total": 7},
            "models": {MODEL: "loaded"},
        }


@pytest.mark.parametrize(
    ("port", "said"),
    [(-1, "port -1 does not exist"), (65_536, "port 65536 does not exist: take one from 1 to 65535, or 0 for any")],
)
def test_a_port_beyond_the_last_is_refused_before_anything_is_opened(port: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        listen(port=port)


def test_an_address_that_is_taken_is_told_in_the_form_of_its_family() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with listen("::1", 0) as taken:
        assert taken.family is socket.AF_INET6
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on \[::1\]:{port}: another program listens there;"):
            listen("::1", port)


@pytest.mark.parametrize("header", ["bearer k", "Bearer  k", "Bearer kk", "Basic k", "k", "Bearer "])
def test_only_the_very_key_as_a_bearer_token_opens(header: str) -> None:
    with client_of(api_key="k") as client:
        response = client.get("/v1/models", headers={"authorization": header})
    assert response.status_code == 401
    assert error_of(response)["message"] == "the API key is missing or wrong: send it as a bearer token"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize(("path", "allowed"), [(CHAT, "POST"), (COMPLETIONS, "POST"), ("/v1/models", "GET")])
def test_another_method_is_told_the_one_that_is(method: str, path: str, allowed: str) -> None:
    with client_of() as client:
        response = client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert error_of(response) == {
        "message": f"{method} {path}: Method Not Allowed",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


def test_an_unread_body_of_a_client_that_left_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(registry_of(ScriptedModel()))
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": CHAT, "query_string": b"", "headers": headers}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 499
    assert not caplog.records
