"""Where answers end, through every door of one real engine: what is shown, what is counted, and why it ended.

The model says what a table tells it to, so every expected text is exact; one piece is one token. Numbers with an X are
those of the cases in tests/known_bugs.md.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.cases.puppet import EOS, build_puppet
from tests.serve.serve_builders import error_of, events_of, registry_of
from twostroke.config import resolve
from twostroke.llm import LLM
from twostroke.params import SamplingParams
from twostroke.serve.app import create_app

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SCRIPTS = {
    "letters": ["A", "\u2581B", "\u2581C", "\u2581O", "\u2581P", "\u2581Q", "\u2581R"],
    "mars": ["sky", "\u2581on", "\u2581Mars", "?"],
    "alice": ["Alice", "!", "\u2581Alice", ":", "\u2581hi"],
    "aaab": ["a", "aa", "b"],
    "ababac": ["ab", "aba", "c"],
    "numbers": ["1", "\u25812", "\u25813", "\u25814", "\u25815", "\u25816", "\u25817", "\u25818"],
}
EXTRA = sorted({f"[{name}]" for name in SCRIPTS} | {piece for pieces in SCRIPTS.values() for piece in pieces})
ID_OF = {text: 264 + index for index, text in enumerate(EXTRA)}  # behind the base vocabulary


def said(name: str) -> list[int]:
    """The tokens of a script; its first follows the prompt [name]."""
    return [ID_OF[piece] for piece in SCRIPTS[name]]


TABLE = {
    token: following
    for name in SCRIPTS
    for token, following in itertools.pairwise([ID_OF[f"[{name}]"], *said(name), EOS])
}


def test_no_script_leads_into_another() -> None:
    assert len(TABLE) == sum(len(pieces) + 1 for pieces in SCRIPTS.values())


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LLM, TestClient]]:
    folder = tmp_path_factory.mktemp("ends")
    path = folder / "puppet.gguf"
    path.write_bytes(build_puppet(TABLE, extra_tokens=EXTRA).file)
    config = resolve({"TWOSTROKE_HOME": str(folder)})
    with (
        LLM(path, threads=1, config=config) as llm,
        TestClient(create_app(registry_of(llm)), raise_server_exceptions=False) as client,
    ):
        yield llm, client


def complete(client: TestClient, name: str, **fields: Any) -> Any:
    asked = {"model": "puppet.gguf", "prompt": [ID_OF[f"[{name}]"]], "max_tokens": 20, **fields}
    return client.post(COMPLETIONS, json=asked)


def streamed(client: TestClient, name: str, **fields: Any) -> tuple[list[str], dict[str, Any]]:
    """Pieces as they come, and the choice that says why it ended."""
    *events, done = events_of(complete(client, name, stream=True, **fields).text)
    assert done == "[DONE]"
    choices = [json.loads(event)["choices"][0] for event in events]
    return [choice["text"] for choice in choices[:-1]], choices[-1]


def check(
    door: tuple[LLM, TestClient], name: str, text: str, *, reason: str = "stop", stop_reason: Any, **fields: Any
) -> None:
    """The same text and the same end from the library, whole over HTTP and in a stream."""
    llm, client = door
    whole = complete(client, name, **fields).json()["choices"][0]
    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == (text, reason, stop_reason)
    pieces, end = streamed(client, name, **fields)
    assert ("".join(pieces), end["finish_reason"], end["stop_reason"]) == (text, reason, stop_reason)
    options: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    params = SamplingParams(**{"max_tokens": 20, **options})
    (result,) = llm.generate([ID_OF[f"[{name}]"]], params)
    assert (result.text, result.finish_reason, result.stop_reason) == (text, reason, stop_reason)


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("O P Q", "A B C "),
        ("P", "A B C O "),
        (" P Q R", "A B C O"),
        ("A B C O P Q R", ""),
        ("Q", "A B C O P "),
    ],
)
def test_stops_are_matched_in_the_text_whatever_its_tokens(
    door: tuple[LLM, TestClient], stop: str, text: str
) -> None:  # X1
    check(door, "letters", text, stop=[stop], stop_reason=stop)


def test_a_stop_longer_than_the_answer_holds_nothing_for_good(door: tuple[LLM, TestClient]) -> None:  # X1
    check(door, "letters", "A B C O P Q R", stop=["A B C O P Q R S"], stop_reason=None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"stop": ["?\n"]}, "stop"),
        ({"stop": ["rs?!"]}, "stop"),
        ({"stop": ["rs?!"], "max_tokens": 4}, "length"),
        ({"stop": ["Mars?\n"], "max_tokens": 4}, "length"),
    ],
)
def test_what_was_held_back_comes_at_the_end(
    door: tuple[LLM, TestClient], fields: dict[str, Any], reason: str
) -> None:  # X2
    check(door, "mars", "sky on Mars?", reason=reason, stop_reason=None, **fields)


def test_what_was_held_for_one_stop_is_shown_when_another_ends_the_answer(door: tuple[LLM, TestClient]) -> None:  # X2
    check(door, "mars", "sky on Mar", stop=["on Mars!", "s?"], stop_reason="s?")


@pytest.mark.parametrize(
    ("name", "stop", "text", "stop_reason"),
    [
        ("alice", ["\n", "Alice:"], "Alice! ", "Alice:"),
        ("aaab", ["aab"], "a", "aab"),
        ("ababac", ["abac"], "ab", "abac"),
    ],
)
def test_a_false_start_is_shown_once(
    door: tuple[LLM, TestClient], name: str, stop: list[str], text: str, stop_reason: str
) -> None:  # X3
    check(door, name, text, stop=stop, stop_reason=stop_reason)


@pytest.mark.parametrize(
    ("fields", "hidden", "shown"),
    [
        ({"stop": ["7"]}, "1 2 3 4 5 6 ", "1 2 3 4 5 6 7"),
        ({"stop": ["6 7"]}, "1 2 3 4 5 ", "1 2 3 4 5 6 7"),
        ({"stop_regex": ["[67] [78]"]}, "1 2 3 4 5 ", "1 2 3 4 5 6 7"),
        ({"stop_token_ids": [ID_OF["\u25817"]]}, "1 2 3 4 5 6", "1 2 3 4 5 6 7"),
        ({"stop_token_ids": [EOS]}, "1 2 3 4 5 6 7 8", "1 2 3 4 5 6 7 8"),
    ],
)
def test_a_stop_is_shown_where_that_is_asked_and_counts_the_same(
    door: tuple[LLM, TestClient], fields: dict[str, Any], hidden: str, shown: str
) -> None:  # X5
    usages = []
    for is_shown, text in ((False, hidden), (True, shown)):
        asked = {**fields, "include_stop_str_in_output": is_shown}
        reply = complete(door[1], "numbers", **asked).json()
        assert (reply["choices"][0]["text"], reply["choices"][0]["finish_reason"]) == (text, "stop")
        assert "".join(streamed(door[1], "numbers", **asked)[0]) == text
        usages.append(reply["usage"])
    assert usages[0] == usages[1]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("echo", [{}, {"echo": True}, {"echo": True, "logprobs": 1}])
def test_as_many_tokens_as_asked(door: tuple[LLM, TestClient], limit: int, echo: dict[str, Any]) -> None:  # X6
    reply = complete(door[1], "numbers", max_tokens=limit, **echo).json()
    (choice,) = reply["choices"]
    assert (reply["usage"]["completion_tokens"], choice["finish_reason"]) == (limit, "length")
    if "logprobs" in echo:
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert len(choice["logprobs"]["tokens"]) == 1 + limit


def test_no_token_at_all_is_for_scoring_a_prompt(door: tuple[LLM, TestClient]) -> None:  # X6
    client = door[1]
    reply = complete(client, "numbers", prompt=said("numbers"), max_tokens=0, echo=True, logprobs=1).json()
    (choice,) = reply["choices"]
    assert (reply["usage"]["completion_tokens"], choice["finish_reason"]) == (0, "length")
    assert choice["text"] == "1 2 3 4 5 6 7 8"
    first, *others = choice["logprobs"]["token_logprobs"]
    assert first is None
    assert others == pytest.approx([0.0] * 7, abs=1e-3), "the puppet is certain"
    assert complete(client, "numbers", max_tokens=0, echo=True).json()["usage"]["completion_tokens"] == 0
    assert error_of(complete(client, "numbers", max_tokens=0))["param"] == "max_tokens"


@pytest.mark.parametrize("limit", [-1, -2, 2**31, "5", 1.5, True])
@pytest.mark.parametrize("echo", [{}, {"echo": True, "logprobs": 1}])
def test_limits_that_are_none_are_a_400(door: tuple[LLM, TestClient], limit: Any, echo: dict[str, Any]) -> None:  # X6
    response = complete(door[1], "numbers", max_tokens=limit, **echo)
    assert response.status_code == 400
    assert complete(door[1], "numbers").json()["usage"]["completion_tokens"] == 9, "the next one works"


@pytest.mark.parametrize(
    ("fields", "reason", "stop_reason"),
    [
        ({}, "stop", None),
        ({"stop": ["8"]}, "stop", "8"),
        ({"max_tokens": 5}, "length", None),
        ({"max_tokens": 9}, "stop", None),  # the end token is the last one allowed
        ({"max_tokens": 8, "stop": ["8"]}, "stop", "8"),  # the last one allowed completes it
        ({"max_tokens": 8, "stop_token_ids": [ID_OF["\u25818"]]}, "stop", ID_OF["\u25818"]),
        ({"max_tokens": 7, "stop": ["8"]}, "length", None),
    ],
)
def test_every_end_has_its_reason_and_ties_are_a_stop(
    door: tuple[LLM, TestClient], fields: dict[str, Any], reason: str, stop_reason: Any
) -> None:  # X10
    for asked in (fields, {**fields, "include_stop_str_in_output": True}):
        choice = complete(door[1], "numbers", **asked).json()["choices"][0]
        assert (choice["finish_reason"], choice["stop_reason"]) == (reason, stop_reason)
        _, end = streamed(door[1], "numbers", **asked)
        assert (end["finish_reason"], end["stop_reason"]) == (reason, stop_reason)


@pytest.mark.parametrize("stop", ["x" * 200, "9" + "x" * 199])
def test_a_long_stop_holds_no_token_it_cannot_begin_with(door: tuple[LLM, TestClient], stop: str) -> None:  # X11
    pieces, _ = streamed(door[1], "numbers", stop=[stop])
    assert pieces == ["1", " 2", " 3", " 4", " 5", " 6", " 7", " 8"]


def test_beams_follow_a_form_over_http(door: tuple[LLM, TestClient]) -> None:
    fields = {"structured_outputs": {"choice": ["12", "1 2", "22"]}, "use_beam_search": True, "n": 2}
    reply = complete(door[1], "numbers", **fields).json()
    assert [choice["finish_reason"] for choice in reply["choices"]] == ["stop", "stop"]
    assert {choice["text"] for choice in reply["choices"]} < {"12", "1 2", "22"}
    assert reply["choices"][0]["score"] >= reply["choices"][1]["score"]
