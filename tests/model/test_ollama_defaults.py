"""An Ollama model's settings in our words: what counts, what is said not to count, what is a mistake."""

import logging
from pathlib import Path
from typing import Any

import pytest

from twostroke.errors import ModelFileError
from twostroke.model.defaults import ModelDefaults
from twostroke.model.ollama_defaults import FIELDS, ollama_defaults
from twostroke.model.ollama_store import OllamaModel
from twostroke.params import SamplingParams


def defaults_of(*, template: str | None = None, system: str | None = None, **parameters: Any) -> ModelDefaults:
    return ollama_defaults(
        OllamaModel(name="tiny", path=Path("x.gguf"), template=template, system=system, parameters=parameters)
    )


def test_a_model_that_wishes_nothing_has_ours() -> None:
    assert defaults_of() == ModelDefaults()
    assert defaults_of().params == SamplingParams()


@pytest.mark.parametrize(
    ("name", "value", "field", "meaning"),
    [
        ("temperature", 0.5, "temperature", 0.5),
        ("temperature", 0, "temperature", 0),
        ("top_k", 20, "top_k", 20),
        ("top_p", 0.9, "top_p", 0.9),
        ("min_p", 0.05, "min_p", 0.05),
        ("repeat_penalty", 1.1, "repetition_penalty", 1.1),
        ("repeat_last_n", 64, "penalty_last_n", 64),
        ("presence_penalty", 1.5, "presence_penalty", 1.5),
        ("frequency_penalty", 0.25, "frequency_penalty", 0.25),
        ("seed", 7, "seed", 7),
        ("num_predict", 99, "max_tokens", 99),
        ("stop", ["</s>", "User:"], "stop", ("</s>", "User:")),
        ("stop", "</s>", "stop", ("</s>",)),
    ],
)
def test_a_parameter_counts_and_leaves_the_others_alone(
    name: str, value: Any, field: str, meaning: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert defaults_of(**{name: value}).params == SamplingParams(**{field: meaning})
    assert not caplog.records


def test_every_parameter_named_is_a_field_of_ours() -> None:
    for field in FIELDS.values():
        assert hasattr(SamplingParams(), field)


def test_a_negative_seed_is_no_seed(caplog: pytest.LogCaptureFixture) -> None:
    assert defaults_of(seed=-1).params.seed is None
    assert not caplog.records


def test_context_and_system_text_count() -> None:
    defaults = defaults_of(num_ctx=4096, system="Be brief.")
    assert (defaults.context, defaults.system) == (4096, "Be brief.")
    assert defaults_of(system="").system is None


def test_what_has_no_counterpart_is_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        defaults = defaults_of(mirostat=2, temperature=0.5, num_predict=-1, num_thread=8)
    assert defaults.params == SamplingParams(temperature=0.5)
    (record,) = caplog.records
    assert record.getMessage() == (
        "ollama:tiny sets what has no counterpart here and is not applied: mirostat 2, num_predict -1, num_thread 8"
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("temperature", -1, r"its parameter temperature is -1: it must be a finite number, 0 or more"),
        ("temperature", "warm", "its parameter temperature is 'warm': it must be a number"),
        ("repeat_penalty", 0, "its parameter repeat_penalty is 0: it must be a finite number above 0"),
        ("num_predict", 0, "its parameter num_predict is 0: it must be at least 1"),
        ("top_k", 1.5, "its parameter top_k is 1.5: it must be a whole number"),
        ("stop", [1], "its parameter stop has "),
        ("stop", [""], "its parameter stop has "),
        ("stop", ["a"] * 17, "its parameter stop has 17 strings: the limit is 16"),
        ("num_ctx", 0, "its parameter num_ctx is 0: it must be at least 1"),
        ("num_ctx", "big", "its parameter num_ctx is 'big'"),
        ("num_ctx", True, "its parameter num_ctx is True"),
    ],
)
def test_a_value_that_means_nothing_names_model_parameter_and_limit(name: str, value: Any, words: str) -> None:
    with pytest.raises(ModelFileError, match=f"^ollama:tiny: {words}"):
        defaults_of(**{name: value})


def test_a_template_in_go_says_why_there_is_none() -> None:
    assert defaults_of().why_no_template is None
    why = defaults_of(template="{{ .Prompt }}").why_no_template
    assert why is not None
    assert "Go" in why
    assert "--raw" in why


def test_layers_that_are_not_read_are_named(caplog: pytest.LogCaptureFixture) -> None:
    ollama_defaults(OllamaModel(name="tiny", path=Path("x.gguf"), unread=("messages",)))
    assert caplog.messages == [
        "ollama:tiny has layers that are not read here: messages; answers may differ from Ollama's"
    ]
