"""The grammars of calls and of what comes before an answer, in the Lark notation of llguidance.

A required or strict call follows the schema of its function from its first brace. Used by ChatPrompts; compiles
nothing.
"""

import json
import re
from collections.abc import Callable, Sequence

from twostroke.chat.answer_format import CallFormat, CallLayout, ThinkFormat
from twostroke.chat.chat import Chat
from twostroke.chat.tools import Tool, ToolMode
from twostroke.structure import JSON_OPTIONS

Spell = Callable[[str], list[str]]  # a mark as terms of the grammar: its letters, and its token where it has one

_PAD = r"PAD: /[ \n]{0,2}/"  # between a mark and what follows


def needs_grammar(chat: Chat) -> bool:
    """Whether a call must be held to its schema, or calls to one."""
    if not chat.offered:
        return False
    is_strict = any(tool.is_strict for tool in chat.offered)
    return chat.choice.mode is ToolMode.REQUIRED or is_strict or not chat.is_parallel


def call_grammar(chat: Chat, *, calls: CallFormat, think: ThinkFormat | None, spell: Spell) -> str:
    """An answer that calls, or may: then text of any kind comes before the first call.

    `think`: marks the answer may begin with, which `before_answer` takes care of: its text does not begin with them.
    """
    is_required = chat.choice.mode is ToolMode.REQUIRED
    rules = [_arguments(index, tool, is_required) for index, tool in enumerate(chat.offered)]
    rules += _objects(calls, chat.offered)
    marks = {"open": calls.opening, "close": calls.closing, "after_name": calls.after_name}
    rules += [_PAD, *(f"{name}: {' | '.join(spell(mark))}" for name, mark in marks.items() if mark)]
    several = _several(calls, is_parallel=chat.is_parallel)
    if is_required:
        return "\n".join([f"start: {'' if calls.is_bare else 'open '}{several}", *rules])
    leads = _up_to("lead", spell(calls.opening))
    bare = f" | {several}" if calls.is_bare else ""
    return "\n".join([f"start: text | lead {several}{bare}", "text: TEXT", *leads, *rules, _free_text(calls, think)])


def _arguments(index: int, tool: Tool, is_required: bool) -> str:
    schema = tool.schema if is_required or tool.is_strict else {"type": "object"}
    return f"args{index}: %json {json.dumps({**schema, 'x-guidance': JSON_OPTIONS}, ensure_ascii=False)}"


def _objects(calls: CallFormat, tools: Sequence[Tool]) -> list[str]:
    """One rule per function: a call without its marks."""
    if calls.layout is CallLayout.NAMED:
        heads = [_literal(tool.name) + " after_name" for tool in tools]
        tail = ""
    else:
        heads = [_literal(f'{{"name": "{tool.name}", "{calls.arguments_key}": ') for tool in tools]
        tail = ' "}"'
    rules = [f"call{index}: {head} args{index}{tail}" for index, head in enumerate(heads)]
    return [*rules, f"call: {' | '.join(f'call{index}' for index in range(len(tools)))}"]


def _several(calls: CallFormat, *, is_parallel: bool) -> str:
    """What follows the first opening mark: one call or more, with all marks between and after them."""
    closing = " PAD close" if calls.closing else ""
    if calls.layout is CallLayout.LIST:
        others = ' (", " call)*' if is_parallel else ""
        return f'PAD "[" call{others} "]"{closing}'
    one = f"PAD call{closing}"
    if not is_parallel:
        return one
    if calls.is_bare:
        return f'{one} (";" PAD call)*'
    return f"{one} (PAD open {one})*"


def _free_text(calls: CallFormat, think: ThinkFormat | None) -> str:
    """Text that begins neither a call nor reasoning."""
    text = r"/([ \t\r\n]*[^{ \t\r\n](.|\n)*)?/" if calls.is_bare else r"/(.|\n)*/"
    return f"TEXT: {text}" + (rf" & ~/[ \t\r\n]*{_escaped(think.opening)}(.|\n)*/" if think else "")


def _up_to(name: str, terms: Sequence[str]) -> list[str]:
    """Rules of a text that ends with the first of a mark's terms: its token, or its letters."""
    rules = [f": TEXT {term}" if term.startswith("<") else f"[lazy]: TEXT {term}" for term in terms]
    numbered = [f"{name}{index}" for index in range(len(terms))]
    return [f"{name}: {' | '.join(numbered)}", *map(str.__add__, numbered, rules)]


def before_answer(think: ThinkFormat, *, is_thinking: bool, spell: Spell) -> str:
    """A grammar of what comes before `@answer`: reasoning that the prompt has opened, or that the answer may open."""
    if is_thinking:
        start = "start: thought PAD @answer"
    else:
        start = f"start: @answer | ({' | '.join(spell(think.opening))}) thought PAD @answer"
    return "\n".join([start, *_up_to("thought", spell(think.closing)), r"TEXT: /(.|\n)*/", _PAD])


def _escaped(mark: str) -> str:
    return re.escape(mark).replace("/", r"\/")


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
