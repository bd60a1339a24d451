"""Calls a grammar holds to their form: told as they come, the same calls as those read when they are complete."""

import pytest
from hypothesis import given, strategies as st

from twostroke.chat.answer import CallArguments, CallBegin, ChatAnswer, Content, Piece, ToolCall, answer_of
from twostroke.chat.answer_format import (
    GRANITE,
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_NAMED,
    NEMOTRON,
    PHI,
    AnswerFormat,
    CallFormat,
    ThinkFormat,
)
from twostroke.chat.reader import AnswerReader

THINK = ThinkFormat("<think>", "</think>")
NAMES = ("f", "g")
ARGUMENTS = '{"a": "</tool_call>]}", "b": [1, {"c": "\\""}]}'
CALLS = (ToolCall("f", ARGUMENTS), ToolCall("g", "{}"))


def call(name: str, arguments: str, *, key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {arguments}}}'


PAIR = f"[{call('f', ARGUMENTS)}, {call('g', '{}')}]"
HELD = [
    (HERMES, f"<tool_call>\n{call('f', ARGUMENTS)}\n</tool_call>\n<tool_call>{call('g', '{}')}</tool_call>"),
    (LLAMA, f"{call('f', ARGUMENTS, key='parameters')}; {call('g', '{}', key='parameters')}"),
    (MISTRAL, f"[TOOL_CALLS] {PAIR}"),
    (MISTRAL_NAMED, f"[TOOL_CALLS]f[ARGS]{ARGUMENTS}[TOOL_CALLS]g[ARGS]{{}}"),
    (GRANITE, f"<|tool_call|>{PAIR}"),
    (PHI, f"<|tool_call|>{PAIR}<|/tool_call|>"),
    (NEMOTRON, f"<TOOLCALL>{PAIR}</TOOLCALL>"),
]


def reader_of(calls: CallFormat, *, is_held: bool = True) -> AnswerReader:
    return AnswerReader(AnswerFormat(calls, THINK), names=NAMES, is_held=is_held)


@pytest.mark.parametrize(("calls", "text"), HELD)
@pytest.mark.parametrize("before", ["", "<think>hm</think>\n"])
def test_the_calls_are_those_of_a_complete_text(calls: CallFormat, text: str, before: str) -> None:
    answer = reader_of(calls, is_held=False).read(before + text)
    assert answer == ChatAnswer(reasoning="hm" if before else "", tool_calls=CALLS)
    assert reader_of(calls).read(before + text) == answer


@pytest.mark.parametrize(("calls", "text"), HELD)
@given(sizes=st.lists(st.integers(1, 9), min_size=1))
def test_the_borders_of_pieces_change_nothing(calls: CallFormat, text: str, sizes: list[int]) -> None:
    reader, pieces, start = reader_of(calls), list[Piece](), 0
    for index in range(len(text)):
        size = sizes[index % len(sizes)]
        pieces += reader.feed(text[start : start + size])
        start += size
    assert answer_of([*pieces, *reader.end()]).tool_calls == CALLS


def test_arguments_are_told_letter_by_letter_after_the_name() -> None:
    reader = reader_of(HERMES)
    text = f"So\n<tool_call>\n{call('f', '{}')}"
    told = [piece for letter in text for piece in reader.feed(letter)]
    assert told == [Content("S"), Content("o"), CallBegin(0, "f"), CallArguments(0, "{"), CallArguments(0, "}")]


@pytest.mark.parametrize(("calls", "text"), HELD)
def test_what_a_limit_cuts_off_stays_cut_off(calls: CallFormat, text: str) -> None:
    for end in range(len(text)):
        answer = reader_of(calls).read(text[:end])
        if answer.tool_calls:
            assert text[:end].endswith(answer.content)  # of a second one nothing was told yet
            first = answer.tool_calls[0]
            assert first.name == "f"
            assert ARGUMENTS.startswith(first.arguments)
        else:
            assert answer.content == text[:end]


def test_text_before_and_after_is_content() -> None:
    text = f"So \n<tool_call>{call('g', '{}')}</tool_call>\n "
    assert reader_of(HERMES).read(text) == ChatAnswer(content="So", tool_calls=(ToolCall("g", "{}"),))
    assert reader_of(HERMES).read("So <tool") == ChatAnswer(content="So <tool")
