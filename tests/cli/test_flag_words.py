"""What is wrong with a request is said in flags: nobody on a command line has written a field."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from twostroke.cli.app import main
from twostroke.cli.flag_words import FIELDS, flag_of, in_flags, told_in_flags
from twostroke.errors import CapacityError, ConfigError, ParamsError, PromptError, RequestError
from twostroke.params import BeamSearch, SamplingParams
from twostroke.structure import Structure, StructureKind


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
        (SamplingParams, {"min_tokens": 9, "max_tokens": 3}, "--min-tokens is 9: --max-tokens is 3, it must not"),
        (
            SamplingParams,
            {"temperature": 1.0, "mirostat_tau": 3.0, "top_k": 3, "xtc_probability": 0.5},
            (
                "--mirostat-tau is set beside --top-k, xtc: mirostat chooses by itself how many tokens stay; "
                "leave them out, or --mirostat-tau"
            ),
        ),
        (
            SamplingParams,
            {"ignore_eos": True, "structure": Structure(kind=StructureKind.REGEX, source="a")},
            "--ignore-eos is True: a grammar says where the answer ends, leave out --ignore-eos or --structure",
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


USER_TEXTS = (
    "x min_tokens (",
    "a top_p\nmax_tokens (\n temperature",
    "my max_tokens/top_k.json",
    "leave out top_p or beam",
    "leave tools out",
    " is 1: max_tokens is 3, it must not be more",
    "structure of kind regex is refused",
    "a context of at least 12, beside tools",
)


@pytest.mark.parametrize("text", USER_TEXTS)
def test_what_a_user_wrote_stays_as_it_is(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = f"invalid pattern {text}, or '{text}'"
    for field, ours, words in (
        ("structure", f"structure of kind regex is refused: {shown}", f"--regex is refused: {shown}"),
        ("tools", f"tools is refused: structure of kind lark is refused: {shown}", None),
        ("stop_regex", f"stop_regex has {shown}: a group is open", f"--stop-regex has {shown}: a group is open"),
        (
            f"chat_template_kwargs.{text}",
            f"chat_template_kwargs.{text} is refused",
            f"--template-kwargs.{text} is refused",
        ),
        ("tool_choice", f"tool_choice is {shown}: it must be {text}", f"--tool-choice is {shown}: it must be {text}"),
    ):
        with pytest.raises(ParamsError) as caught, told_in_flags({"structure": "--regex"}):
            raise ParamsError(ours, field=field)
        assert str(caught.value) == (words or f"--tools is refused: structure is refused: {shown}")
        assert in_flags(caught.value) == str(caught.value)
    named = f"--json-schema {text}"
    with pytest.raises(ParamsError) as caught, told_in_flags({"structure": named}):
        raise ParamsError(f"structure of kind json_schema is refused: {text}", field="structure")
    assert in_flags(caught.value) == f"{named} is refused: {text}"
    assert said(SamplingParams, stop=(text, "")).startswith("--stop has an empty text")
    assert repr(f"({text}") in said(SamplingParams, stop_regex=(f"({text}",))
    words = said(SamplingParams, bad_words=(text,), beam=BeamSearch(width=2))
    assert words.startswith(f"--bad-word is {(text,)!r}: beam search")
    assert words.endswith("; leave out --bad-word or --beams")
    path = tmp_path / text.replace("/", "_")
    assert main(["run", "-m", "none", "--grammar", str(path), "hi"]) == 2
    assert " ".join(str(path).split()) in capsys.readouterr().err


def test_what_is_no_field_stays() -> None:
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
        (
            "tools",
            (
                "tools is refused: this model's chat template writes calls in a form this program does not read; "
                "leave tools out"
            ),
            (
                "--tools is refused: this model's chat template writes calls in a form this program does not read; "
                "leave --tools out"
            ),
        ),
        (
            "tool_choice",
            "tool_choice asks for a call and there are no tools: send tools",
            "--tool-choice asks for a call and there are no --tools: send --tools",
        ),
        (
            "prompt_logprobs",
            "prompt_logprobs is 9: 3 x 10 = 30 scores, the limit is 9: prompt_logprobs of at most 3 fits",
            "--prompt-logprobs is 9: 3 x 10 = 30 scores, the limit is 9: --prompt-logprobs of at most 3 fits",
        ),
        ("dimensions", "dimensions is 8: leave it out", "--dimensions is 8: leave it out"),
        (
            "reasoning_effort",
            "reasoning_effort and chat_template_kwargs say the same: send one of them",
            "--reasoning-effort and --template-kwargs say the same: send one of them",
        ),
    ],
)
def test_fields_beside_the_params_have_flags_too(field: str, text: str, words: str) -> None:
    assert in_flags(ParamsError(text, field=field)) == words
    assert in_flags(ParamsError(words, field=field)) == words  # once said in flags it stays


def test_what_does_not_fit_is_told_in_flags_whatever_field_is_to_blame() -> None:
    error = CapacityError("3 + max_tokens of 9 = 12, the context is 10: a context of at least 12 fits")
    assert in_flags(error) == "3 + --max-tokens of 9 = 12, the context is 10: a --context of at least 12 fits"
    error = CapacityError("prompt of 3 tokens + max_tokens 9: max_tokens of at most 7 fits, max_tokens_x 3 not")
    assert in_flags(error) == "prompt of 3 tokens + --max-tokens 9: --max-tokens of at most 7 fits, max_tokens_x 3 not"
    assert in_flags(ConfigError("kv is 'x': it must be one of f32", field="kv")) == "--kv is 'x': it must be one of f32"


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("structure", "structure of kind regex is refused: x", "--regex is refused: x"),
        (
            "structure",
            "structure is given beside tools: an answer has one form, leave one of them out",
            "--regex is given beside --tools: an answer has one form, leave one of them out",
        ),
        (
            "ignore_eos",
            "ignore_eos is True: a grammar says where the answer ends, leave out ignore_eos or structure",
            "--ignore-eos is True: a grammar says where the answer ends, leave out --ignore-eos or --regex",
        ),
        (
            "temperature",
            (
                "temperature is 0.2: beam search finds the likeliest answer and has no use for it; "
                "leave out temperature or beam"
            ),
            (
                "--preset code: temperature is 0.2: beam search finds the likeliest answer and has no use for it; "
                "leave out --preset code or --beams"
            ),
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
