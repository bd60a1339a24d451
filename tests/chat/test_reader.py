"""Answers of every family as they come: the same pieces whatever their borders, marks never shown, nothing lost."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from twostroke.chat.answer import CallArguments, CallBegin, ChatAnswer, Content, Reasoning, ToolCall, answer_of
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
from twostroke.chat.call_block import MAX_BLANKS
from twostroke.chat.reader import MAX_BROKEN, AnswerReader

THINK = ThinkFormat("<think>", "</think>")
NAMES = ("f", "g")
F, G = ToolCall("f", '{"a": 1}'), ToolCall("g", "{}")
ALL = (HERMES, LLAMA, MISTRAL, MISTRAL_NAMED, GRANITE, PHI, NEMOTRON)
# The same two calls in the words of every family.
SPOKEN = [
    (HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n<tool_call>{"name": "g"}</tool_call>'),
    (HERMES, '<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]</tool_call>'),
    (LLAMA, '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}'),
    (LLAMA, '<|python_tag|>{"type": "function", "name": "f", "parameters": {"a": 1}};{"name": "g", "parameters": {}}'),
    (MISTRAL, '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "123456789"}, {"name": "g", "arguments": {}}]'),
    (MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": "{\\"a\\": 1}"}, {"name": "g", "arguments": "{}"}]'),
    (MISTRAL_NAMED, '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}'),
    (GRANITE, '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]'),
    (PHI, '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]<|/tool_call|>'),
    (NEMOTRON, '<TOOLCALL>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]</TOOLCALL>'),
]
# Letters and marks that hurt: whole, halved, inside each other.
BITS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<tool", "_call>", "<think>", "</think>", "</thi", "[TOOL_CALLS]", "[ARGS]"),
        *("<|python_tag|>", "<|tool_call|>", "<|/tool_call|>", "{", "}", "[", "]", '"', "\\", ";", ",", " ", "\n", "x"),
        *('{"name": "f", "arguments": {"a": 1}}', '{"name": "f", "parameters": {}}', '"name"', "f", "g", "\t"),
    ]
)
TEXTS = st.lists(BITS, max_size=14).map("".join)
FORMATS = st.builds(AnswerFormat, st.sampled_from([None, *ALL]), st.sampled_from([None, THINK]))


def read(calls: CallFormat | None, text: str, *, think: ThinkFormat | None = None, **options: Any) -> ChatAnswer:
    return AnswerReader(AnswerFormat(calls, think), names=NAMES, **options).read(text)


@pytest.mark.parametrize(("calls", "text"), SPOKEN)
def test_calls_of_every_family_are_found(calls: CallFormat, text: str) -> None:
    assert read(calls, text).tool_calls == (F, G)
    assert read(calls, text).content == ""


@pytest.mark.parametrize(("calls", "text"), [pair for pair in SPOKEN if pair[0] is not LLAMA])
def test_content_stands_before_and_after_without_marks_or_the_blanks_beside_them(calls: CallFormat, text: str) -> None:
    assert read(calls, f"Let me see. \n{text}\n done ") == ChatAnswer(content="Let me see.done ", tool_calls=(F, G))


@given(
    answer_format=FORMATS,
    text=TEXTS,
    cuts=st.lists(st.integers(1, 9), min_size=1),
    is_thinking=st.booleans(),
    has_names=st.booleans(),
)
def test_the_borders_of_pieces_change_nothing(
    answer_format: AnswerFormat, text: str, cuts: list[int], is_thinking: bool, has_names: bool
) -> None:
    def new() -> AnswerReader:
        return AnswerReader(answer_format, is_thinking=is_thinking, names=NAMES if has_names else ())

    reader, pieces, start = new(), [], 0
    for index in range(len(text)):
        size = cuts[index % len(cuts)]
        pieces += reader.feed(text[start : start + size])
        start += size
    assert answer_of([*pieces, *reader.end()]) == new().read(text)


@given(answer_format=FORMATS, text=TEXTS)
def test_nothing_but_blanks_and_marks_is_lost(answer_format: AnswerFormat, text: str) -> None:
    """What was no call is content: an answer without calls or reasoning is its text."""
    answer = AnswerReader(answer_format, names=NAMES).read(text)
    if not answer.tool_calls and answer_format.think is None:
        assert answer.content == text
    for call in answer.tool_calls:
        assert call.name in NAMES


@given(text=TEXTS, answer_format=FORMATS)
def test_without_functions_marks_of_calls_are_text(text: str, answer_format: AnswerFormat) -> None:
    assert AnswerReader(AnswerFormat(answer_format.calls)).read(text) == ChatAnswer(content=text)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "f", "arguments": {"a": 1}',
        '<tool_call>{"name": "f", "arguments": {"a": 1}}',
        '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "no"}</tool_call>',
        '<tool_call>{"name": "h", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {}, "extra": 1}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {}, "parameters": {}}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
        "<tool_call>f(1)</tool_call>",
        "<tool_call></tool_call>",
        '<tool_call><tool_call>{"name": "f"}</tool_cal',
        '<tool_call>{"name": "f", "arguments": {"a": "line\nend"}}</tool_call>',
        "<tool_call>" + '{"a":' * 3000,
        "<tool_call>" * (MAX_BROKEN + 3),
    ],
)
def test_a_broken_call_is_content_letter_by_letter(text: str) -> None:
    for around in (text, f"so {text} and", f"{text}\n"):
        assert read(HERMES, around) == ChatAnswer(content=around)


def test_a_good_call_after_a_broken_one_is_found() -> None:
    broken = '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>'
    assert read(HERMES, f'{broken}\n<tool_call>{{"name": "g"}}</tool_call>') == ChatAnswer(
        content=broken, tool_calls=(G,)
    )


def test_marks_inside_arguments_are_letters() -> None:
    arguments = '{"a": "</tool_call><tool_call>{\\"name\\": \\"g\\"}"}'
    answer = read(HERMES, f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>')
    assert answer == ChatAnswer(tool_calls=(ToolCall("f", arguments),))


def test_huge_arguments_are_read_in_one_pass() -> None:
    arguments = '{"a": "' + "x" * 300_000 + '"}'
    text = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>'
    reader = AnswerReader(AnswerFormat(HERMES), names=NAMES)
    pieces = [piece for start in range(0, len(text), 3) for piece in reader.feed(text[start : start + 3])]
    assert pieces == [CallBegin(0, "f"), CallArguments(0, arguments)]


def test_json_that_is_no_call_is_an_answer_of_the_bare_family_too() -> None:
    for text in ('{"a": 1}', '{"name": "x", "parameters": {}}', '{"name": "f"', "{", 'say {"name": "f"}'):
        assert read(LLAMA, text) == ChatAnswer(content=text)


BARE_F, BARE_G = '{"name": "f", "parameters": {"a": 1}}', '{"name": "g", "parameters": {}}'


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (f"{BARE_F}{BARE_G}", ChatAnswer(tool_calls=(F, G))),
        (f"see: <|python_tag|>{BARE_F}; {BARE_G}", ChatAnswer(content="see:", tool_calls=(F, G))),
        (f"see: <|python_tag|>{BARE_F}<|python_tag|>{BARE_G}", ChatAnswer(content="see:", tool_calls=(F, G))),
        (f"see: {BARE_F}", ChatAnswer(content=f"see: {BARE_F}")),
        (f"{BARE_F} then {BARE_G}", ChatAnswer(content=f"then {BARE_G}", tool_calls=(F,))),
        (f"<think>hm</think>{BARE_F};{BARE_G}", ChatAnswer(reasoning="hm", tool_calls=(F, G))),
    ],
)
def test_a_bare_call_stands_first_or_right_behind_another(text: str, answer: ChatAnswer) -> None:
    assert read(LLAMA, text, think=THINK) == answer
    reader = AnswerReader(AnswerFormat(LLAMA, THINK), names=NAMES)
    assert answer_of([*(piece for letter in text for piece in reader.feed(letter)), *reader.end()]) == answer


@pytest.mark.parametrize("text", ["[TOOL_CALLS]f", "[TOOL_CALLS]", "[TOOL_CALLS]f x"])
def test_blanks_beside_a_name_are_not_waited_for_without_end(text: str) -> None:
    reader = AnswerReader(AnswerFormat(MISTRAL_NAMED), names=NAMES)
    reader.feed(text)
    pieces = [piece for _ in range(MAX_BLANKS + 1) for piece in reader.feed("\n")]
    assert reader.feed("end") or pieces
    assert answer_of(reader.end()) == ChatAnswer()
    assert read(MISTRAL_NAMED, f"{text}{' ' * (MAX_BLANKS + 1)}[ARGS]{{}}").tool_calls == ()


# Reasoning


@pytest.mark.parametrize(
    ("text", "is_thinking", "answer"),
    [
        ("<think>\nhm\n</think>\n\nyes", False, ChatAnswer(reasoning="hm", content="yes")),
        ("\n<think>hm</think>yes ", False, ChatAnswer(reasoning="hm", content="yes ")),
        ("hm\n</think>\n\nyes", True, ChatAnswer(reasoning="hm", content="yes")),
        ("<think>\n\n</think>\n\nyes", False, ChatAnswer(content="yes")),
        ("\n</think>yes", True, ChatAnswer(content="yes")),
        ("a <think> b </think>", False, ChatAnswer(content="a <think> b </think>")),
        ("a <think> b </think> c </think> d", True, ChatAnswer(reasoning="a <think> b", content="c </think> d")),
        ("<think>hm", False, ChatAnswer(reasoning="hm")),
        ("<thin", False, ChatAnswer(content="<thin")),
        (" <thinking> x", False, ChatAnswer(content=" <thinking> x")),
        ("yes", False, ChatAnswer(content="yes")),
    ],
)
def test_reasoning_is_what_stands_first_between_its_marks(text: str, is_thinking: bool, answer: ChatAnswer) -> None:
    assert read(None, text, think=THINK, is_thinking=is_thinking) == answer
    assert read(HERMES, text, think=THINK, is_thinking=is_thinking) == answer


def test_calls_inside_reasoning_are_thoughts_and_those_after_it_are_calls() -> None:
    call = '<tool_call>{"name": "g"}</tool_call>'
    answer = read(HERMES, f"{call}</think>\n{call}", think=THINK, is_thinking=True)
    assert answer == ChatAnswer(reasoning=call, tool_calls=(G,))


def test_everything_certain_is_told_at_once() -> None:
    reader = AnswerReader(AnswerFormat(HERMES, THINK), names=NAMES)
    assert [reader.feed(text) for text in ("<th", "ink>a", " b</", "x </think>", "\n", "c", " <", "d ", "e")] == [
        *([], [Reasoning("a")], [Reasoning(" b")], [Reasoning("</x")], [], [Content("c")], [], [Content(" <d")]),
        [Content(" e")],
    ]
    assert reader.end() == []


@pytest.mark.parametrize(("calls", "text"), SPOKEN)
def test_every_cut_of_every_call_gives_the_same(calls: CallFormat, text: str) -> None:
    whole = f"<think>a</think>{text}"
    for cut in range(len(whole)):
        reader = AnswerReader(AnswerFormat(calls, THINK), names=NAMES)
        pieces = [*reader.feed(whole[:cut]), *reader.feed(whole[cut:]), *reader.end()]
        assert answer_of(pieces) == ChatAnswer(reasoning="a", tool_calls=(F, G))
    reader = AnswerReader(AnswerFormat(calls, THINK), names=NAMES)
    assert answer_of([*(piece for letter in whole for piece in reader.feed(letter)), *reader.end()]).tool_calls == (
        F,
        G,
    )


def test_calls_are_numbered_through_all_blocks_of_an_answer() -> None:
    pair = '<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]</tool_call>'
    reader = AnswerReader(AnswerFormat(HERMES), names=NAMES)
    pieces = reader.feed(f"{pair}{pair}")
    assert [piece.index for piece in pieces if isinstance(piece, CallBegin)] == [0, 1, 2, 3]
    assert answer_of(pieces).tool_calls == (F, G, F, G)
