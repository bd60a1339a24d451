"""Names as Ollama's clients write them."""

from typing import Any

import pytest

from tests.serve.serve_builders import MODEL, ScriptedLoader, ScriptedModel, registry_of
from twostroke.errors import ModelFileError
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelEntry
from twostroke.serve.ollama.names import find_model, known_model, take_name
from twostroke.serve.told import defaults_of


def registry() -> ModelRegistry:
    return registry_of(ScriptedModel(), aliases=["mine", "org/other:latest"])


@pytest.mark.parametrize(
    ("wished", "found"),
    [
        (MODEL, MODEL),
        ("mine", "mine"),
        ("mine:latest", "mine"),
        ("org/other", "org/other:latest"),
        ("org/other:latest", "org/other:latest"),
        ("scripted", None),
        ("scripted:latest", None),
        ("Mine", None),
        ("../mine", None),
        ("", None),
        (":latest", None),
    ],
)
def test_latest_is_the_tag_nobody_writes(wished: str, found: str | None) -> None:
    models = registry()
    assert find_model(wished, models) == (None if found is None else (found, models.first))


def test_an_unknown_model_is_a_404_that_lists_the_served() -> None:
    with pytest.raises(ApiError, match=r"model 'other' not found: this server has scripted:1m, mine") as caught:
        known_model("other", registry())
    assert caught.value.status == 404


def test_settings_that_cannot_be_read_are_told_without_folders() -> None:
    class Unreadable(ScriptedLoader):
        def default_params(self, source: str) -> SamplingParams:
            raise ModelFileError("/home/me/params", "it is no JSON")

    models = ModelRegistry([ModelEntry(("a",), "a")], loader=Unreadable({}), free_bytes=lambda: 0)
    with pytest.raises(ApiError, match="it is no JSON") as caught:
        defaults_of(models.first, models)
    assert "/home" not in str(caught.value)


def test_name_is_an_older_word_for_model() -> None:
    for values in ({"model": "a"}, {"name": "a"}, {"model": "a", "name": "a"}, {"model": None, "name": "a"}):
        assert take_name(Fields(values)) == "a"


@pytest.mark.parametrize(
    "values", [{}, {"model": ""}, {"model": None}, {"model": 5}, {"name": []}, {"model": "a", "name": "b"}]
)
def test_there_must_be_one_name(values: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=r"model|name") as caught:
        take_name(Fields(values))
    assert caught.value.status == 400
