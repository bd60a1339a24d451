"""How the answers of a model are written, found in the text of its template: marks of calls and of reasoning.

A family is known by the marks its template spells, never by a model's name. Read by AnswerReader and the grammar of
calls; a template with other marks has no format, and what its model writes is content.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class CallLayout(StrEnum):
    """What stands inside a call's marks."""

    OBJECT = "object"  # {"name": ..., "arguments": {...}}, or a list of them
    LIST = "list"  # the same, but the model was trained on lists
    NAMED = "named"  # the name, a mark, the arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFormat:
    """The calls of one family."""

    family: str
    opening: str
    closing: str = ""  # none: a call ends with its JSON
    layout: CallLayout = CallLayout.OBJECT
    arguments_key: str = "arguments"
    after_name: str = ""  # the mark of layout NAMED
    is_bare: bool = False  # an answer that begins with "{" is a call too, several have ";" between them
    id_size: int | None = None  # letters an id of a call must have, where the template is strict about it


@dataclass(frozen=True, slots=True)
class ThinkFormat:
    """The marks around what a model thinks before it answers."""

    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What an answer may hold beside content; None is nothing of the kind."""

    calls: CallFormat | None = None
    think: ThinkFormat | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """Every mark an answer's text must show."""
        calls, think = self.calls, self.think
        found = (calls.opening, calls.closing, calls.after_name) if calls else ()
        return tuple(mark for mark in (*found, *((think.opening, think.closing) if think else ())) if mark)


HERMES = CallFormat(family="Hermes", opening="<tool_call>", closing="</tool_call>")
LLAMA = CallFormat(family="Llama", opening="<|python_tag|>", arguments_key="parameters", is_bare=True)
MISTRAL = CallFormat(family="Mistral", opening="[TOOL_CALLS]", layout=CallLayout.LIST, id_size=9)
MISTRAL_NAMED = replace(MISTRAL, family="Mistral, names before arguments", layout=CallLayout.NAMED, after_name="[ARGS]")
GRANITE = CallFormat(family="Granite", opening="<|tool_call|>", layout=CallLayout.LIST)
PHI = CallFormat(family="Phi", opening="<|tool_call|>", closing="<|/tool_call|>", layout=CallLayout.LIST)
NEMOTRON = CallFormat(family="Nemotron", opening="<TOOLCALL>", closing="</TOOLCALL>", layout=CallLayout.LIST)

# Most telling first: what a template must spell, what it must not, the family. Templates that write calls as XML have
# the marks of Hermes around other contents.
_CALLS: tuple[tuple[tuple[str, ...], tuple[str, ...], CallFormat], ...] = (
    (("[TOOL_CALLS]", "[ARGS]"), (), MISTRAL_NAMED),
    (("[TOOL_CALLS]",), (), MISTRAL),
    (("<|tool_call|>", "<|/tool_call|>"), (), PHI),
    (("<|tool_call|>",), (), GRANITE),
    (("<TOOLCALL>",), (), NEMOTRON),
    (("<tool_call>",), ("<function=", "<arg_key>"), HERMES),
    (("<|start_header_id|>", '"parameters"'), ("<tool_call>",), LLAMA),
)
_THOUGHTS = (
    ThinkFormat("<think>", "</think>"),
    ThinkFormat("[THINK]", "[/THINK]"),
    ThinkFormat("<seed:think>", "</seed:think>"),
    ThinkFormat("<|START_THINKING|>", "<|END_THINKING|>"),
    ThinkFormat("\u25c1think\u25b7", "\u25c1/think\u25b7"),
)


def answer_format(template: str | None) -> AnswerFormat:
    """The format of the answers to this template's prompts."""
    if template is None:
        return AnswerFormat()
    calls = next((found for marks, others, found in _CALLS if _spells(template, marks, others)), None)
    return AnswerFormat(calls, next((each for each in _THOUGHTS if each.closing in template), None))


def _spells(template: str, marks: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return all(mark in template for mark in marks) and not any(mark in template for mark in others)
