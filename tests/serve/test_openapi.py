"""The document says what the routes do: no field too many, none too few, and what it forbids is refused."""

import json
from typing import Any

import jsonschema
import pytest
from starlette.routing import Route

from tests.serve.serve_builders import (
    MODEL,
    ScriptedModel,
    ScriptedShelf,
    client_of,
    error_of,
    make_chat,
    make_completion,
)
from twostroke.serve.harmless import HARMLESS
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openapi import request_bodies

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODIES = {
    CHAT: make_chat(),
    COMPLETIONS: make_completion(),
    "/tokenize": {"messages": make_chat()["messages"]},
    "/detokenize": {"tokens": [97]},
}


def honoured(path: str) -> set[str]:
    """The fields a route says it takes when it is given another."""
    with client_of() as client:
        refusal = client.post(path, json=BODIES[path] | {"no_such_field": 1})
    message: str = error_of(refusal)["message"]
    return set(message.partition("(honoured: ")[2].rstrip(")").split(", "))


@pytest.mark.parametrize("path", BODIES)
def test_the_fields_of_a_body_are_those_its_route_honours(path: str) -> None:
    told = set(request_bodies(LimitsConfig())[path]["properties"])
    harmless = {field.name for field in HARMLESS if path in (CHAT, COMPLETIONS)}
    assert honoured(path) <= told
    assert told <= honoured(path) | harmless


def test_every_route_is_in_the_document_with_a_body_where_it_takes_one() -> None:
    with client_of(shelf=ScriptedShelf()) as client:
        told = client.get("/openapi.json").json()
        routes = [route for route in client.app.routes if isinstance(route, Route)]  # type: ignore[attr-defined]
    assert set(told["paths"]) == {route.path.replace(":path}", "}") for route in routes}
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            assert ("requestBody" in operation) is (method == "post" or path == "/api/delete"), (method, path)
            for name in ("4XX", "503"):
                assert operation["responses"][name]["content"]
    ids = [operation["operationId"] for operations in told["paths"].values() for operation in operations.values()]
    assert len(set(ids)) == len(ids)


def test_its_schemas_are_schemas() -> None:
    for schema in request_bodies(LimitsConfig()).values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_the_document_is_behind_the_key_like_everything_it_tells_of() -> None:
    with client_of(api_key="k") as client:
        assert client.get("/openapi.json").status_code == 401
        assert client.get("/openapi.json", headers={"authorization": "Bearer k"}).status_code == 200


def test_an_error_has_the_form_the_document_gives_it() -> None:
    with client_of() as client:
        told = client.get("/openapi.json").json()
        error = client.post(CHAT, json={}).json()
    jsonschema.validate(error, told["components"]["schemas"]["Error"])


FITTING: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0, "seed": 0, "n": 2}),
    (CHAT, {"temperature": 1, "typical_p": 0.5, "xtc_probability": 1, "top_n_sigma": 1, "dynatemp_range": 0.5}),
    (CHAT, {"temperature": 1, "mirostat_tau": 3, "mirostat_eta": 1, "penalty_last_n": -1, "no_repeat_ngram_size": 3}),
    (CHAT, {"dry_multiplier": 0.8, "dry_sequence_breakers": ["x"], "bad_words": ["a", [1, 2]]}),
    (CHAT, {"sampler_order": ["top_k", "temperature"], "temperature": 0.5}),
    (CHAT, {"stop": "x", "logprobs": True, "top_logprobs": 3, "logit_bias": {"5": -100}}),
    (CHAT, {"stop": ["x", "y"], "stream": True, "stream_options": {"include_usage": True}}),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}}),
    (CHAT, {"structured_outputs": {"choice": ["a", "b"]}, "max_tokens": None, "user": None}),
    (CHAT, {"metadata": {}, "store": False, "service_tier": "auto", "modalities": ["text"]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}),
    (COMPLETIONS, {"prompt": [1, 2], "echo": False, "best_of": 1, "logprobs": 0}),
    (COMPLETIONS, {"prompt": ["a", "b"], "suffix": "", "timeout_s": 5, "ledger": True, "cache_salt": "s"}),
    (COMPLETIONS, {"prompt": [[1], [2, 3]], "min_tokens": 0, "ignore_eos": True, "stop_token_ids": [1]}),
]
NOT_FITTING: list[tuple[str, dict[str, Any]]] = [
    *((path, {name: value}) for path in (CHAT, COMPLETIONS) for name, value in (
        ("temperature", -1), ("temperature", "x"), ("top_p", 0), ("top_p", 1.5), ("top_k", -2), ("min_p", 2),
        ("n", 0), ("n", 10**6), ("seed", -1), ("seed", 1.5), ("max_tokens", -1), ("min_tokens", -1),
        ("presence_penalty", 3), ("repetition_penalty", 0), ("stop", 5), ("stop", ["x"] * 17), ("stream", 1),
        ("logit_bias", {"5": 101}), ("logit_bias", []), ("store", True), ("service_tier", "flex"), ("user", 5),
        ("stop_token_ids", [-1]), ("timeout_s", 0), ("ledger", "yes"), ("response_format", {"type": "xml"}),
        ("typical_p", 0), ("xtc_probability", 1.5), ("mirostat_tau", 0), ("mirostat_eta", 2), ("dry_base", 0.5),
        ("dry_allowed_length", 0), ("penalty_last_n", -2), ("no_repeat_ngram_size", 0.5), ("bad_words", ["a", []]),
        ("bad_words", [5]), ("sampler_order", ["top_x"]), ("sampler_order", ["top_k", "top_k"]),
        ("dry_sequence_breakers", [""]), ("top_n_sigma", -1), ("dynatemp_range", "x"),
        ("structured_outputs", {"choice": []}), ("stream_options", {"x": True}), ("no_such_field", 1),
    )),
    (CHAT, {"messages": []}),
    (CHAT, {"messages": "hi"}),
    (CHAT, {"top_logprobs": 21}),
    (CHAT, {"messages": [{"content": "x"}]}),
    (COMPLETIONS, {"prompt": []}),
    (COMPLETIONS, {"prompt": {"a": 1}}),
    (COMPLETIONS, {"best_of": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields"), FITTING)
def test_what_is_answered_fits_its_schema(path: str, fields: dict[str, Any]) -> None:
    body = BODIES[path] | fields
    jsonschema.validate(body, request_bodies(LimitsConfig())[path])
    with client_of(ScriptedModel()) as client:
        assert client.post(path, json=body).status_code == 200, json.dumps(body)


@pytest.mark.parametrize(("path", "fields"), NOT_FITTING)
def test_what_does_not_fit_its_schema_is_refused(path: str, fields: dict[str, Any]) -> None:
    body = {"model": MODEL} | BODIES[path] | fields
    assert not jsonschema.Draft202012Validator(request_bodies(LimitsConfig())[path]).is_valid(body)
    with client_of() as client:
        assert client.post(path, json=body).status_code == 400, json.dumps(body)
