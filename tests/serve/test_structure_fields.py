"""Structured output as clients write it: OpenAI's response_format and vLLM's structured_outputs."""

import json
from typing import Any

import pytest

from tests.serve.serve_builders import MODEL, ScriptedModel, client_of, error_of, make_chat, make_completion
from twostroke.errors import ParamsError
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import read_wish
from twostroke.structure import Structure, StructureKind

SCHEMA = {"type": "object", "properties": {"ä": {"type": "integer"}}}


def read(**fields: Any) -> Structure | None:
    wish = read_wish(
        make_chat(**fields), is_chat=True, models=[MODEL], limits=LimitsConfig(), defaults=SamplingParams()
    )
    return wish.params.structure


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    return caught.value


@pytest.mark.parametrize("wish", [None, {"type": "text"}])
def test_text_is_no_structure(wish: Any) -> None:
    assert read(response_format=wish) is None


def test_a_response_format_is_an_object_or_a_schema() -> None:
    assert read(response_format={"type": "json_object"}) == Structure(kind=StructureKind.JSON_OBJECT)
    named = {"name": "x", "schema": SCHEMA, "strict": True, "description": None}
    found = read(response_format={"type": "json_schema", "json_schema": named})
    assert found is not None
    assert found.kind is StructureKind.JSON_SCHEMA
    assert json.loads(found.source) == SCHEMA
    assert "ä" in found.source


@pytest.mark.parametrize(
    ("wish", "kind", "source", "choices"),
    [
        ({"regex": "a+"}, StructureKind.REGEX, "a+", ()),
        ({"grammar": 'start: "a"'}, StructureKind.LARK, 'start: "a"', ()),
        ({"choice": ["a", "b"]}, StructureKind.CHOICE, "", ("a", "b")),
        ({"json": "{}"}, StructureKind.JSON_SCHEMA, "{}", ()),
        ({"json": {}, "regex": None}, StructureKind.JSON_SCHEMA, "{}", ()),
    ],
)
def test_structured_outputs_are_one_of_four(
    wish: Any, kind: StructureKind, source: str, choices: tuple[str, ...]
) -> None:
    assert read(structured_outputs=wish) == Structure(kind=kind, source=source, choices=choices)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": ["text"]}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}},
            "response_format.json_schema.strict",
        ),
        ({"response_format": {"type": "json_object", "x": 1}}, "response_format.x"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "a" * 70_000}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "a", "x": 1}}, "structured_outputs.x"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
        ({"response_format": {"type": "json_object"}, "min_tokens": 3}, "min_tokens"),
    ],
)
def test_other_wishes_are_refused_at_their_place(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert (error.status, error.param) == (400, param)


def test_what_the_compiler_refuses_is_a_400_before_any_event() -> None:
    refuse = ParamsError("structure of kind json_schema is refused: type is unknown", field="structure")
    with client_of(ScriptedModel(refuse=refuse)) as client:
        for is_stream in (True, False):
            for name, wish in (("response_format", {"type": "json_object"}), ("structured_outputs", {"regex": "a"})):
                fields = make_completion(**{name: wish}, stream=is_stream)
                response = client.post("/v1/completions", json=fields)
                assert response.status_code == 400
                assert error_of(response)["param"] == name
