"""Kinds of prompts told apart, and text that is none refused with its place."""

from typing import Any

import pytest

from twostroke.errors import PromptError
from twostroke.prompt import contents_of, is_chat, refuse_lone_surrogates, several, texts_of


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [("a", ["a"]), ([1, 2], [[1, 2]]), (["a", [1]], ["a", [1]]), (("a", "b"), ["a", "b"]), ([], [[]])],
)
def test_one_prompt_is_told_from_several(prompts: Any, expected: list[Any]) -> None:
    assert several(prompts) == expected


def test_a_conversation_is_a_list_of_messages() -> None:
    assert is_chat([{"role": "user"}])
    others: list[Any] = ["", [], [1], ["a"], [{}, "a"], None, {}]
    assert not any(is_chat(prompt) for prompt in others)


def test_texts_come_with_their_place() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}, 7, None]}]
    assert ("messages[0].content[0].text", "hi") in list(texts_of(messages, place="messages"))


def test_what_messages_say_is_their_text_alone() -> None:
    parts: list[Any] = [{"type": "text", "text": "b"}, {"type": "image"}, "c", 7]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": parts},
        {"role": "x"},
        {"content": None},
    ]
    assert contents_of(messages) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("prompt", "said", "field"),
    [
        ("ab\ud800", "the prompt has U+D800, a lone surrogate, at character 2", "prompt"),
        ([{"role": "user", "content": "\udfff"}], "messages[0].content has U+DFFF", "messages"),
        ([{"role": "user"}, {"role": "\ud800", "content": ""}], "messages[1].role has U+D800", "messages"),
        ([{"role": "user", "content": [{"text": "a\udc80"}]}], "messages[0].content[0].text has U+DC80", "messages"),
        ([{"role": "user", "\ud800": "a"}], "a key of messages[0] has U+D800", "messages"),
        ([{"a\ud800": "\ud801"}], "a key of messages[0] has U+D800", "messages"),
    ],
)
def test_half_a_character_is_refused_with_its_place(prompt: Any, said: str, field: str) -> None:
    with pytest.raises(PromptError) as refused:
        refuse_lone_surrogates(prompt)
    assert str(refused.value).startswith(said)
    assert "errors='replace'" in str(refused.value)
    assert refused.value.field == field
    str(refused.value).encode()


@pytest.mark.parametrize("prompt", ["", "a\U0001f600", [1, 2], [], [{"role": "user", "content": None}], None, 7])
def test_everything_else_passes(prompt: Any) -> None:
    refuse_lone_surrogates(prompt)


@pytest.mark.parametrize(("prompts", "kind"), [(5, "int"), (None, "NoneType"), ({"a": 1}, "dict"), ({1, 2}, "set")])
def test_what_has_no_order_is_no_prompt(prompts: Any, kind: str) -> None:
    with pytest.raises(
        PromptError, match=f"the prompt is of type {kind}: it must be text, token ids or a list of either"
    ):
        several(prompts)


def test_texts_are_found_in_tuples_and_beside_keys_that_are_none() -> None:
    value = {"a": ("x", ["y"]), 7: "z"}
    found = list(texts_of(value, place="it"))
    assert found == [("a key of it", "a"), ("it.a[0]", "x"), ("it.a[1][0]", "y"), ("it.7", "z")]


def test_parts_may_be_a_tuple() -> None:
    assert contents_of([{"content": ({"text": "a"}, "b")}]) == ["a", "b"]
