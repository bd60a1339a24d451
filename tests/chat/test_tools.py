"""Functions and choices as clients write them; every mistake at its place."""

from typing import Any

import pytest

from twostroke.chat.tools import MAX_TOOLS, Tool, ToolChoice, ToolMode, read_choice, read_tools
from twostroke.errors import ParamsError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **fields}}


def test_a_function_is_read_and_shown_to_templates_without_what_is_not_theirs() -> None:
    (tool,) = read_tools([function(description="says", parameters=SCHEMA, strict=True)])
    assert tool == Tool(name="f", description="says", parameters=SCHEMA, is_strict=True)
    assert tool.as_shown() == function(description="says", parameters=SCHEMA)
    assert read_tools([function(description=None, strict=None)])[0].as_shown() == function()


def test_a_function_without_parameters_takes_none() -> None:
    (tool,) = read_tools([function()])
    assert tool.schema == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        ([], "tools"),
        ("f", "tools"),
        ({}, "tools"),
        ([function()] * (MAX_TOOLS + 1), "tools"),
        ([function(), function()], "tools"),
        (["f"], "tools[0]"),
        ([function(), {"type": "custom"}], "tools[1].type"),
        ([{"type": "function"}], "tools[0].function"),
        ([function(name="a b")], "tools[0].function.name"),
        ([function(name="")], "tools[0].function.name"),
        ([function(name="x" * 65)], "tools[0].function.name"),
        ([function(name=5)], "tools[0].function.name"),
        ([function(description=5)], "tools[0].function.description"),
        ([function(parameters=[])], "tools[0].function.parameters"),
        ([function(parameters={"type": "array"})], "tools[0].function.parameters.type"),
        ([function(strict="yes")], "tools[0].function.strict"),
        ([function(x=1)], "tools[0].function.x"),
        ([{**function(), "y": 0}], "tools[0].y"),
    ],
)
def test_other_tools_are_refused_at_their_place(tools: Any, field: str) -> None:
    with pytest.raises(ParamsError) as refused:
        read_tools(tools)
    assert refused.value.field == field
    assert len(str(refused.value)) < 300


TOOLS = (Tool(name="f"), Tool(name="g"))


@pytest.mark.parametrize(
    ("value", "choice"),
    [
        (None, ToolChoice(ToolMode.AUTO)),
        ("auto", ToolChoice(ToolMode.AUTO)),
        ("none", ToolChoice(ToolMode.NONE)),
        ("required", ToolChoice(ToolMode.REQUIRED)),
        ({"type": "function", "function": {"name": "g"}}, ToolChoice(ToolMode.REQUIRED, "g")),
    ],
)
def test_a_choice_is_a_word_or_a_named_function(value: Any, choice: ToolChoice) -> None:
    assert read_choice(value, TOOLS) == choice


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("any", "tool_choice"),
        (5, "tool_choice"),
        ({"type": "allowed_tools"}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.function"),
        ({"type": "function", "function": {"name": "h"}}, "tool_choice.function.name"),
        ({"type": "function", "function": {}}, "tool_choice.function.name"),
        ({"type": "function", "function": {"name": "f"}, "x": 1}, "tool_choice.x"),
    ],
)
def test_other_choices_are_refused_at_their_place(value: Any, field: str) -> None:
    with pytest.raises(ParamsError) as refused:
        read_choice(value, TOOLS)
    assert refused.value.field == field


def test_a_call_cannot_be_required_of_nobody() -> None:
    assert read_choice("none", ()) == ToolChoice(ToolMode.NONE)
    assert read_choice("auto", ()) == ToolChoice(ToolMode.AUTO)
    with pytest.raises(ParamsError, match="send tools"):
        read_choice("required", ())
