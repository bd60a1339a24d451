"""A chunk from a form has the very bytes of the chunk it stands for, whatever the text, the names and the wish."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.serve.serve_builders import ScriptedHandle, ScriptedModel, make_finish
from twostroke.core.event import TokenEvent, Usage
from twostroke.core.sequence import FinishReason
from twostroke.params import SamplingParams
from twostroke.presets import Preset
from twostroke.serve.answers import Answers
from twostroke.serve.chunk_form import GAP, ChunkForm, encode_event
from twostroke.serve.openai import StreamWish, Wish
from twostroke.serve.replies import Reply

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.one_of(TEXTS, st.integers(), st.none(), st.dictionaries(TEXTS, st.integers(), max_size=3))


@given(name=TEXTS, values=st.lists(VALUES, min_size=2, max_size=2))
def test_a_filled_form_is_the_event_with_its_values(name: str, values: list[Any]) -> None:
    def event(first: Any, second: Any) -> dict[str, Any]:
        return {"id": name, name: 1, "choices": [{"text": first, "index": 0}], "usage": second}

    assert ChunkForm(event(GAP, GAP)).filled(*values) == encode_event(event(*values))


def test_a_form_takes_as_many_values_as_it_has_gaps() -> None:
    with pytest.raises(ValueError, match="zip"):
        ChunkForm({"text": GAP}).filled("a", "b")


def make_reply(wish: Wish) -> Reply:
    async def make() -> Answers:
        return Answers(max_pending=9, request_id='r"\\')

    answers = asyncio.run(make())
    answers.asked = {index: ScriptedHandle("r", num_prompt_tokens=3) for index in range(wish.num_answers)}
    return Reply(wish, answers, model=ScriptedModel())


@given(
    texts=st.lists(st.tuples(st.integers(0, 1), TEXTS), max_size=6),
    is_chat=st.booleans(),
    includes_usage=st.booleans(),
    has_running_usage=st.booleans(),
    has_preset=st.booleans(),
)
def test_every_token_is_told_as_a_whole_chunk_would_tell_it(
    texts: list[tuple[int, str]], is_chat: bool, includes_usage: bool, has_running_usage: bool, has_preset: bool
) -> None:
    wish = Wish(
        model='a "model"\u2028',
        prompts=("p",),
        num_choices=2,
        params=SamplingParams(),
        is_chat=is_chat,
        is_stream=True,
        stream=StreamWish(includes_usage=includes_usage, has_running_usage=includes_usage and has_running_usage),
        preset=Preset("p", SamplingParams(), "why") if has_preset else None,
    )
    formed, whole = make_reply(wish), make_reply(wish)
    whole._facts = formed._facts  # the same second
    for index, text in texts:
        event, choice = TokenEvent("r", 1, text, 0.0), whole._choices[index]
        contents: list[Any] = choice.deltas(event) if is_chat else [choice.take(event)]
        expected = [encode_event(whole._chunk(choice, content)) for content in contents if content]
        assert formed.told(index, event) == b"".join(expected)
    end = make_finish("r", reason=FinishReason.STOP, text="x", usage=Usage(3, 0, len(texts)))
    for index in (0, 1):
        *_, rest, last = [json.loads(each[6:])["choices"][0] for each in formed.told(index, end).split(b"\n\n") if each]
        assert rest["delta"]["content"] if is_chat else rest["text"] == "x"
        assert (rest["stop_reason"], last["finish_reason"]) == (None, "stop")
