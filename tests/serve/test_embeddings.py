"""/v1/embeddings over a scripted model, whose vector of a prompt is its length and a half."""

import base64
from typing import Any

import numpy as np
import pytest

from tests.serve.serve_builders import MODEL, ScriptedModel, client_of, error_of
from twostroke.core.sequence import FinishReason
from twostroke.embedding import EmbeddingParams
from twostroke.errors import CapacityError, ParamsError
from twostroke.serve.limits import LimitsConfig

EMBEDDINGS = "/v1/embeddings"


def make_embeddings(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": "hi", **fields}


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("hi", ["hi"]),
        (["hi", "there"], ["hi", "there"]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2, 3], [4]], [[1, 2, 3], [4]]),
    ],
)
def test_every_form_of_input_has_a_vector_each_in_its_order(given: Any, prompts: list[Any]) -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        body = client.post(EMBEDDINGS, json=make_embeddings(input=given, user="me")).json()
    assert model.prompts == prompts
    assert body == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": [len(prompt), 0.5]}
            for index, prompt in enumerate(prompts)
        ],
        "model": MODEL,
        "usage": {"prompt_tokens": sum(map(len, prompts)), "total_tokens": sum(map(len, prompts))},
    }
    assert model.embedding_params == [EmbeddingParams()] * len(prompts)


def test_base64_is_the_same_numbers_as_little_endian_floats() -> None:
    with client_of() as client:
        body = client.post(EMBEDDINGS, json=make_embeddings(encoding_format="base64")).json()
        told = client.post(EMBEDDINGS, json=make_embeddings(encoding_format="float")).json()
    raw = base64.b64decode(body["data"][0]["embedding"])
    assert np.frombuffer(raw, "<f4").tolist() == told["data"][0]["embedding"]


def test_dimensions_and_salt_reach_the_model() -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        assert client.post(EMBEDDINGS, json=make_embeddings(dimensions=64, cache_salt="tenant")).status_code == 200
    assert (model.embedding_params, model.salts) == ([EmbeddingParams(dimensions=64)], ["tenant"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": {"text": "hi"}}, "input"),
        ({"input": ["hi", 7]}, "input[1]"),
        ({"input": [[1], "hi"]}, "input[1]"),
        ({"input": [[1], []]}, "input[1]"),
        ({"input": ["x"] * 9}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"encoding_format": 1}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": -1}, "dimensions"),
        ({"dimensions": 1.5}, "dimensions"),
        ({"dimensions": 2**63}, "dimensions"),
        ({"user": 1}, "user"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"temperature": 0.5}, "temperature"),
        ({"stream": True}, "stream"),
    ],
)
def test_other_wishes_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    model = ScriptedModel()
    with client_of(model, limits=LimitsConfig(max_inputs=8)) as client:
        response = client.post(EMBEDDINGS, json=make_embeddings(**fields))
    assert (response.status_code, error_of(response)["param"]) == (400, param)
    assert model.prompts == []


def test_another_model_is_a_404() -> None:
    with client_of() as client:
        response = client.post(EMBEDDINGS, json=make_embeddings(model="../x"))
    assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("refuse", "param", "code"),
    [
        (ParamsError(f"{MODEL} is a model that writes", field="model"), "model", None),
        (ParamsError("dimensions is 3: they have 2", field="dimensions"), "dimensions", None),
        (CapacityError("70 prompt tokens, the context is 64"), "input", "context_length_exceeded"),
    ],
)
def test_what_the_model_refuses_is_a_400_that_names_the_field(refuse: Exception, param: str, code: str | None) -> None:
    with client_of(ScriptedModel(refuse=refuse)) as client:
        response = client.post(EMBEDDINGS, json=make_embeddings(input=["a", "b"]))
    assert response.status_code == 400
    assert (error_of(response)["param"], error_of(response)["code"]) == (param, code)


def test_a_text_that_fails_is_a_500_and_no_vector_of_others_is_told() -> None:
    with client_of(ScriptedModel(reason=FinishReason.ERROR, error="a value is not finite")) as client:
        response = client.post(EMBEDDINGS, json=make_embeddings(input=["a", "b"]))
    assert response.status_code == 500
    assert error_of(response)["message"] == "a value is not finite"


def test_requests_have_ids_records_and_deadlines_like_all_others() -> None:
    model = ScriptedModel(reason=FinishReason.STOP)
    with client_of(model) as client:
        response = client.post(EMBEDDINGS, json=make_embeddings(input=["a", "b"]))
        request_id = response.headers["x-request-id"]
        assert request_id.startswith("embd-")
        record = client.get(f"/v1/requests/{request_id}").json()
        assert [answer["usage"]["completion_tokens"] for answer in record["answers"]] == [0, 0]
        model.pause_s = 10.0
        late = client.post(EMBEDDINGS, json=make_embeddings(timeout_s=0.05))
    assert (late.status_code, error_of(late)["code"]) == (499, "deadline")
