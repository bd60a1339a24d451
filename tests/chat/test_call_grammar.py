"""Grammars of calls, compiled: what they let through and what they stop, for every family; what they cost nobody."""

import json
from typing import Any

import pytest

from twostroke.chat.answer_format import (
    GRANITE,
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_NAMED,
    NEMOTRON,
    PHI,
    CallFormat,
    ThinkFormat,
)
from twostroke.chat.call_grammar import before_answer, call_grammar, needs_grammar
from twostroke.chat.chat import Chat
from twostroke.errors import ParamsError
from twostroke.sample.grammar import GrammarCompiler, Words
from twostroke.structure import Structure, StructureKind

CONTROL = ["</s>", "[TOOL_CALLS]", "<|python_tag|>", "[ARGS]", "<|tool_call|>", "<|/tool_call|>", "[THINK]", "[/THINK]"]
TOKENS = [bytes([byte]) for byte in range(256)] + [text.encode() for text in CONTROL]
END = 256
WORDS = Words(TOKENS, control_ids=range(END, len(TOKENS)), end_ids=[END], encode=lambda text: [*text.encode()])
COMPILER = GrammarCompiler(WORDS)
THINK, CONTROL_THINK = ThinkFormat("<think>", "</think>"), ThinkFormat("[THINK]", "[/THINK]")
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
STRICT = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
LOOSE = {"type": "function", "function": {"name": "g", "parameters": SCHEMA}}
F, G = ('{"name": "f", "KEY": {"a": 1}}', '{"name": "g", "KEY": {"x": 1}}')
FAMILIES = [HERMES, LLAMA, MISTRAL, MISTRAL_NAMED, GRANITE, PHI, NEMOTRON]


def chat_of(*tools: Any, choice: Any = None, is_parallel: bool = True) -> Chat:
    return Chat.read(
        [{"role": "user", "content": "x"}], tools=tools, tool_choice=choice, parallel_tool_calls=is_parallel
    )


def spell(mark: str) -> list[str]:
    letters = json.dumps(mark)
    return [f"<[{END + CONTROL.index(mark)}]>", letters] if mark in CONTROL else [letters]


def ids_of(text: str, *, with_control: bool) -> list[int]:
    ids: list[int] = []
    while text:
        mark = next((mark for mark in CONTROL if with_control and text.startswith(mark)), None)
        ids += [END + CONTROL.index(mark)] if mark else [*text[0].encode()]
        text = text[len(mark or text[0]) :]
    return ids


def follows(text: str, source: str, *, before: str | None = None, with_control: bool = True) -> bool:
    """Whether the grammar lets a model say exactly this."""
    grammar = COMPILER.compile(Structure(kind=StructureKind.LARK, source=source), before=before)
    for token_id in [*ids_of(text, with_control=with_control), END]:
        mask = grammar.allowed()
        if not mask[token_id // 8] >> (token_id % 8) & 1:
            return False
        grammar.advance(token_id)
    return True


def spoken(calls: CallFormat, *objects: str) -> str:
    """Calls in the words of a family."""
    texts = [each.replace("KEY", calls.arguments_key) for each in objects]
    if calls is MISTRAL_NAMED:
        read = [json.loads(text) for text in texts]
        return "".join(f"[TOOL_CALLS]{call['name']}[ARGS]{json.dumps(call['arguments'])}" for call in read)
    if calls is LLAMA:
        return "; ".join(texts)
    if calls is HERMES:
        return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts)
    return f"{calls.opening}[{', '.join(texts)}]{calls.closing}"


def grammar_of(calls: CallFormat, chat: Chat, *, think: ThinkFormat | None = None) -> str:
    return call_grammar(chat, calls=calls, think=think, spell=spell)


def test_a_grammar_is_needed_where_something_is_promised() -> None:
    assert needs_grammar(chat_of(LOOSE, choice="required"))
    assert needs_grammar(chat_of(STRICT))
    assert needs_grammar(chat_of(LOOSE, is_parallel=False))
    assert not needs_grammar(chat_of(LOOSE))
    assert not needs_grammar(chat_of(STRICT, choice="none"))


@pytest.mark.parametrize("calls", FAMILIES)
@pytest.mark.parametrize("with_control", [True, False])
def test_a_required_call_is_one_of_those_offered_with_its_schema(calls: CallFormat, with_control: bool) -> None:
    source = grammar_of(calls, chat_of(STRICT, LOOSE, choice="required"))
    right = F.replace("f", "g", 1)
    for said, is_right in (
        (spoken(calls, F), True),
        (spoken(calls, F, right), True),
        (spoken(calls, G), False),
        (spoken(calls, F.replace("1", '"1"')), False),
        (spoken(calls, F.replace('"f"', '"h"')), False),
        (f"So {spoken(calls, F)}", False),
        (f"{spoken(calls, F)} so", False),
        ("So", False),
        ("", False),
    ):
        assert follows(said, source, with_control=with_control) is is_right, said


@pytest.mark.parametrize("calls", FAMILIES)
def test_one_call_is_one_call(calls: CallFormat) -> None:
    source = grammar_of(calls, chat_of(LOOSE, choice="required", is_parallel=False))
    right = G.replace('"x"', '"a"')
    assert follows(spoken(calls, right), source)
    assert not follows(spoken(calls, right, right), source)


@pytest.mark.parametrize("calls", FAMILIES)
def test_a_named_function_is_the_one(calls: CallFormat) -> None:
    source = grammar_of(calls, chat_of(STRICT, LOOSE, choice={"type": "function", "function": {"name": "g"}}))
    assert follows(spoken(calls, G.replace('"x"', '"a"')), source)
    assert not follows(spoken(calls, F), source)


@pytest.mark.parametrize("calls", FAMILIES)
@pytest.mark.parametrize("with_control", [True, False])
def test_a_strict_call_may_come_after_text_and_is_held_from_its_mark_on(calls: CallFormat, with_control: bool) -> None:
    source = grammar_of(calls, chat_of(STRICT, LOOSE))
    broken = spoken(calls, F.replace('"a"', '"b"'))
    for said, is_right in (
        ("", True),
        ("Some { text [ of < any kind", True),
        (spoken(calls, F), True),
        (spoken(calls, F, G), True),  # only strict ones are held to their schema
        (broken, False),
    ):
        assert follows(said, source, with_control=with_control) is is_right, said
    if calls is not LLAMA:
        assert follows(f"So\n{spoken(calls, F)}", source, with_control=with_control)
        assert not follows(f"So\n{broken}", source, with_control=with_control)
    else:
        assert follows(f"So<|python_tag|>{spoken(calls, F)}", source, with_control=with_control)
        assert not follows(f"So<|python_tag|>{broken}", source, with_control=with_control)


@pytest.mark.parametrize("think", [THINK, CONTROL_THINK])
@pytest.mark.parametrize("choice", [None, "required"])
def test_reasoning_comes_before_whatever_is_held(think: ThinkFormat, choice: Any) -> None:
    call = spoken(HERMES, F)
    source = grammar_of(HERMES, chat_of(STRICT, choice=choice), think=think)
    before = before_answer(think, is_thinking=False, spell=spell)
    thought = f"{think.opening}hm <tool_call> {{{think.closing}\n\n"
    assert follows(f"{thought}{call}", source, before=before)
    assert follows(call, source, before=before)
    assert not follows(f"{think.opening}hm", source, before=before)
    assert not follows(f"{thought}<tool_call>x", source, before=before)
    opened = before_answer(think, is_thinking=True, spell=spell)
    held = grammar_of(HERMES, chat_of(STRICT, choice=choice))
    assert follows(f"hm <tool_call> {{{think.closing}\n{call}", held, before=opened)
    assert not follows(call, held, before=opened)


@pytest.mark.parametrize(
    ("structure", "said"),
    [
        (Structure(kind=StructureKind.JSON_SCHEMA, source=json.dumps(SCHEMA)), '{"a": 1}'),
        (Structure(kind=StructureKind.JSON_OBJECT), '{"b": []}'),
        (Structure(kind=StructureKind.REGEX, source="a/b+"), "a/bb"),
        (Structure(kind=StructureKind.CHOICE, choices=("so", "ßo")), "ßo"),
        (Structure(kind=StructureKind.LARK, source='start: "x" "y"'), "xy"),
    ],
)
def test_every_structure_may_come_after_reasoning(structure: Structure, said: str) -> None:
    before = before_answer(THINK, is_thinking=True, spell=spell)
    grammar = COMPILER.compile(structure, before=before)
    for byte in [*f"hm {{ x</think>\n{said}".encode(), END]:
        mask = grammar.allowed()
        assert mask[byte // 8] >> (byte % 8) & 1, said
        grammar.advance(byte)


def test_a_schema_with_references_of_its_own_holds() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "integer"}},
    }
    schema |= {"required": ["a"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    source = grammar_of(HERMES, chat_of(tool, choice="required"))
    assert follows(spoken(HERMES, F), source)
    assert not follows(spoken(HERMES, F.replace("1", "true")), source)


@pytest.mark.parametrize("schema", [{"properties": {"a": {"type": "strng"}}}, {"properties": {"a": {"$ref": "#/no"}}}])
def test_a_schema_the_compiler_does_not_take_is_refused(schema: dict[str, Any]) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    source = grammar_of(HERMES, chat_of(tool, choice="required"))
    with pytest.raises(ParamsError):
        COMPILER.compile(Structure(kind=StructureKind.LARK, source=source))
