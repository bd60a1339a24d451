from typing import Any

import pytest

from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields
from twostroke.serve.sampler_fields import sampler_schemas, take_samplers


def taken(body: dict[str, Any]) -> dict[str, Any]:
    wishes: dict[str, Any] = {}
    take_samplers(Fields(body), wishes)
    return wishes


def test_every_field_reaches_the_wish_of_its_name() -> None:
    body = {name: 1 for name in sampler_schemas()} | {
        "dry_sequence_breakers": ["x"],
        "sampler_order": ["top_k"],
        "bad_words": ["a", [1, 2]],
    }
    lists = {"dry_sequence_breakers": ("x",), "sampler_order": ("top_k",), "bad_words": ("a", (1, 2))}
    assert taken(body) == body | lists
    assert set(body) <= {field.name for field in SamplingParams.__dataclass_fields__.values()}


def test_null_is_absent_and_zero_is_not() -> None:
    assert taken({"mirostat_tau": None, "bad_words": None, "sampler_order": None}) == {}
    assert taken({"xtc_threshold": 0}) == {"xtc_threshold": 0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("typical_p", "x"),
        ("typical_p", True),
        ("sampler_order", "top_k"),
        ("dry_sequence_breakers", "x"),
        ("bad_words", "x"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ApiError) as refused:
        taken({name: value})
    assert refused.value.param == name


def test_a_bad_word_of_another_kind_is_named_by_its_place() -> None:
    with pytest.raises(ApiError, match=r"bad_words\[1\]"):
        taken({"bad_words": ["a", 5]})
