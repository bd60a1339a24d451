"""What is wrong with a request is said in flags: nobody on a command line has written a field."""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from twostroke.cli.flag_words import FIELDS, flag_of, in_flags
from twostroke.errors import ParamsError
from twostroke.params import BeamSearch, SamplingParams


def said(make: Callable[..., object], **wishes: Any) -> str:
    with pytest.raises(ParamsError) as caught:
        make(**wishes)
    error = in_flags(caught.value)
    assert error.field == caught.value.field
    return str(error)


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
    error = in_flags(ParamsError("top_p is 2: no_field and --min-p stay, dry_base does not", field="top_p"))
    assert str(error) == "--top-p is 2: no_field and --min-p stay, --dry-base does not"


def test_every_field_has_a_flag_of_small_letters() -> None:
    assert {each.name for each in fields(SamplingParams)} < FIELDS
    assert all(re.fullmatch(r"--[a-z]+(-[a-z]+)*", flag_of(each)) for each in FIELDS)
