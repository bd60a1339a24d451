"""Every option: what it becomes, what may be said without changing anything, and what is refused by name."""

from typing import Any

import pytest

from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields
from twostroke.serve.ollama.options import HARMLESS_OPTIONS, Options, limit_of, read_options


def read(options: Any, defaults: SamplingParams | None = None) -> Options:
    fields = Fields({"options": options})
    read = read_options(fields, defaults or SamplingParams())
    fields.end()
    fields.refuse_unknown()
    return read


def refusal(options: Any, **defaults: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(options, SamplingParams(**defaults))
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("options", "params"),
    [
        ({"temperature": 0.7}, {"temperature": 0.7}),
        ({"top_k": 40}, {"top_k": 40}),
        ({"top_k": 40.0}, {"top_k": 40}),
        ({"top_k": 0}, {"top_k": 0}),
        ({"top_p": 0.9}, {"top_p": 0.9}),
        ({"min_p": 0.05}, {"min_p": 0.05}),
        ({"seed": 7}, {"seed": 7}),
        ({"seed": 0}, {"seed": 0}),
        ({"seed": -1}, {"seed": None}),
        ({"num_predict": 9}, {"max_tokens": 9}),
        ({"stop": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"stop": []}, {}),
        ({"repeat_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({"repeat_penalty": 1.1, "repeat_last_n": -1}, {"repetition_penalty": 1.1}),
        ({"repeat_penalty": 1.1, "repeat_last_n": 64}, {"repetition_penalty": 1.1, "penalty_last_n": 64}),
        ({"repeat_last_n": 0}, {"penalty_last_n": 0}),
        ({"typical_p": 0.9, "temperature": 1}, {"typical_p": 0.9, "temperature": 1}),
        ({"typical_p": 1}, {"typical_p": 1}),
        ({"mirostat": 0, "mirostat_tau": 3.0, "mirostat_eta": 0.2}, {}),
        ({"mirostat_tau": 3.0}, {}),
        ({"mirostat": 2, "temperature": 1}, {"mirostat_tau": 5.0, "temperature": 1}),
        (
            {"mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.2, "temperature": 1},
            {"mirostat_tau": 3, "mirostat_eta": 0.2, "temperature": 1},
        ),
        ({"presence_penalty": 0.5, "frequency_penalty": -0.5}, {"presence_penalty": 0.5, "frequency_penalty": -0.5}),
        ({}, {}),
        (None, {}),
        ({"temperature": None, "stop": None}, {}),
    ],
)
def test_options_become_params(options: Any, params: dict[str, Any]) -> None:
    assert read(options) == Options(params=SamplingParams(**params))


def test_absent_options_are_the_models_own() -> None:
    own = SamplingParams(temperature=0.6, top_k=20, max_tokens=99, seed=3)
    assert read({"top_k": 5}, own).params == SamplingParams(temperature=0.6, top_k=5, max_tokens=99, seed=3)
    assert read({"seed": -1}, own).params.seed is None


def test_stop_strings_come_beside_the_models_own() -> None:
    own = SamplingParams(stop=("<end>",))
    assert read({"stop": ["Obs", "<end>"]}, own).params.stop == ("<end>", "Obs")
    assert read({"stop": []}, own).params.stop == ("<end>",)


@pytest.mark.parametrize("value", [-1, -2])
def test_an_answer_may_fill_the_context(value: int) -> None:
    assert read({"num_predict": value}) == Options(params=SamplingParams(), fills_context=True)


@pytest.mark.parametrize(
    ("options", "param", "told"),
    [
        ({"num_predict": 0}, "options.num_predict", "at least 1, -1 or -2 for an answer that may fill the context"),
        ({"num_predict": -3}, "options.num_predict", "at least 1"),
        ({"num_predict": 1.5}, "options.num_predict", "whole number"),
        ({"num_predict": "9"}, "options.num_predict", "a number"),
        ({"temperature": -1}, "options.temperature", "0 or more"),
        ({"temperature": True}, "options.temperature", "a number"),
        ({"top_p": 0}, "options.top_p", "above 0"),
        ({"top_k": 1.5}, "options.top_k", "whole number"),
        ({"repeat_penalty": 0}, "options.repeat_penalty", "above 0"),
        ({"seed": 1.5}, "options.seed", "whole number"),
        ({"stop": "a"}, "options.stop", "an array"),
        ({"stop": [5]}, "options.stop", "must be a string"),
        ({"stop": [""]}, "options.stop", "empty"),
        ({"repeat_last_n": -2}, "options.repeat_last_n", "from -1"),
        ({"num_ctx": 0}, "options.num_ctx", "from 1"),
        ({"mirostat": 1}, "options.mirostat", "send 2"),
        ({"mirostat": 3}, "options.mirostat", "from 0 to 2"),
        ({"mirostat": 2}, "options.mirostat_tau", "temperature is 0"),
        ({"mirostat": 2, "temperature": 1, "mirostat_tau": 0}, "options.mirostat_tau", "above 0"),
        ({"mirostat": 2, "temperature": 1, "mirostat_eta": 2}, "options.mirostat_eta", "at most 1"),
        ({"mirostat": 2, "temperature": 1, "top_k": 40}, "options.mirostat_tau", "beside top_k"),
        ({"typical_p": 0.9}, "options.typical_p", "temperature is 0"),
        ({"typical_p": 0}, "options.typical_p", "above 0"),
        ({"tfs_z": 0.5}, "options.tfs_z", "not done here"),
        ({"penalize_newline": False}, "options.penalize_newline", "like any token"),
        ({"num_thread": "4"}, "options.num_thread", "whole number"),
        ({"use_mmap": 1}, "options.use_mmap", "flag"),
        ({"logits_all": True}, "options.logits_all", "does not honour"),
        ({"embedding_only": True}, "options.embedding_only", "does not honour"),
        ([], "options", "an object"),
        ("x", "options", "an object"),
    ],
)
def test_what_cannot_be_honoured_is_named_with_its_limit(options: Any, param: str, told: str) -> None:
    error = refusal(options)
    assert error.param == param
    assert told in str(error)
    assert str(error).startswith(param)


def test_mirostat_takes_the_place_of_the_models_own_filters() -> None:
    own = SamplingParams(temperature=0.6, top_k=20, top_p=0.9, min_p=0.05, repetition_penalty=1.1)
    expected = SamplingParams(temperature=0.6, repetition_penalty=1.1, mirostat_tau=5.0)
    assert read({"mirostat": 2}, own).params == expected


def test_unknown_options_are_listed_all_at_once() -> None:
    error = refusal({"temprature": 1, "foo": None, "num_gqa": 8})
    assert str(error).startswith("options.temprature, options.foo, options.num_gqa are refused")


@pytest.mark.parametrize(
    "options",
    [
        {"num_thread": 8, "num_batch": 512, "num_gpu": 0, "main_gpu": 1},
        {"numa": False, "low_vram": True, "use_mmap": True, "use_mlock": False},
        {"num_keep": 4, "tfs_z": 1.0, "penalize_newline": True, "mirostat": 0},
        {"logits_all": False, "vocab_only": False, "embedding_only": False},
    ],
)
def test_what_changes_no_answer_is_taken(options: dict[str, Any]) -> None:
    assert read(options) == Options(params=SamplingParams())


def test_every_harmless_option_is_documented(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs" / "serving.md").read_text(encoding="utf-8")
    assert [option.name for option in HARMLESS_OPTIONS if f"`{option.name}" not in page] == []


def test_a_context_beyond_the_loaded_one_is_refused_with_the_way_out() -> None:
    assert limit_of(read({}), 4096) == 4096
    assert limit_of(read({"num_ctx": 2048}), 4096) == 2048
    with pytest.raises(ApiError, match=r"8192: the model was loaded with a context of 4096.*--context 8192"):
        limit_of(read({"num_ctx": 8192}), 4096)


def test_the_options_that_are_honoured_are_listed_and_not_the_fields_around_them() -> None:
    _, _, listed = str(refusal({"foo": 1})).partition("(honoured in options: ")
    names = listed.rstrip(")").split(", ")
    assert names == sorted(names)
    assert {"seed", "num_predict", "num_ctx", "stop", "mirostat", "temperature"} < set(names)
    assert not {"options", "model", "stream"} & set(names)
