"""Several models behind Ollama's API: loaded when asked for, told, unloaded and deleted when nobody uses them."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.serve.ollama.ollama_builders import CHAT, GENERATE, lines_of, make_chat, make_generate, problem_of
from tests.serve.serve_builders import ScriptedModel, ScriptedShelf, client_of
from tests.serve.test_several_models import Several
from twostroke.errors import ModelFileError
from twostroke.model.facts import ModelFacts


@contextmanager
def several(**options: Any) -> Iterator[tuple[TestClient, Several, ScriptedShelf]]:
    """Models a, loaded, and b, and ollama:c:latest among those pulled."""
    models, shelf = Several(pulls=True, **options), ScriptedShelf()
    with client_of(models.registry, shelf=shelf) as client:
        yield client, models, shelf


def say(client: TestClient, model: str, **fields: Any) -> Any:
    return client.post(GENERATE, json=make_generate(model=model, stream=False, **fields)).json()


def loaded(client: TestClient) -> list[str]:
    return [model["name"] for model in client.get("/api/ps").json()["models"]]


def test_each_request_has_the_model_it_names_and_tells_the_wait_for_it() -> None:
    with several() as (client, models, _):
        assert loaded(client) == ["a"]
        first, second = say(client, "b"), say(client, "b:latest")
        assert (first["response"], second["response"], second["model"]) == ("b", "b", "b:latest")
        assert say(client, "c")["response"] == "c"
        assert models.loader.loads == ["a", "b", "c"]
        assert loaded(client) == ["a", "b", "ollama:c:latest"]


def test_every_model_is_listed_and_shown_without_being_loaded() -> None:
    with several() as (client, models, _):
        names = [model["name"] for model in client.get("/api/tags").json()["models"]]
        assert names == ["a", "first", "b", "ollama:c:latest"]
        shown = client.post("/api/show", json={"model": "b"}).json()
        assert "num_ctx" not in shown["parameters"]  # what fits is known once it is loaded
        assert "num_ctx" in client.post("/api/show", json={"model": "a"}).json()["parameters"]
        assert models.loader.loads == ["a"]


def test_a_file_is_read_again_only_where_it_changed() -> None:
    with several() as (client, models, _):
        reads: list[str] = []
        whole = models.loader.facts
        is_current = [True]

        class Facts(ModelFacts):
            @property
            def is_current(self) -> bool:
                return is_current[0]

        def facts(source: str, **options: Any) -> Any:
            reads.append(source)
            told = whole(source, **options)
            return Facts(**{field.name: getattr(told, field.name) for field in fields(told)})

        models.loader.facts = facts  # type: ignore[method-assign]
        for _ in range(2):
            client.get("/api/tags")
        assert reads == ["a", "b", "c"]
        is_current[0] = False
        client.post("/api/show", json={"model": "b"})
        assert reads == ["a", "b", "c", "b"]


def test_a_file_that_cannot_be_read_hides_no_other() -> None:
    with several() as (client, models, _):
        whole = models.loader.facts

        def facts(source: str, **options: Any) -> Any:
            if source == "b":
                raise ModelFileError("/srv/b.gguf", "it is damaged")
            return whole(source, **options)

        models.loader.facts = facts  # type: ignore[method-assign]
        assert [model["name"] for model in client.get("/api/tags").json()["models"]] == [
            "a",
            "first",
            "ollama:c:latest",
        ]
        response = client.post("/api/show", json={"model": "b"})
        assert response.status_code == 503
        assert "it is damaged" in problem_of(response)
        assert "/srv" not in response.text


@pytest.mark.parametrize(("path", "fields"), [(GENERATE, make_generate(prompt="")), (CHAT, make_chat(messages=[]))])
def test_without_a_prompt_a_model_is_loaded_or_unloaded(path: str, fields: dict[str, Any]) -> None:
    with several() as (client, models, _):
        assert client.post(path, json=fields | {"model": "b"}).json()["done_reason"] == "load"
        assert loaded(client) == ["a", "b"]
        assert client.post(path, json=fields | {"model": "b", "keep_alive": 0}).json()["done_reason"] == "unload"
        assert loaded(client) == ["a"]
        assert models.models["b"].is_closed
        assert client.post(path, json=fields | {"model": "c", "keep_alive": "0s"}).json()["done_reason"] == "unload"
        assert models.loader.loads == ["a", "b"]  # nothing is loaded to be unloaded


def test_keep_alive_of_a_request_is_when_its_model_expires() -> None:
    with several() as (client, _, _):
        assert client.get("/api/ps").json()["models"][0]["expires_at"] == "9999-12-31T23:59:59Z"
        for keep_alive, least_s, most_s in (("5m", 150, 302), (3600, 3450, 3602)):
            say(client, "a", keep_alive=keep_alive)
            told = client.get("/api/ps").json()["models"][0]["expires_at"]
            left_s = (datetime.fromisoformat(told) - datetime.now().astimezone()).total_seconds()
            assert least_s < left_s < most_s
        say(client, "a", keep_alive=-1)
        assert client.get("/api/ps").json()["models"][0]["expires_at"].startswith("9999")


def test_a_model_that_does_not_fit_is_refused_with_the_arithmetic() -> None:
    with several(needs={"b": 10**12}) as (client, _, _):
        response = client.post(GENERATE, json=make_generate(model="b"))
    assert response.status_code == 503
    assert "needs weights of 1000.00 GB" in problem_of(response)


def test_a_pulled_model_is_deleted_once_it_is_unloaded() -> None:
    with several() as (client, models, shelf):
        say(client, "c")
        assert client.request("DELETE", "/api/delete", json={"model": "c"}).status_code == 200
        assert shelf.deleted == ["ollama:c:latest"]
        assert models.models["c"].is_closed
        assert loaded(client) == ["a"]


def test_a_model_that_answers_is_not_deleted() -> None:
    with several() as (client, models, shelf):
        models.models["c"] = models.loader.models["c"] = ScriptedModel(["x"] * 100_000, pause_s=0.01)
        fields = make_generate(model="c", options={"num_predict": 2000})
        with client.stream("POST", GENERATE, json=fields) as response:
            refused = client.request("DELETE", "/api/delete", json={"model": "c"})
            record = response.headers["x-request-id"]
            client.delete(f"/v1/requests/{record}")
            response.read()
        assert refused.status_code == 409
        assert "it answers a request" in problem_of(refused)
        assert models.registry.slots[-1].keep_alive_s == math.inf  # nor is it unloaded afterwards
        assert "error" in lines_of(response)[-1]
    assert shelf.deleted == []
