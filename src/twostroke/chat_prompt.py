"""Conversations made ready for one model: what its template renders, and how the answer is held to and read.

`ChatPrompts` is made once per loaded model and asked by LLM, on the caller's thread. A request its template would drop
part of is refused here, with the fix.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from twostroke.chat.answer_format import AnswerFormat, answer_format
from twostroke.chat.call_grammar import before_answer, call_grammar, needs_grammar
from twostroke.chat.chat import Chat
from twostroke.chat.nesting import is_too_deep
from twostroke.chat.reader import AnswerReader
from twostroke.errors import ParamsError, PromptError
from twostroke.params import SamplingParams
from twostroke.structure import Structure, StructureKind
from twostroke.text.chat_template import ChatTemplate
from twostroke.text.template_traits import TemplateTraits
from twostroke.text.tokenizer import Tokenizer

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SWITCHES = ("enable_thinking", "thinking")  # what templates call the variable that turns reasoning off
_NO_TOOLS = (
    "tools is refused: this model's chat template shows the model no tools; use a model whose template does, or "
    "describe the functions in a message and hold the answer to a schema"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """One conversation, rendered, and what is known of its answer."""

    pieces: list[str | int]  # for Tokenizer.encode_pieces
    answer_format: AnswerFormat
    is_thinking: bool  # the prompt itself opens the reasoning
    names: tuple[str, ...]  # functions the answer may call
    structure: Structure | None  # what holds calls to their schemas
    before: str | None  # a grammar of what comes before any structure
    shown_ids: frozenset[int]
    continues_text: bool  # the answer goes on with a message's own text

    def held(self, params: SamplingParams) -> SamplingParams:
        """The params with what holds calls to their schemas. Raises ParamsError where both cannot be."""
        if not self.names:
            return params
        if params.structure is not None:
            raise ParamsError(
                "structure is given beside tools: an answer has one form, leave one of them out", field="structure"
            )
        return params if self.structure is None else replace(params, structure=self.structure)

    def new_reader(self, params: SamplingParams) -> AnswerReader:
        """What reads the answer; `params` may end it in the middle of a call that its grammar would have completed."""
        is_cut = bool(params.stop or params.stop_regex or params.stop_token_ids)
        is_held = self.structure is not None and not is_cut
        return AnswerReader(self.answer_format, is_thinking=self.is_thinking, names=self.names, is_held=is_held)


class ChatPrompts:
    """What a model's template and tokenizer make of conversations."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._traits = TemplateTraits(template)

    @cached_property
    def answer_format(self) -> AnswerFormat:
        return answer_format(self._template.source)

    def prepare(self, chat: Chat) -> ChatPrompt:
        """Raises ParamsError for what this model cannot do, PromptError and ChatTemplateError as its template does."""
        if self._template.source is not None:  # else rendering says what to do instead
            self._check_tools(chat)
            chat = replace(chat, messages=[_in_text(each, f"messages[{at}]") for at, each in enumerate(chat.messages)])
        messages = [self._message(message, index) for index, message in enumerate(chat.messages)]
        pieces = self._template.render_pieces(
            messages,
            tools=[tool.as_shown() for tool in chat.tools] if chat.offered else None,
            add_generation_prompt=chat.add_generation_prompt,
            continue_final_message=chat.continue_final_message,
            **self._variables(chat),
        )
        return self._prompt(chat, pieces)

    def _prompt(self, chat: Chat, pieces: list[str | int]) -> ChatPrompt:
        found = self.answer_format
        is_thinking, has_thought = self._reasoning(chat, pieces)
        goes_on = chat.continue_final_message and not is_thinking  # with content: too late for thoughts
        think = None if has_thought or goes_on else found.think
        found = AnswerFormat(found.calls if chat.offered else None, think)
        structure = None
        if needs_grammar(chat):
            assert found.calls is not None, "checked before rendering"
            open_think = None if is_thinking else think
            source = call_grammar(chat, calls=found.calls, think=open_think, spell=self._spell)
            structure = _structure(source)
        return ChatPrompt(
            pieces=pieces,
            answer_format=found,
            is_thinking=is_thinking,
            names=tuple(tool.name for tool in chat.offered),
            structure=structure,
            before=None if think is None else before_answer(think, is_thinking=is_thinking, spell=self._spell),
            continues_text=chat.continue_final_message,
            shown_ids=frozenset(
                token_id for mark in found.marks if (token_id := self._tokenizer.control.id_of(mark)) is not None
            ),
        )

    def _spell(self, mark: str) -> list[str]:
        """A mark in a grammar: its token, where it is one that text cannot spell, and its letters."""
        token_id = self._tokenizer.control.id_of(mark)
        letters = json.dumps(mark, ensure_ascii=False)
        return [letters] if token_id is None else [f"<[{token_id}]>", letters]

    def _reasoning(self, chat: Chat, pieces: list[str | int]) -> tuple[bool, bool]:
        """Whether the prompt opens reasoning that the answer goes on with, and whether it closes it at once."""
        think = self.answer_format.think
        if think is None:
            return False, False
        tokens = self._tokenizer.vocabulary.tokens
        text = "".join(piece if isinstance(piece, str) else tokens[piece] for piece in pieces[-8:]).rstrip()
        if chat.continue_final_message:
            said = chat.messages[-1].get("content")
            text = said if isinstance(said, str) else ""
            return text.rfind(think.opening) > text.rfind(think.closing), False
        return text.endswith(think.opening), text.endswith(think.closing)

    # What this model cannot do

    def _check_tools(self, chat: Chat) -> None:
        if not chat.offered:
            return
        if not self._traits.shows_tools:
            raise ParamsError(_NO_TOOLS, field="tools")
        if self.answer_format.calls is None:
            raise ParamsError(
                "tools is refused: this model's chat template writes calls in a form this program does not read; "
                "leave tools out",
                field="tools",
            )

    def _message(self, message: Any, index: int) -> Any:
        """The message as the template wants it; nothing of it may be dropped."""
        if not isinstance(message, Mapping) or self._template.source is None:
            return message
        place = f"messages[{index}]"
        if message.get("role") == "tool" and not self._traits.keeps_results:
            raise PromptError(
                f"{place} has the role tool, which this model's chat template does not show: "
                "tell the result in a user's message",
                field=place,
            )
        if not message.get("tool_calls"):
            return message
        style = self._traits.call_style
        if style is None:
            raise PromptError(
                f"{place}.tool_calls is refused: this model's chat template does not show earlier calls; "
                "leave them out or tell them as content",
                field=f"{place}.tool_calls",
            )
        calls = [_with_object(call, f"{place}.tool_calls[{at}]") for at, call in enumerate(message["tool_calls"])]
        return style.message({**message, "tool_calls": calls})

    def _variables(self, chat: Chat) -> dict[str, Any]:
        known = self._template.variables
        for name in chat.variables:
            if name not in known:
                read = ", ".join(sorted(known & {*_SWITCHES, "reasoning_effort"})) or "none of its own"
                raise ParamsError(
                    f"chat_template_kwargs.{name} is refused: this model's chat template reads no such variable "
                    f"(of those that control reasoning: {read})",
                    field=f"chat_template_kwargs.{name}",
                )
        return {**chat.variables, **self._effort(chat.reasoning_effort, chat.variables), **self._thinking(chat.thinks)}

    def _thinking(self, thinks: bool | None) -> dict[str, Any]:
        """The variables that switch reasoning on or off; a template without any always thinks, or never."""
        can_think = self.answer_format.think is not None
        if thinks is None or (not thinks and not can_think):
            return {}
        if not can_think:
            raise ParamsError(
                "think is true: this model's chat template knows no reasoning, leave think out", field="think"
            )
        switches = [name for name in _SWITCHES if name in self._template.variables]
        if not thinks and not switches:
            raise ParamsError(
                "think is false: this model's chat template cannot switch reasoning off, leave think out", field="think"
            )
        return dict.fromkeys(switches, thinks)

    def _effort(self, effort: str | None, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The variables that ask for this much reasoning."""
        if effort is None:
            return {}
        if effort not in EFFORTS:
            raise ParamsError(
                f"reasoning_effort is {effort!r:.80}: it must be one of {', '.join(EFFORTS)}", field="reasoning_effort"
            )
        known = self._template.variables
        switches = [name for name in _SWITCHES if name in known]
        if "reasoning_effort" in known:
            found: dict[str, Any] = {"reasoning_effort": effort}
        elif effort == "none" and (switches or self.answer_format.think is None):
            found = dict.fromkeys(switches, False)
        else:
            raise ParamsError(
                f"reasoning_effort is {effort!r}: this model's chat template has no such degrees"
                + (", send none or leave it out" if switches else ", leave it out"),
                field="reasoning_effort",
            )
        if found.keys() & variables.keys():
            raise ParamsError(
                "reasoning_effort and chat_template_kwargs say the same: send one of them", field="reasoning_effort"
            )
        return found


def _in_text(message: Any, place: str) -> Any:
    """The message with its parts joined, as the server joins them; templates stumble over anything but text."""
    if not isinstance(message, Mapping):
        return message
    content, field = message.get("content"), f"{place}.content"
    if isinstance(content, str) or (content is None and message.get("tool_calls")):  # who calls may say nothing
        return message
    if not isinstance(content, list | tuple) or not content:
        told = "missing" if content is None else f"of type {type(content).__name__}"
        if isinstance(content, list | tuple):
            told = "an empty list"
        raise PromptError(f"{field} is {told}: it must be text or a list of text parts", field=field)
    return {**message, "content": "".join(_part_text(part, f"{field}[{at}]") for at, part in enumerate(content))}


def _part_text(part: Any, place: str) -> str:
    is_text = isinstance(part, Mapping) and part.keys() == {"type", "text"} and part["type"] == "text"
    if not is_text or not isinstance(part["text"], str):
        raise PromptError(
            f"{place} is {part!r:.80}: it must be a text part, {{'type': 'text', 'text': ...}}, the only kind this "
            "program reads",
            field=place,
        )
    return str(part["text"])


def _structure(source: str) -> Structure:
    try:
        return Structure(kind=StructureKind.LARK, source=source)
    except ParamsError as error:
        raise ParamsError(str(error).replace("structure", "tools, as a grammar,", 1), field="tools") from None


def _with_object(call: Any, place: str) -> dict[str, Any]:
    """An earlier call with its arguments as an object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise PromptError(f"{place} must have a function with a name and arguments", field=place)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, Mapping) or is_too_deep(arguments):
        raise PromptError(
            f"{place}.function.arguments is no JSON object: send an object, as text or as it is",
            field=f"{place}.function.arguments",
        )
    return {**call, "function": {**function, "arguments": dict(arguments)}}
