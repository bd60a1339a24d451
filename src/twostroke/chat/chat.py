"""A conversation as a prompt: its messages, the functions its answer may call, and what else its template is told.

Made by whoever asks (`LLM.chat`, the server), taken by every door that takes prompts. Knows no model.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from twostroke.chat.nesting import MAX_LEVELS, is_too_deep
from twostroke.chat.tools import Tool, ToolChoice, ToolMode, read_choice, read_tools
from twostroke.errors import ParamsError, PromptError

MAX_VARIABLES_BYTES = 2**14  # a template reads switches and dates, not documents
# What a template gets of the conversation, of the model or of its sandbox: nobody else may set it.
RESERVED = frozenset(
    (
        *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message"),
        *("bos_token", "eos_token", "unk_token", "pad_token", "chat_template", "tokenize"),
        *("range", "dict", "namespace", "raise_exception", "strftime_now", "loop", "self", "true", "false", "none"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One conversation.

    messages: as OpenAI's clients write them, contents whole or in text parts; `arguments` of earlier calls are JSON as
        text or an object.
    tools, choice: functions the answer may or must call; with mode `none` the model is not told of them.
    is_parallel: whether it may call several.
    variables: what else the template reads, `enable_thinking` for instance; one it does not read is refused.
    reasoning_effort: how much to think, where the template has a word for it.
    thinks: whether to think before the answer; None is as the template has it.
    add_generation_prompt: open the answer's turn; None does, unless `continue_final_message` leaves the last open.

    Raises ParamsError.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    is_parallel: bool = True
    variables: Mapping[str, Any] = field(default_factory=dict)
    reasoning_effort: str | None = None
    thinks: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    def __post_init__(self) -> None:
        messages: object = self.messages
        if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
            raise PromptError("messages must be a list of messages, each with a role", field="messages")
        _check_variables(self.variables)
        schemas = [tool.parameters for tool in self.tools]
        beside = {"messages": messages, "tools": schemas, "chat_template_kwargs": self.variables}
        for name, value in beside.items():
            if is_too_deep(value):
                raise ParamsError(f"{name} is nested more than {MAX_LEVELS} levels deep: flatten it", field=name)

    @classmethod
    def read(
        cls,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        reasoning_effort: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
    ) -> Self:
        """A conversation from the fields OpenAI's and vLLM's clients write."""
        read = () if tools is None else read_tools(tools)
        return cls(
            messages=messages,
            tools=read,
            choice=read_choice(tool_choice, read),
            is_parallel=parallel_tool_calls,
            variables={} if chat_template_kwargs is None else chat_template_kwargs,
            reasoning_effort=reasoning_effort,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )

    @property
    def offered(self) -> tuple[Tool, ...]:
        """Functions the answer may call."""
        if self.choice.mode is ToolMode.NONE:
            return ()
        return tuple(tool for tool in self.tools if self.choice.name in (None, tool.name))


def _check_variables(variables: object) -> None:
    name = "chat_template_kwargs"
    if not isinstance(variables, Mapping):
        raise ParamsError(f"{name} is of type {type(variables).__name__}: it must be an object", field=name)
    for key in variables:
        if not isinstance(key, str) or not key.isidentifier():
            raise ParamsError(f"{name} has {key!r:.80}, which names no variable of a template", field=name)
        if key in RESERVED:
            raise ParamsError(f"{name}.{key} is refused: the request itself or the model says that", field=name)
    try:
        size = len(json.dumps(variables, ensure_ascii=False).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError):
        raise ParamsError(f"{name} must be plain data, as in JSON", field=name) from None
    if size > MAX_VARIABLES_BYTES:
        raise ParamsError(f"{name} has {size} bytes: the limit is {MAX_VARIABLES_BYTES}", field=name)
