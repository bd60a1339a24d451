"""The flags of `run` for what goes beside a conversation: tools, reasoning, what the chat template is told."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from twostroke.chat.chat import Chat
from twostroke.cli.idle_flags import idle
from twostroke.cli.text_file import read_text
from twostroke.errors import ConfigError, ParamsError

Tools = Annotated[Path | None, typer.Option(help="File of functions, a JSON array as OpenAI writes it; see --json.")]
ToolChoiceName = Annotated[str | None, typer.Option(help="With --tools: none, auto (default), required, or a name.")]
ReasoningEffort = Annotated[str | None, typer.Option(help="How much to think; none: not at all, where it can be off.")]
TemplateKwargs = Annotated[str | None, typer.Option(help="JSON object of what else the chat template reads.")]
NAMED_CHOICE = "tool_choice.function.name"  # where an API's client has a function's name; here it is the whole value


def said_chat(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Path | None = None,
    tool_choice: str | None = None,
    reasoning_effort: str | None = None,
    template_kwargs: str | None = None,
) -> Chat:
    """The conversation with what was said beside it. Raises ConfigError and ParamsError before any model is loaded."""
    if tool_choice is not None and tools is None:
        raise idle("tool_choice", ["tools"])
    words = ("none", "auto", "required")
    named = tool_choice if tool_choice in (None, *words) else {"type": "function", "function": {"name": tool_choice}}
    variables = None if template_kwargs is None else _json("--template-kwargs", template_kwargs)
    try:
        return Chat.read(
            messages,
            tools=None if tools is None else _json("--tools", read_text(tools, flag="--tools")),
            tool_choice=named,
            reasoning_effort=reasoning_effort,
            chat_template_kwargs=variables,
        )
    except ParamsError as error:
        if error.field != NAMED_CHOICE:
            raise
        told, must_be, functions = str(error).removeprefix(NAMED_CHOICE).rpartition("must be")
        said = f"tool_choice{told}{must_be} {', '.join(words)} or{functions}"
        raise ParamsError(said, field="tool_choice") from None


def _json(flag: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{flag} is no JSON: {error}") from None
