"""Functions a model may call and which of them it must, read strictly from the objects OpenAI's clients send.

`LLM.chat` and the server read the same form here. Judges a schema's place, not its contents: that is for the grammar
compiler, where a function's arguments are held to it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from twostroke.errors import ParamsError

MAX_TOOLS = 128  # OpenAI's limit
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One function. `parameters` is the JSON schema of its arguments; `is_strict` holds every call to it."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    is_strict: bool = False

    @property
    def schema(self) -> Mapping[str, Any]:
        return _NO_ARGUMENTS if self.parameters is None else self.parameters

    def as_shown(self) -> dict[str, Any]:
        """What a template sees, in the form the transformers library gives it."""
        told = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": {key: value for key, value in told.items() if value is not None}}


class ToolMode(StrEnum):
    """Whether the answer is a call."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"  # at least one; of one function where it is named


@dataclass(frozen=True, slots=True)
class ToolChoice:
    mode: ToolMode = ToolMode.AUTO
    name: str | None = None


def read_tools(values: object) -> tuple[Tool, ...]:
    """Functions as OpenAI writes them. Raises ParamsError at the place of the first mistake."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or not values:
        raise ParamsError("tools must be a non-empty array of functions, or be left out", field="tools")
    if len(values) > MAX_TOOLS:
        raise ParamsError(f"tools has {len(values)} functions: the limit is {MAX_TOOLS}", field="tools")
    tools = tuple(_tool(value, f"tools[{index}]") for index, value in enumerate(values))
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ParamsError(f"tools[{index}].function.name is {name!r}: another function has it", field="tools")
    return tools


def _tool(value: object, place: str) -> Tool:
    if isinstance(value, Tool):
        return value
    fields = _object(value, place, known=("type", "function"))
    if fields.get("type", "function") != "function":
        raise _wrong(f"{place}.type", '"function", the only kind this server knows', fields["type"])
    inner = f"{place}.function"
    fields = _object(fields.get("function"), inner, known=("name", "description", "parameters", "strict"))
    name, description, parameters = (fields.get(key) for key in ("name", "description", "parameters"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(f"{inner}.name", "1 to 64 letters, digits, dashes or underscores", name)
    if not isinstance(description, str | None):
        raise _wrong(f"{inner}.description", "a string", description)
    if not isinstance(parameters, Mapping | None):
        raise _wrong(f"{inner}.parameters", "a JSON schema, an object", parameters)
    if parameters and parameters.get("type", "object") != "object":
        raise _wrong(f"{inner}.parameters.type", '"object": arguments have names', parameters["type"])
    strict = fields.get("strict")
    if not isinstance(strict, bool | None):
        raise _wrong(f"{inner}.strict", "true or false", strict)
    return Tool(name=name, description=description, parameters=parameters, is_strict=bool(strict))


def read_choice(value: object, tools: Sequence[Tool]) -> ToolChoice:
    """Which functions to call, as OpenAI writes it; absent is auto. Raises ParamsError."""
    if value is None:
        return ToolChoice()
    if isinstance(value, str):
        if value not in tuple(ToolMode):
            raise _wrong("tool_choice", f"one of {', '.join(ToolMode)}, or a named function", value)
        choice = ToolChoice(ToolMode(value))
    else:
        fields = _object(value, "tool_choice", known=("type", "function"))
        if fields.get("type") != "function":
            raise _wrong("tool_choice.type", '"function"', fields.get("type"))
        name = _object(fields.get("function"), "tool_choice.function", known=("name",)).get("name")
        names = [tool.name for tool in tools]
        if not isinstance(name, str) or (tools and name not in names):
            raise _wrong("tool_choice.function.name", f"one of {', '.join(names)}", name)
        choice = ToolChoice(ToolMode.REQUIRED, name)
    if choice.mode is ToolMode.REQUIRED and not tools:
        raise ParamsError("tool_choice asks for a call and there are no tools: send tools", field="tool_choice")
    return choice


def _object(value: object, place: str, *, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(place, "an object", value)
    unknown = [str(key) for key in value if key not in known and value[key] is not None]
    if unknown:
        raise ParamsError(
            f"{place}.{unknown[0][:64]} is not honoured: leave it out (honoured: {', '.join(known)})",
            field=f"{place}.{unknown[0][:64]}",
        )
    return value


def _wrong(place: str, wanted: str, value: object) -> ParamsError:
    told = repr(value)
    return ParamsError(f"{place} is {told if len(told) <= 80 else told[:80] + '...'}: it must be {wanted}", field=place)
