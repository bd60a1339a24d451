"""Events come whole however the bytes are cut; chunks of both routes say the same."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from twostroke.errors import RemoteError
from twostroke.traffic.event_stream import DONE, EventDecoder, read_chunk

STREAM = b': hello\n\ndata: {"a": 1}\n\ndata:two\r\ndata: lines\r\n\r\nevent: x\nid: 7\ndata: [DONE]\n\n'
EVENTS = [b'{"a": 1}', b"two\nlines", DONE]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    decoder, ends = EventDecoder(), [*sorted(cuts), len(STREAM)]
    found = [event for start, end in zip([0, *ends], ends, strict=False) for event in decoder.feed(STREAM[start:end])]
    assert found == EVENTS
    assert decoder.num_comments == 1


def test_an_event_that_is_not_complete_is_none() -> None:
    assert EventDecoder().feed(b"data: half\n") == []


def chunk(**choice: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, **choice}]}).encode()


@pytest.mark.parametrize(
    ("data", "text", "reason"),
    [
        (chunk(text="a", finish_reason=None), "a", None),
        (chunk(delta={"content": "a"}, finish_reason=None), "a", None),
        (chunk(delta={"role": "assistant", "content": ""}), "", None),
        (chunk(delta={"content": None}, finish_reason="stop"), "", "stop"),
        (chunk(delta={}, finish_reason="length"), "", "length"),
    ],
)
def test_text_is_where_either_route_has_it(data: bytes, text: str, reason: str | None) -> None:
    found = read_chunk(data)
    assert (found.text, found.finish_reason, found.has_choices) == (text, reason, True)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_what_is_thought_is_told_apart_by_either_name(name: str) -> None:
    found = read_chunk(chunk(delta={name: "hm", "content": "a"}))
    assert (found.reasoning, found.text) == ("hm", "a")


def test_a_last_chunk_has_usage_and_no_choices() -> None:
    found = read_chunk(b'{"choices": [], "usage": {"completion_tokens": 3}, "ledger": {"queue": 0.5}}')
    assert (found.has_choices, found.usage, found.ledger) == (False, {"completion_tokens": 3}, {"queue": 0.5})


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b'{"error": {"message": "too slow"}}', "error event", "too slow"),
        (b'{"error": "plain"}', "error event", "plain"),
        (b"oops", "no chunk", "oops"),
        (b"[1]", "no chunk", r"\[1\]"),
        (b"[" * 100_000, "no chunk", r"\[\["),
        (b'{"choices": {"a": 1}}', "no chunk", "choices"),
        (chunk(text=7), "no chunk", "7"),
        (chunk(text="\ud800"), "no chunk", "ud800"),
        (chunk(text="a", finish_reason=7), "no chunk", "7"),
        (b'{"choices": [], "usage": "many"}', "no chunk", "many"),
        (b'{"choices": [], "usage": {"completion_tokens": "3"}}', "no chunk", "usage"),
        (b'{"choices": [], "usage": {"prompt_tokens": 1e999}}', "no chunk", "usage"),
        (b'{"choices": [], "usage": {"prompt_tokens": -1}}', "no chunk", "usage"),
        (b'{"choices": [], "usage": {"prompt_tokens_details": [1]}}', "no chunk", "usage"),
        (b'{"choices": [], "ledger": [1]}', "no chunk", "ledger"),
        (b'{"choices": [3]}', "no chunk", "choices"),
        (b'{"choices": [{"delta": {"content": ["a"]}}]}', "no chunk", "choices"),
    ],
)
def test_an_error_event_and_what_is_no_chunk_have_kinds(data: bytes, kind: str, words: str) -> None:
    with pytest.raises(RemoteError, match=words) as refused:
        read_chunk(data)
    assert refused.value.kind == kind
