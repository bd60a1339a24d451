"""What is wrong with a request is said in flags: nobody on a command line has written a field."""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from twostroke.cli.flag_words import FIELDS, flag_of, in_flags, told_in_flags
from twostroke.errors import CapacityError, ConfigError, ParamsError, PromptError, RequestError
from twostroke.params import BeamSearch, SamplingParams


def said(make: Callable[..., object], **wishes: Any) -> str:
    with pytest.raises(ParamsError) as caught:
        make(**wishes)
    return in_flags(caught.value)


@pytest.mark.parametrize(
    ("make", "wishes", "words"),
    [
        (SamplingParams, {"top_k": -3}, "--top-k is -3: it must be at least -1"),
        (
            SamplingParams,
            {"mirostat_tau": 3.0},
            (
                "--mirostat-tau is set and temperature is 0, which takes the likeliest token: raise the temperature, "
                "or leave out --mirostat-tau"
            ),
        ),
        (
            SamplingParams,
            {"temperature": 1.0, "beam": BeamSearch(width=4)},
            (
                "--temperature is 1.0: beam search finds the likeliest answer and has no use for it; "
                "leave out --temperature or --beams"
            ),
        ),
        (BeamSearch, {"width": 0}, "--beams is 0: "),
        (SamplingParams, {"bad_words": ("",)}, "--bad-word has "),
    ],
)
def test_fields_are_said_as_flags(make: Callable[..., object], wishes: dict[str, Any], words: str) -> None:
    assert said(make, **wishes).startswith(words)


def test_names_of_samplers_are_values_and_stay() -> None:
    words = said(SamplingParams, sampler_order=("top_q",))
    assert words.startswith("--sampler-order has 'top_q': it must be one of ")
    assert "top_k" in words
    assert "--top-k" not in words


def test_what_is_no_field_stays() -> None:
    """What a user wrote has no part in it: values stand in quotes, files behind a slash."""
    error = ParamsError("top_p is 'top_k': no_field, /a/top_k.gguf, --min-p stay, dry_base not", field="top_p")
    assert in_flags(error) == "--top-p is 'top_k': no_field, /a/top_k.gguf, --min-p stay, --dry-base not"
    for stays in (
        ParamsError("model.gguf is a model that embeds", field="model"),
        PromptError("the prompt is empty: max_tokens"),
        RequestError("top_k is 3"),
        ConfigError("TWOSTROKE_HOME is empty: name a folder"),
    ):
        assert in_flags(stays) == str(stays)


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("stop_token_ids", "stop_token_ids has 9: the", "--stop-token-id has 9: the"),
        ("chat_template_kwargs.a", "chat_template_kwargs.a is refused", "--template-kwargs.a is refused"),
        ("tools[0].function", "tools[0].function must be an object", "--tools[0].function must be an object"),
        (
            "tools",
            "tools is refused: structure of kind lark is refused: x",
            "--tools is refused: structure is refused: x",
        ),
        ("tools", "tools is refused: leave tools out", "--tools is refused: leave --tools out"),
        ("dimensions", "dimensions is 8: leave it out", "--dimensions is 8: leave it out"),
        (
            "reasoning_effort",
            "reasoning_effort and chat_template_kwargs say the same",
            "--reasoning-effort and --template-kwargs say the same",
        ),
    ],
)
def test_fields_beside_the_params_have_flags_too(field: str, text: str, words: str) -> None:
    assert in_flags(ParamsError(text, field=field)) == words
    assert in_flags(ParamsError(words, field=field)) == words  # once said in flags it stays


def test_what_does_not_fit_is_told_in_flags_whatever_field_is_to_blame() -> None:
    error = CapacityError("3 + max_tokens of 9 = 12, the context is 10: a context of at least 12 fits")
    assert in_flags(error) == "3 + --max-tokens of 9 = 12, the context is 10: a --context of at least 12 fits"
    assert in_flags(ConfigError("kv is 'x': it must be one of f32", field="kv")) == "--kv is 'x': it must be one of f32"


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("structure", "structure of kind regex is refused: x", "--regex is refused: x"),
        ("structure", "structure is given beside tools: an answer", "--regex is given beside --tools: an answer"),
        (
            "ignore_eos",
            "ignore_eos is True: leave out ignore_eos or structure",
            "--ignore-eos is True: leave out --ignore-eos or --regex",
        ),
        (
            "temperature",
            "temperature is 0.2: leave out temperature or beam",
            "--preset code: temperature is 0.2: leave out --preset code or --beams",
        ),
    ],
)
def test_a_field_that_was_written_otherwise_is_called_so(field: str, text: str, words: str) -> None:
    named = {"structure": "--regex", "temperature": "--preset code"}
    with pytest.raises(PromptError) as caught, told_in_flags(named):
        raise PromptError(text, field=field)
    assert str(caught.value) == words
    assert in_flags(caught.value) == words


def test_every_field_has_a_flag_of_small_letters() -> None:
    assert {each.name for each in fields(SamplingParams)} < FIELDS
    assert all(re.fullmatch(r"--[a-z]+(-[a-z]+)*", flag_of(each)) for each in FIELDS)
