"""What an answer in a chat is made of, whole and piece by piece; no API's spelling of it.

Made by AnswerReader; read by Result, the server's replies and whoever else shows answers.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model made. `arguments` is the text of a JSON object, as the model wrote it."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """More of what the model says."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call begins: the `index`-th of its answer."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments of the call that began last."""

    index: int
    text: str


Piece = Reasoning | Content | CallBegin | CallArguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """One answer, complete."""

    reasoning: str = ""
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


def answer_of(pieces: Iterable[Piece]) -> ChatAnswer:
    """All pieces of one answer, joined."""
    reasoning: list[str] = []
    content: list[str] = []
    names: list[str] = []
    arguments: list[str] = []
    for piece in pieces:
        match piece:
            case Reasoning(text):
                reasoning.append(text)
            case Content(text):
                content.append(text)
            case CallBegin(_, name):
                names.append(name)
                arguments.append("")
            case CallArguments(index, text):
                arguments[index] += text
    calls = tuple(ToolCall(name, text) for name, text in zip(names, arguments, strict=True))
    return ChatAnswer(reasoning="".join(reasoning), content="".join(content), tool_calls=calls)
