"""Routes beside the answers: state, lists, files; keys, hosts and limits as on every other route."""

from typing import Any

import pytest

import twostroke
from tests.serve.ollama.ollama_builders import (
    CHAT,
    GENERATE,
    lines_of,
    make_chat,
    make_generate,
    ollama_of,
    problem_of,
)
from tests.serve.serve_builders import MODEL, ScriptedModel, ScriptedShelf, client_of
from twostroke.errors import CapacityError, ModelNotFoundError, ParamsError, QueueFullError
from twostroke.serve.hosts import HostNames
from twostroke.serve.limits import LimitsConfig

GETS = ("/api/version", "/api/tags", "/api/ps")
POSTS = ("/api/generate", "/api/chat", "/api/show", "/api/embed", "/api/embeddings", "/api/pull")


def test_clients_that_look_for_a_server_find_one() -> None:
    with ollama_of() as client:
        assert client.get("/").text == "Ollama is running"
        for path in ("/", "/api/version", "/api/tags"):
            response = client.head(path)
            assert (response.status_code, response.content) == (200, b"")


def test_the_version_is_that_of_the_api_and_ours_stands_beside_it() -> None:
    with ollama_of() as client:
        told = client.get("/api/version").json()
    assert told["twostroke"] == twostroke.__version__
    assert [int(part) for part in told["version"].split(".")] >= [0, 5, 0]


def test_a_server_that_was_not_asked_does_not_speak_it() -> None:
    with client_of() as client:
        for path in ("/", *GETS):
            assert client.get(path).status_code == 404
        for path in POSTS:
            assert client.post(path, json={"model": MODEL}).status_code == 404
        assert client.request("DELETE", "/api/delete", json={"model": MODEL}).status_code == 404


def test_openais_routes_stay() -> None:
    with ollama_of() as client:
        assert client.get("/v1/models").json()["data"][0]["id"] == MODEL
        assert client.post("/v1/completions", json={"model": MODEL, "prompt": "hi"}).status_code == 200


def test_models_are_listed_under_each_of_their_names() -> None:
    with ollama_of(aliases=["gpt"]) as client:
        models = client.get("/api/tags").json()["models"]
    assert [model["name"] for model in models] == [MODEL, "gpt"]
    assert models[0]["model"] == MODEL
    assert models[0]["size"] == 1_000_000
    assert models[0]["modified_at"] == "2023-11-14T22:13:20.500000Z"


def test_the_loaded_model_is_shown_with_its_memory() -> None:
    with ollama_of() as client:
        (model,) = client.get("/api/ps").json()["models"]
    assert (model["name"], model["size"], model["size_vram"]) == (MODEL, 0, 0)
    assert model["context_length"] == 4096
    assert model["expires_at"].startswith("9999")


@pytest.mark.parametrize("keep_alive", [1e15, 1e300, 2**64 - 1, "99999999999999h"])
def test_a_model_kept_beyond_every_calendar_is_still_listed(keep_alive: float | str) -> None:
    with ollama_of() as client:
        assert client.post(GENERATE, json=make_generate(keep_alive=keep_alive)).status_code == 200
        (model,) = client.get("/api/ps").json()["models"]
    assert model["expires_at"].startswith("9999")


@pytest.mark.parametrize("field", ["model", "name"])
def test_a_model_is_shown(field: str) -> None:
    with ollama_of() as client:
        told = client.post("/api/show", json={field: MODEL}).json()
        verbose = client.post("/api/show", json={field: MODEL, "verbose": True}).json()
    assert told["details"]["family"] == "llama"
    assert told["model_info"]["tokenizer.ggml.tokens"] is None
    assert "tensors" not in told
    assert verbose["model_info"]["tokenizer.ggml.tokens"] == [MODEL]
    assert verbose["tensors"][0]["name"] == "token_embd.weight"


@pytest.mark.parametrize("name", ["other", "../../etc/passwd", "/etc/passwd", "a\0b", "x" * 5000, "http://h/x", "."])
def test_another_model_is_a_404_that_opens_nothing(name: str) -> None:
    with ollama_of(shelf=ScriptedShelf(refuse=ModelNotFoundError("nothing"))) as client:
        for path in POSTS:
            fields = {"model": name, **({"input": "x"} if path == "/api/embed" else {})}
            response = client.post(path, json=fields)
            assert response.status_code == 404, path
            assert len(problem_of(response)) < 1000
        assert client.request("DELETE", "/api/delete", json={"model": name}).status_code == 404


@pytest.mark.parametrize(
    "fields", [{"system": "x"}, {"template": "x"}, {"options": {"a": 1}}, {"verbose": 1}, {"more": 1}]
)
def test_show_changes_nothing_about_a_model(fields: dict[str, Any]) -> None:
    with ollama_of() as client:
        assert client.post("/api/show", json={"model": MODEL, **fields}).status_code == 400


def test_texts_become_vectors() -> None:
    with ollama_of() as client:
        told = client.post("/api/embed", json={"model": MODEL, "input": ["hi", "you"], "truncate": False}).json()
        one = client.post("/api/embed", json={"model": MODEL, "input": "hi", "keep_alive": "5m"}).json()
        older = client.post("/api/embeddings", json={"model": MODEL, "prompt": "hi", "options": {}}).json()
        loads = client.post("/api/embeddings", json={"model": MODEL}).json()
    assert (told["model"], told["embeddings"], told["prompt_eval_count"]) == (MODEL, [[2.0, 0.5], [3.0, 0.5]], 5)
    assert isinstance(told["total_duration"], int)
    assert one["embeddings"] == [[2.0, 0.5]]
    assert (older, loads) == ({"embedding": [2.0, 0.5]}, {"embedding": []})


def test_a_model_that_only_writes_has_no_embeddings() -> None:
    refuse = ParamsError("this model has no pooling", field="prompt")
    with ollama_of(ScriptedModel(refuse=refuse)) as client:
        response = client.post("/api/embed", json={"model": MODEL, "input": "hi"})
    assert response.status_code == 400
    assert problem_of(response) == "this model has no pooling"


# Files


def test_a_fetched_model_is_deleted() -> None:
    shelf = ScriptedShelf()
    with ollama_of(shelf=shelf) as client:
        response = client.request("DELETE", "/api/delete", json={"model": "tiny:1b"})
    assert (response.status_code, response.content) == (200, b"")
    assert shelf.deleted == ["tiny:1b"]


@pytest.mark.parametrize("name", [MODEL, f"{MODEL}:latest", "gpt"])
def test_a_served_model_is_not_deleted(name: str) -> None:
    shelf = ScriptedShelf()
    with ollama_of(shelf=shelf, aliases=["gpt"]) as client:
        response = client.request("DELETE", "/api/delete", json={"name": name})
    assert response.status_code == 409
    assert "the server was started with it" in problem_of(response)
    assert shelf.deleted == []


# What all routes share


def test_every_route_wants_the_key_but_the_root() -> None:
    with ollama_of(api_key="k") as client:
        assert client.get("/").status_code == 200
        for path in GETS:
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"authorization": "Bearer k"}).status_code == 200
        for path in POSTS:
            assert "API key" in problem_of(client.post(path, json=make_generate()))
        assert client.request("DELETE", "/api/delete", json={"model": "x"}).status_code == 401


def test_foreign_hosts_are_refused_in_ollamas_form() -> None:
    with ollama_of(hosts=HostNames(frozenset({"testserver"}))) as client:
        response = client.get("/api/tags", headers={"host": "evil.example"})
        assert response.status_code == 403
        assert "Host" in problem_of(response)
        assert client.get("/api/tags").status_code == 200


def test_no_page_of_another_origin_may_read_answers() -> None:
    with ollama_of() as client:
        response = client.post(GENERATE, json=make_generate(), headers={"origin": "https://evil.example"})
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_unknown_paths_and_methods_have_ollamas_form() -> None:
    with ollama_of() as client:
        assert "Not Found" in problem_of(client.post("/api/create", json={}))
        assert client.get("/api/generate").status_code == 405
        assert "error" in client.get("/v1/nothing").json()["error"]["type"]


def test_curl_may_send_json_as_it_does_by_default_and_pages_may_not() -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    body = b'{"model": "scripted:1m", "prompt": "hi", "stream": false}'
    with ollama_of() as client:
        assert client.post(GENERATE, content=body, headers=form).json()["response"] == "Hello!"
        for sign in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            assert client.post(GENERATE, content=body, headers=form | sign).status_code == 415
        for kind in ("text/plain", "multipart/form-data", ""):
            assert client.post(GENERATE, content=body, headers={"content-type": kind}).status_code == 415
        assert client.post("/v1/completions", content=body, headers=form).status_code == 415


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"model": NaN}', b'{"model": "a", "model": "b"}', b"\xff"]
)
def test_broken_bodies_are_a_400_everywhere(body: bytes) -> None:
    with ollama_of() as client:
        for method, path in [*(("POST", path) for path in POSTS), ("DELETE", "/api/delete")]:
            response = client.request(method, path, content=body, headers={"content-type": "application/json"})
            assert response.status_code == 400, path
            problem_of(response)


SHARED = (
    "model",
    "stream",
    "format",
    "options",
    "keep_alive",
    "think",
    "logprobs",
    "top_logprobs",
    "truncate",
    "shift",
)
FIELDS = {
    GENERATE: (*SHARED, "prompt", "system", "template", "context", "raw", "images", "suffix"),
    CHAT: (*SHARED, "messages", "tools"),
    "/api/show": ("model", "name", "verbose", "system", "template", "options"),
    "/api/embed": ("model", "input", "truncate", "dimensions", "options", "keep_alive"),
    "/api/embeddings": ("model", "prompt", "options", "keep_alive"),
    "/api/pull": ("model", "name", "stream", "insecure"),
}
OPTIONS = ("num_predict", "num_ctx", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "repeat_penalty")
MORE_OPTIONS = ("repeat_last_n", "mirostat", "num_thread", "num_keep", "presence_penalty", "frequency_penalty")


@pytest.mark.parametrize(
    "value", [None, True, 1, 1.5, "x", [], {}, [[]], {"a": {"b": [None]}}, -1, 2**63, 1e20, "", [None]]
)
def test_no_value_of_any_field_is_a_500(value: Any) -> None:
    with ollama_of(ScriptedModel(["a"])) as client:
        for path, names in FIELDS.items():
            for name in names:
                assert client.post(path, json={"model": MODEL, name: value}).status_code < 500, (path, name)
        for name in (*OPTIONS, *MORE_OPTIONS):
            fields = make_generate(options={name: value})
            assert client.post(GENERATE, json=fields).status_code < 500, name


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (QueueFullError("full"), 429),
        (CapacityError("300 prompt tokens + 256 = 556, the context is 512"), 400),
        (ParamsError("structure: bad schema", field="structure"), 400),
    ],
)
@pytest.mark.parametrize(("path", "make"), [(GENERATE, make_generate), (CHAT, make_chat)])
def test_what_the_model_refuses_is_a_status_before_any_line(
    path: str, make: Any, error: Exception, status: int
) -> None:
    with ollama_of(ScriptedModel(refuse=error)) as client:
        for fields in (make(), make(stream=False), make(options={"num_predict": -1})):
            response = client.post(path, json=fields)
            assert response.status_code == status
            assert problem_of(response) == str(error).replace("structure", "format")


def test_requests_beyond_the_limit_are_told_to_come_back() -> None:
    with ollama_of(limits=LimitsConfig(max_open_requests=0)) as client:
        response = client.post(GENERATE, json=make_generate())
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    problem_of(response)


def test_requests_are_found_by_the_id_of_their_reply_and_leave_nothing_open() -> None:
    with ollama_of() as client:
        response = client.post(GENERATE, json=make_generate())
        assert lines_of(response)[-1]["done"]
        record = client.get(f"/v1/requests/{response.headers['x-request-id']}").json()
        assert record["status"] == "ended"
        loaded = client.post(GENERATE, json=make_generate(prompt=""))
        assert client.get(f"/v1/requests/{loaded.headers['x-request-id']}").status_code == 404
    named = {"x-request-id": "mine"}
    with ollama_of() as client:
        assert client.post(CHAT, json=make_chat(), headers=named).headers["x-request-id"] == "mine"
