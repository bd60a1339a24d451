"""Several models behind one address: each request has the one it names, loaded when it is asked for."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.serve.serve_builders import ScriptedLoader, ScriptedModel, client_of, error_of, make_chat, make_completion
from twostroke.errors import ModelFileError
from twostroke.params import SamplingParams
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelEntry

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PULLED = ModelEntry(("ollama:c:latest",), "c")
NAMES_THAT_ARE_PATHS = ["../c", "/etc/passwd", "./c", "a/../../b", "C:\\x", "a\0b", "", ".", "c" * 5000, "http://h/x"]


class Pulled:
    """One model more, which answers to a shorter name too."""

    def names(self) -> list[str]:
        return [PULLED.name]

    def find(self, name: str) -> ModelEntry | None:
        return PULLED if name in (PULLED.name, "c") else None


class Several:
    """Models a, loaded, and b, and c among those pulled: each says its own name."""

    def __init__(self, *, pulls: bool = False, needs: Mapping[str, int] | None = None, **options: Any) -> None:
        self.models = {name: ScriptedModel([name], name=f"/srv/{name}.gguf") for name in "abc"}
        self.loader = ScriptedLoader(self.models, needs=needs)
        self.registry = ModelRegistry(
            [ModelEntry(("a", "first"), "a"), ModelEntry(("b",), "b")],
            loader=self.loader,
            free_bytes=lambda: 100,
            pulled=Pulled() if pulls else None,
            **options,
        )
        self.registry.load_first()


@contextmanager
def several(**options: Any) -> Iterator[tuple[TestClient, Several]]:
    shelf = Several(**options)
    with client_of(shelf.registry) as client:
        yield client, shelf


def say(client: TestClient, model: str, **fields: Any) -> Any:
    return client.post(CHAT, json=make_chat(model=model, **fields))


def said(response: Any) -> str:
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


def test_each_request_is_answered_by_the_model_it_names_and_told_the_name_it_used() -> None:
    with several() as (client, shelf):
        assert [said(say(client, name)) for name in ("a", "b", "first", "b")] == ["a", "b", "a", "b"]
        assert say(client, "first").json()["model"] == "first"
        assert shelf.loader.loads == ["a", "b"]


def test_models_tells_all_and_which_are_loaded_and_loads_none() -> None:
    with several(pulls=True) as (client, shelf):
        facts = {model["id"]: model for model in client.get("/v1/models").json()["data"]}
        assert {name: model["state"] for name, model in facts.items()} == {
            "a": "loaded",
            "first": "loaded",
            "b": "not_loaded",
            "ollama:c:latest": "not_loaded",
        }
        assert (facts["a"]["max_model_len"], facts["b"]["max_model_len"]) == (4096, None)
        assert client.get("/v1/models/c").json()["state"] == "not_loaded"
        said(say(client, "b"))
        assert client.get("/v1/models/b").json()["state"] == "loaded"
        assert client.get("/health").json()["models"] == {"a": "loaded", "b": "loaded", "ollama:c:latest": "not_loaded"}
        assert shelf.loader.loads == ["a", "b"]


def test_a_pulled_model_is_served_by_its_name_only_where_the_server_says_so() -> None:
    with several(pulls=True) as (client, _):
        assert said(say(client, "c")) == said(say(client, "ollama:c:latest")) == "c"
    with several() as (client, _):
        response = say(client, "c")
        assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")
        assert "this server has a, first, b" in error_of(response)["message"]


@pytest.mark.parametrize("name", NAMES_THAT_ARE_PATHS)
def test_no_name_of_a_request_is_opened_loaded_or_fetched(name: str) -> None:
    """H6"""
    with several(pulls=True) as (client, shelf):
        bodies = {
            CHAT: make_chat(model=name),
            COMPLETIONS: make_completion(model=name),
            "/tokenize": {"model": name, "prompt": "x"},
            "/detokenize": {"model": name, "tokens": [1]},
        }
        for path, body in bodies.items():
            response = client.post(path, json=body)
            assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")
            assert len(response.text) < 1000
        assert shelf.loader.loads == ["a"]


def test_a_body_that_is_refused_loads_no_model() -> None:
    with several() as (client, shelf):
        assert say(client, "b", temperature=-1).status_code == 400
        assert say(client, "b", messages=[]).status_code == 400
        assert shelf.loader.loads == ["a"]


def test_absent_fields_have_the_defaults_of_the_model_that_is_asked() -> None:
    with several() as (client, shelf):
        shelf.models["b"].default_params = SamplingParams(temperature=0.5, max_tokens=7)
        said(say(client, "b"))
        said(say(client, "a"))
        assert [shelf.models[name].params[0].max_tokens for name in "ab"] == [256, 7]


def test_tokens_are_those_of_the_model_that_is_named_or_of_the_first() -> None:
    with several() as (client, shelf):
        shelf.models["b"].context = 32
        assert client.post("/tokenize", json={"prompt": "x"}).json()["max_model_len"] == 4096
        assert client.post("/tokenize", json={"prompt": "x", "model": "b"}).json()["max_model_len"] == 32
        assert client.post("/detokenize", json={"tokens": [65], "model": "b"}).json() == {"prompt": "A"}


def test_the_time_a_request_waited_for_its_model_has_a_name() -> None:
    with several() as (client, shelf):
        said(say(client, "b"))
        said(say(client, "b"))
    first, second = shelf.models["b"].load_s
    assert (first > 0, second) == (True, 0)


def test_a_model_that_cannot_be_loaded_is_a_503_without_our_folders_and_is_tried_again() -> None:
    """H7"""
    with several() as (client, shelf):
        shelf.loader.failures = [ModelFileError("/srv/models/b.gguf", "the header ends at byte 4")]
        response = say(client, "b", stream=True)
        assert (response.status_code, error_of(response)["code"]) == (503, "model_load_failed")
        assert error_of(response)["message"] == "b could not be loaded: b.gguf: the header ends at byte 4"
        assert said(say(client, "b")) == "b"
        assert client.get("/health").json()["requests"] == {"running": 0, "waiting": 0}


def test_a_model_without_room_is_a_503_with_the_arithmetic_and_counted() -> None:
    with several(needs={"b": 10**10}) as (client, _):
        response = say(client, "b")
        assert (response.status_code, error_of(response)["code"]) == (503, "insufficient_memory")
        assert "b needs weights of 10.00 GB" in error_of(response)["message"]
        assert 'admission_rejections_total{reason="insufficient_memory"} 1.0' in client.get("/metrics").text


def test_numbers_are_told_apart_by_the_models_name_and_outlive_a_load() -> None:
    with several() as (client, shelf):
        for name in ("a", "b", "b"):
            said(say(client, name))
        found = {
            (sample.name, sample.labels.get("model_name")): sample.value
            for family in text_string_to_metric_families(client.get("/metrics").text)
            for sample in family.samples
        }
        assert [found["twostroke_generation_tokens_total", name] for name in "ab"] == [1, 2]
        assert [found["twostroke_num_requests_running", name] for name in "ab"] == [0, 0]
        on_loop(client, shelf.registry.unload, shelf.registry.find("b"))
        text = client.get("/metrics").text
        assert 'twostroke_generation_tokens_total{model_name="b"} 2.0' in text
        assert 'twostroke_num_requests_running{model_name="b"}' not in text


def test_a_running_answer_keeps_its_model_and_its_end_lets_it_go() -> None:
    with several(keep_alive_s=0) as (client, shelf):
        shelf.models["b"].pieces = tuple("endless" * 1000)
        shelf.models["b"].pause_s = 0.001
        with client.stream("POST", CHAT, json=make_chat(model="b", stream=True, max_tokens=60)) as response:
            lines = [line for line in response.iter_lines() if line]
        assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        wait_for(lambda: shelf.models["b"].is_closed)
        assert client.get("/v1/models/b").json()["state"] == "not_loaded"


class Waiting:
    """A request for b in a thread of its own, held up by its load."""

    def __init__(self, client: TestClient, shelf: Several, **fields: Any) -> None:
        shelf.loader.gate.clear()
        self.response: Any = None
        self._thread = threading.Thread(target=self._ask, args=(client, fields))
        self._thread.start()
        wait_for(lambda: "b" in shelf.loader.loads)

    def _ask(self, client: TestClient, fields: dict[str, Any]) -> None:
        self.response = client.post(CHAT, json=make_chat(model="b", **fields), headers={"x-request-id": "mine"})

    def end(self) -> Any:
        self._thread.join(10)
        return self.response


def test_a_request_that_waits_for_its_model_is_told_and_can_be_cancelled_while_others_answer() -> None:
    with several() as (client, shelf):
        waiting = Waiting(client, shelf)
        assert client.get("/v1/requests/mine").json()["status"] == "running"
        assert said(say(client, "a")) == "a"
        client.delete("/v1/requests/mine")
        response = waiting.end()
        shelf.loader.gate.set()
        assert (response.status_code, error_of(response)["code"]) == (499, "deleted")
        assert shelf.models["b"].prompts == []
        wait_for(lambda: client.get("/health").json()["models"]["b"] == "loaded")
        assert said(say(client, "b")) == "b"


def test_the_deadline_of_a_request_counts_while_its_model_is_loaded() -> None:
    with several() as (client, shelf):
        response = Waiting(client, shelf, timeout_s=0.05).end()
        shelf.loader.gate.set()
        assert (response.status_code, error_of(response)["code"]) == (499, "deadline")


def test_a_server_that_closes_answers_those_that_wait_for_a_model() -> None:
    with several() as (client, shelf):
        waiting = Waiting(client, shelf)
        on_loop(client, client.app.state.routes.cancel_all)  # type: ignore[attr-defined]
        response = waiting.end()
        shelf.loader.gate.set()
        assert response.status_code == 503
        assert "the server is closing" in error_of(response)["message"]


def on_loop(client: TestClient, function: Any, *arguments: Any) -> None:
    assert client.portal is not None
    client.portal.call(function, *arguments)


def wait_for(is_true: Any) -> None:
    for _ in range(2000):
        if is_true():
            return
        threading.Event().wait(0.005)
    raise AssertionError("not true in time")
