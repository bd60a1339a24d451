"""The document tells Ollama's bodies as its routes take them."""

from typing import Any

import jsonschema
import pytest

from tests.serve.ollama.ollama_builders import CHAT, GENERATE, make_chat, make_generate, ollama_of, problem_of
from tests.serve.serve_builders import MODEL
from twostroke.serve.ollama.openapi import OLLAMA_ERROR, ollama_bodies
from twostroke.serve.ollama.options import HARMLESS_OPTIONS
from twostroke.serve.ollama.wish import HARMLESS, HARMLESS_IN_GENERATE

NAMED = {"model": MODEL}
BODIES: dict[str, dict[str, Any]] = {
    GENERATE: make_generate(),
    CHAT: make_chat(),
    "/api/embed": {**NAMED, "input": "x"},
    "/api/embeddings": NAMED,
    "/api/show": NAMED,
    "/api/pull": NAMED,
    "/api/delete": NAMED,
}
HARMLESS_NAMES = {
    GENERATE: {field.name for field in HARMLESS_IN_GENERATE},
    CHAT: {field.name for field in HARMLESS},
    "/api/show": {"system", "template", "options"},
    "/api/pull": {"insecure"},
    "/api/embed": {"truncate", "options"},
    "/api/embeddings": {"options"},
}


def refused(path: str, fields: dict[str, Any]) -> set[str]:
    """What the refusal of an unknown field says is honoured."""
    method = "DELETE" if path == "/api/delete" else "POST"
    with ollama_of() as client:
        message = problem_of(client.request(method, path, json=BODIES[path] | fields))
    return set(message.partition("(honoured: ")[2].partition(")")[0].split(", "))


@pytest.mark.parametrize("path", BODIES)
def test_the_fields_of_a_body_are_those_its_route_honours(path: str) -> None:
    told = set(ollama_bodies()[path]["properties"])
    honoured = refused(path, {"no_such_field": 1})
    assert honoured <= told
    assert told <= honoured | HARMLESS_NAMES.get(path, set())


def test_options_are_those_that_are_read() -> None:
    told = set(ollama_bodies()[GENERATE]["properties"]["options"]["anyOf"][0]["properties"])
    with ollama_of() as client:
        message = problem_of(client.post(GENERATE, json=make_generate(options=dict.fromkeys([*told, "no_such"]))))
    assert message.startswith("options.no_such is refused")
    assert {option.name for option in HARMLESS_OPTIONS} < told


FITTING: list[dict[str, Any]] = [
    {"options": {"temperature": 0, "top_k": -1, "num_predict": -2, "stop": ["x"], "num_thread": 8, "mirostat": 0}},
    {"format": "json", "keep_alive": "5m", "logprobs": True, "top_logprobs": 2, "truncate": False},
    {"format": {"type": "object"}, "keep_alive": -1, "stream": False, "options": None, "think": None},
]
NOT_FITTING: list[dict[str, Any]] = [
    *({"options": {name: value}} for name, value in (
        ("temperature", -1), ("top_k", -2), ("top_p", 0), ("min_p", 2), ("typical_p", 0), ("repeat_penalty", 0),
        ("num_predict", 0), ("num_predict", -3), ("num_ctx", 0), ("stop", "x"), ("mirostat", 1), ("no_such", 1),
    )),
    {"format": "xml"},
    {"stream": 1},
    {"think": "much"},
    {"truncate": True},
    {"keep_alive": []},
    {"top_logprobs": 21, "logprobs": True},
    {"seed": 1},
]  # fmt: skip


@pytest.mark.parametrize("fields", FITTING)
@pytest.mark.parametrize("path", [GENERATE, CHAT])
def test_what_is_answered_fits_its_schema(path: str, fields: dict[str, Any]) -> None:
    body = BODIES[path] | fields
    jsonschema.validate(body, ollama_bodies()[path])
    with ollama_of() as client:
        assert client.post(path, json=body).status_code == 200


@pytest.mark.parametrize("fields", NOT_FITTING)
@pytest.mark.parametrize("path", [GENERATE, CHAT])
def test_what_does_not_fit_its_schema_is_refused(path: str, fields: dict[str, Any]) -> None:
    body = BODIES[path] | fields
    assert not jsonschema.Draft202012Validator(ollama_bodies()[path]).is_valid(body)
    with ollama_of() as client:
        response = client.post(path, json=body)
    assert response.status_code == 400
    jsonschema.validate(response.json(), OLLAMA_ERROR)
