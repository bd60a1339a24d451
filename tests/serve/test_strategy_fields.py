"""How many answers there are and what chooses them, as clients write it, and what the reply tells of it."""

import dataclasses
import json
from typing import Any

import pytest

from tests.serve.serve_builders import (
    MODEL,
    ScriptedModel,
    client_of,
    error_of,
    events_of,
    make_chat,
    make_completion,
)
from twostroke.core.event import Beam
from twostroke.core.sequence import FinishReason
from twostroke.params import BeamSearch, SamplingParams
from twostroke.presets import PRESETS, preset
from twostroke.serve.api_error import ApiError
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import Wish, read_wish

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BEAMS = (
    Beam("Blue.", (5, 6), -0.25, FinishReason.STOP, stop_reason=6),
    Beam("Red", (7,), -1.5, FinishReason.LENGTH),
)


def read(fields: dict[str, Any], *, defaults: SamplingParams | None = None, **limits: Any) -> Wish:
    return read_wish(
        fields,
        is_chat="messages" in fields,
        models=[MODEL],
        limits=LimitsConfig(**limits),
        defaults=defaults or SamplingParams(),
    )


def refusal(fields: dict[str, Any], **limits: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(fields, **limits)
    assert caught.value.status == 400
    return caught.value


# n and best_of


def test_best_of_tries_more_than_it_tells() -> None:
    for fields, tried, told in (
        ({}, 1, None),
        ({"best_of": 1}, 1, None),
        ({"n": 3, "best_of": 3}, 3, None),
        ({"best_of": 4}, 4, 1),
        ({"n": 2, "best_of": 4}, 4, 2),
    ):
        wish = read(make_completion(**fields))
        assert (wish.num_choices, wish.num_told) == (tried, told)
        assert (wish.params.logprobs, wish.shows_logprobs) == (0 if told else None, False)
    wish = read(make_completion(best_of=4, logprobs=2))
    assert (wish.params.logprobs, wish.shows_logprobs) == (2, True)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"best_of": 2, "n": 3}, "best_of", "best_of is 2 and n is 3"),
        ({"best_of": 0}, "best_of", "best_of is 0"),
        ({"best_of": 10**6}, "best_of", "best_of is 1000000"),
        ({"best_of": "2"}, "best_of", "best_of is '2'"),
        ({"best_of": 2, "stream": True}, "best_of", "leave out stream"),
        (
            {"best_of": 64, "prompt": ["a"] * 3},
            "best_of",
            "3 prompts x best_of of 64 are 192 answers",
        ),
        ({"n": 64, "prompt": ["a"] * 3}, "n", "3 prompts x n of 64 are 192 answers: the limit is 128"),
        ({"best_of": 2, "use_beam_search": True}, "best_of", "beside beam search"),
    ],
)
def test_tries_that_cannot_be_told_are_refused(fields: dict[str, Any], param: str, words: str) -> None:
    error = refusal(make_completion(**fields))
    assert error.param == param
    assert words in str(error)


def test_clients_may_ask_for_several_tries_where_all_are_the_same() -> None:
    """OpenAI's API takes best_of at temperature 0, and here absent is 0."""
    wish = read(make_completion(best_of=4, temperature=0))
    assert (wish.num_choices, wish.num_told) == (read(make_completion(best_of=4)).num_choices, 1)


def test_as_many_tries_as_answers_may_be_streamed_and_chats_have_no_best_of() -> None:
    assert read(make_completion(n=2, best_of=2, stream=True)).num_choices == 2
    assert refusal(make_chat(best_of=1)).code == "unknown_field"


class Choosy(ScriptedModel):
    """Its choices say their number, each less likely than the others by a law of its own."""

    def _token(self, request_id: str, token_id: int, piece: str, params: SamplingParams) -> Any:
        number = int(request_id.rpartition(".")[2])
        event = super()._token(request_id, token_id, f"{number}", params)
        return event if params.logprobs is None else dataclasses.replace(event, logprob=-float((number * 3) % 5))


def test_the_likeliest_by_token_are_told_best_first_and_all_are_counted() -> None:
    with client_of(Choosy(["x", "y"])) as client:
        reply = client.post(COMPLETIONS, json=make_completion(prompt=["p", "q"], n=2, best_of=5)).json()
    # numbers 0 to 4 are -0 -3 -1 -4 -2, 5 to 9 the same again
    assert [choice["text"] for choice in reply["choices"]] == ["00", "22", "55", "77"]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    assert all(choice["logprobs"] is None for choice in reply["choices"])
    assert reply["usage"]["completion_tokens"] == 20
    assert reply["usage"]["prompt_tokens"] == 2


# Beam search


@pytest.mark.parametrize("make", [make_chat, make_completion])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, BeamSearch()),
        ({"n": 2}, BeamSearch(num_return=2)),
        ({"n": 6}, BeamSearch(width=6, num_return=6)),
        ({"beam_width": 3, "n": 2}, BeamSearch(width=3, num_return=2)),
        ({"length_penalty": 0}, BeamSearch(length_penalty=0)),
        ({"early_stopping": "never"}, BeamSearch(early_stopping="never")),
        ({"early_stopping": True, "length_penalty": -1.5}, BeamSearch(early_stopping=True, length_penalty=-1.5)),
    ],
)
def test_a_search_is_read_with_only_the_limits_of_the_defaults(
    make: Any, fields: dict[str, Any], expected: BeamSearch
) -> None:
    defaults = SamplingParams(temperature=0.8, top_k=40, max_tokens=9, stop=("z",))
    wish = read(make(use_beam_search=True, **fields), defaults=defaults)
    assert wish.params == SamplingParams(beam=expected, max_tokens=9, stop=("z",))
    assert (wish.num_choices, wish.num_told) == (1, None)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"beam_width": 4}, "beam_width"),
        ({"use_beam_search": False, "length_penalty": 1}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"use_beam_search": True, "beam_width": 0}, "beam_width"),
        ({"use_beam_search": True, "beam_width": -1}, "beam_width"),
        ({"use_beam_search": True, "beam_width": 2.5}, "beam_width"),
        ({"use_beam_search": True, "beam_width": 2, "n": 3}, "n"),
        ({"use_beam_search": True, "length_penalty": 11}, "length_penalty"),
        ({"use_beam_search": True, "length_penalty": "1"}, "length_penalty"),
        ({"use_beam_search": True, "early_stopping": "yes"}, "early_stopping"),
        ({"use_beam_search": True, "stream": True}, "stream"),
        ({"use_beam_search": True, "temperature": 0.7}, "temperature"),
        ({"use_beam_search": True, "top_p": 0.9}, "top_p"),
        ({"use_beam_search": True, "seed": 1}, "seed"),
        ({"use_beam_search": True, "stop_regex": "a"}, "stop_regex"),
        ({"use_beam_search": True, "prompt_logprobs": 1}, "prompt_logprobs"),
    ],
)
def test_a_search_that_cannot_be_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    for make in (make_chat, make_completion):
        error = refusal(make(**fields))
        assert error.param == param
        assert str(error).startswith(param)


def test_every_answer_of_a_search_is_a_choice_with_its_score_and_all_are_counted() -> None:
    with client_of(ScriptedModel(beams=BEAMS)) as client:
        for route, body in ((CHAT, make_chat()), (COMPLETIONS, make_completion(echo=True))):
            reply = client.post(route, json=body | {"use_beam_search": True, "n": 2}).json()
            texts = [choice.get("text") or choice["message"]["content"] for choice in reply["choices"]]
            assert texts == (["Blue.", "Red"] if route == CHAT else ["hiBlue.", "hiRed"])
            ends = [(each["index"], each["finish_reason"], each["stop_reason"]) for each in reply["choices"]]
            assert ends == [(0, "stop", 6), (1, "length", None)]
            assert [each["score"] for each in reply["choices"]] == [-0.25, -1.5]
            assert [each["logprobs"] for each in reply["choices"]] == [None, None]


# Presets


def test_a_preset_is_where_single_fields_start_from() -> None:
    defaults = SamplingParams(temperature=1.5, top_k=40, max_tokens=9, stop=("z",))
    for each in PRESETS:
        wish = read(make_chat(preset=each.name), defaults=defaults)
        assert (wish.params, wish.preset) == (each.within(defaults), each)
    wish = read(make_chat(preset="chat", temperature=0.1, max_tokens=3))
    assert wish.params == SamplingParams(temperature=0.1, top_p=0.9, max_tokens=3)
    wish = read(make_chat(preset="translate", beam_width=2, use_beam_search=True, n=2))
    assert wish.params.beam == BeamSearch(width=2, num_return=2)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"preset": "poem"}, "preset", "preset is 'poem': it must be one of exact, code, chat"),
        ({"preset": 5}, "preset", "preset is 5, an integer: it must be a string"),
        ({"preset": "x" * 5000}, "preset", "it must be one of"),
        ({"preset": "chat", "use_beam_search": True}, "use_beam_search", "the preset chat draws its tokens"),
        ({"preset": "translate", "use_beam_search": False}, "use_beam_search", "the preset translate is a beam search"),
        ({"preset": "translate", "stream": True}, "stream", "beam search knows its answers at their end"),
        ({"preset": "translate", "temperature": 0.5}, "temperature", "beam search finds the likeliest answer"),
        ({"preset": "chat", "beam_width": 2}, "beam_width", "belongs to beam search"),
    ],
)
def test_presets_that_cannot_be_are_refused(fields: dict[str, Any], param: str, words: str) -> None:
    error = refusal(make_chat(**fields))
    assert error.param == param
    assert words in str(error)
    assert len(str(error)) < 300


def test_a_reply_says_which_preset_it_used_and_why() -> None:
    used = preset("chat")
    told = {"name": "chat", "settings": "temperature 0.7, top_p 0.9", "reason": used.reason}
    with client_of() as client:
        for route, body in ((CHAT, make_chat(preset="chat")), (COMPLETIONS, make_completion(preset="chat"))):
            assert client.post(route, json=body).json()["preset"] == told
            *chunks, _ = events_of(client.post(route, json=body | {"stream": True}).text)
            assert [json.loads(chunk).get("preset") for chunk in chunks] == [told, *[None] * (len(chunks) - 1)]
        assert "preset" not in client.post(CHAT, json=make_chat()).json()
        assert error_of(client.post(CHAT, json=make_chat(preset="poem")))["param"] == "preset"
