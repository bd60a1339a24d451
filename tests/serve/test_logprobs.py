"""Log-probabilities in both of OpenAI's forms, whole and streamed: one entry per token, bytes that join to the text."""

import json
from typing import Any

import pytest

from tests.serve.serve_builders import END, ScriptedModel, client_of, events_of, make_chat, make_completion
from twostroke.core.event import TokenEvent
from twostroke.core.step import TokenLogprob
from twostroke.serve.logprobs import CompletionLogprobs, chat_logprobs

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class ByteModel(ScriptedModel):
    """A token is a byte."""

    def token_bytes(self, token_id: int) -> bytes | None:
        return None if token_id == END else bytes([token_id])


def token(token_id: int, *, best: tuple[int, ...] = ()) -> TokenEvent:
    top = tuple(TokenLogprob(other, -1.0 * rank) for rank, other in enumerate(best))
    return TokenEvent("r", token_id, "", 0.0, logprob=-0.25, top_logprobs=top)


def test_an_entry_has_text_bytes_and_alternatives() -> None:
    (entry,) = chat_logprobs(ByteModel(), [token(65, best=(66, 65))])["content"]
    assert entry == {
        "token": "A",
        "logprob": -0.25,
        "bytes": [65],
        "top_logprobs": [
            {"token": "B", "logprob": 0.0, "bytes": [66]},
            {"token": "A", "logprob": -1.0, "bytes": [65]},
        ],
    }


def test_bytes_of_a_split_character_join_to_it() -> None:
    emoji = "🌶".encode()
    entries = chat_logprobs(ByteModel(), [token(byte) for byte in emoji])["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == emoji
    assert [entry["token"] for entry in entries] == ["\ufffd"] * 4


def test_an_end_token_has_an_entry_without_bytes() -> None:
    (entry,) = chat_logprobs(ByteModel(), [token(END)])["content"]
    assert (entry["token"], entry["bytes"]) == ("<end>", None)


def test_the_older_form_counts_whole_characters_before_each_token() -> None:
    tokens = [token(byte) for byte in "aé🌶b".encode()]
    told = CompletionLogprobs(ByteModel(), num_characters=10).of(tokens)
    assert told["text_offset"] == [10, 11, 11, 12, 12, 12, 12, 13]
    assert told["tokens"][:3] == ["a", "bytes:\\xc3", "bytes:\\xa9"]
    assert told["token_logprobs"] == [-0.25] * 8


def test_offsets_go_on_from_one_call_to_the_next() -> None:
    form = CompletionLogprobs(ByteModel())
    assert form.of([token(65), token(66)])["text_offset"] == [0, 1]
    assert form.of([token(67)])["text_offset"] == [2]


def test_the_chosen_token_is_among_its_alternatives_once() -> None:
    form = CompletionLogprobs(ByteModel())
    first, second = form.of([token(65, best=(66, 67)), token(66, best=(66, 67))])["top_logprobs"]
    assert first == {"B": 0.0, "C": -1.0, "A": -0.25}
    assert second == {"B": 0.0, "C": -1.0}


def test_a_token_without_a_probability_is_null_in_both_lists() -> None:
    told = CompletionLogprobs(ByteModel()).of([TokenEvent("r", 65, "A", 0.0)])
    assert (told["token_logprobs"], told["top_logprobs"]) == ([None], [None])


@pytest.mark.parametrize("num_top", [None, 0, 1, 3])
def test_a_chat_has_one_entry_per_token_whole_and_streamed(num_top: int | None) -> None:
    model = ScriptedModel(["a", "", "bc"], rest="!")
    fields = make_chat(logprobs=True, top_logprobs=num_top)
    with client_of(model) as client:
        whole = client.post(CHAT, json=fields).json()
        *chunks, _ = events_of(client.post(CHAT, json=fields | {"stream": True}).text)
    content = whole["choices"][0]["logprobs"]["content"]
    assert len(content) == whole["usage"]["completion_tokens"] == 3
    assert all(len(entry["top_logprobs"]) == (num_top or 0) for entry in content)
    told = [json.loads(chunk)["choices"][0]["logprobs"] for chunk in chunks]
    assert [entry for each in told if each is not None for entry in each["content"]] == content


def test_a_completion_has_the_older_form_whole_and_streamed() -> None:
    model = ScriptedModel(["a", "", "bc"], rest="!")
    fields = make_completion(logprobs=2)
    with client_of(model) as client:
        whole = client.post(COMPLETIONS, json=fields).json()["choices"][0]["logprobs"]
        *chunks, _ = events_of(client.post(COMPLETIONS, json=fields | {"stream": True}).text)
    joined: dict[str, list[Any]] = {name: [] for name in whole}
    for chunk in chunks:
        for name, values in (json.loads(chunk)["choices"][0]["logprobs"] or {}).items():
            joined[name] += values
    assert joined == whole
    assert len(whole["tokens"]) == 3


@pytest.mark.parametrize(("path", "fields"), [(CHAT, make_chat()), (COMPLETIONS, make_completion())])
def test_nobody_who_did_not_ask_gets_any(path: str, fields: dict[str, Any]) -> None:
    with client_of() as client:
        assert client.post(path, json=fields).json()["choices"][0]["logprobs"] is None
