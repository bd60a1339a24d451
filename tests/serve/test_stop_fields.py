"""Where an answer ends, as clients write it, and what the reply says about it."""

from typing import Any

import pytest

from tests.serve.serve_builders import MODEL, ScriptedModel, client_of, error_of, make_chat, make_completion
from twostroke.params import MAX_STOP_PATTERNS, SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import read_wish

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def params_of(fields: dict[str, Any]) -> SamplingParams:
    is_chat = "messages" in fields
    wish = read_wish(fields, is_chat=is_chat, models=[MODEL], limits=LimitsConfig(), defaults=SamplingParams())
    return wish.params


@pytest.mark.parametrize("make", [make_chat, make_completion])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stop": "a"}, {"stop": ("a",)}),
        ({"stop": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"stop_regex": r"\n+"}, {"stop_regex": (r"\n+",)}),
        ({"stop_regex": ["a+", "b+"]}, {"stop_regex": ("a+", "b+")}),
        ({"include_stop_str_in_output": True}, {"include_stop": True}),
        ({"include_stop_str_in_output": False, "stop": [], "stop_regex": None}, {}),
    ],
)
def test_stops_are_read(make: Any, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert params_of(make(**fields)) == SamplingParams(**expected)


def test_stop_strings_of_the_model_stay_whatever_is_asked() -> None:
    defaults = SamplingParams(stop=("<end>", "b"))
    for stop, expected in (("a", ("<end>", "b", "a")), (["b", "c"], ("<end>", "b", "c")), ([], ("<end>", "b"))):
        fields = make_chat(stop=stop)
        wish = read_wish(fields, is_chat=True, models=[MODEL], limits=LimitsConfig(), defaults=defaults)
        assert wish.params.stop == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": 5}, "stop"),
        ({"stop": [5]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop_regex": {"a": 1}}, "stop_regex"),
        ({"stop_regex": [None]}, "stop_regex"),
        ({"stop_regex": "(a"}, "stop_regex"),
        ({"stop_regex": "a*"}, "stop_regex"),
        ({"stop_regex": ["a"] * (MAX_STOP_PATTERNS + 1)}, "stop_regex"),
        ({"include_stop_str_in_output": 1}, "include_stop_str_in_output"),
    ],
)
def test_what_is_no_stop_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    for make in (make_chat, make_completion):
        with pytest.raises(ApiError) as caught:
            params_of(make(**fields))
        assert (caught.value.status, caught.value.param) == (400, param)
        assert str(caught.value).startswith(param)


def test_every_choice_says_which_stop_it_met() -> None:
    for stop_reason in ("###", 7, None):
        with client_of(ScriptedModel(stop_reason=stop_reason)) as client:
            for route, body in ((CHAT, make_chat()), (COMPLETIONS, make_completion())):
                (choice,) = client.post(route, json=body).json()["choices"]
                assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop_reason)
                events = client.post(route, json=body | {"stream": True}).text
                shown = "null" if stop_reason is None else f'"{stop_reason}"' if stop_reason == "###" else "7"
                assert events.count('"stop_reason"') == 1, "the last chunk alone says it"
                assert f'"finish_reason":"stop","stop_reason":{shown}' in events


def test_a_refused_pattern_is_a_400() -> None:
    with client_of() as client:
        error = error_of(client.post(CHAT, json=make_chat(stop_regex=r"(a)\1")))
    assert (error["param"], error["type"]) == ("stop_regex", "invalid_request_error")
