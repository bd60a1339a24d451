"""What goes beside a conversation, within limits."""

from typing import Any

import pytest

from twostroke.chat.chat import MAX_VARIABLES_BYTES, RESERVED, Chat
from twostroke.chat.nesting import MAX_LEVELS
from twostroke.errors import ParamsError, PromptError

USER = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_nobody_says_what_the_model_or_the_request_says(name: str) -> None:
    with pytest.raises(ParamsError) as refused:
        Chat(messages=USER, variables={name: 1})
    assert refused.value.field == "chat_template_kwargs"


@pytest.mark.parametrize(
    "variables", [{"render budget": 1}, {"a.b": 1}, {"": 1}, {5: 1}, {"a": {1, 2}}, {"a": "x" * MAX_VARIABLES_BYTES}, 5]
)
def test_other_variables_are_refused(variables: Any) -> None:
    with pytest.raises(ParamsError) as refused:
        Chat(messages=USER, variables=variables)
    assert refused.value.field == "chat_template_kwargs"


@pytest.mark.parametrize("levels", [MAX_LEVELS, 10_000])
def test_nesting_beyond_reason_is_refused(levels: int) -> None:
    deep: Any = []
    for _ in range(levels):
        deep = [deep]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"enum": deep}}}
    for field, asked in (
        ("messages", {"messages": [{"role": "user", "content": deep}]}),
        ("tools", {"messages": USER, "tools": [tool]}),
        ("chat_template_kwargs", {"messages": USER, "chat_template_kwargs": {"a": deep}}),
    ):
        with pytest.raises(ParamsError) as refused:
            Chat.read(**asked)
        assert refused.value.field == field


def test_a_schema_people_write_is_not_too_deep() -> None:
    schema: Any = {"type": "string"}
    for _ in range(20):
        schema = {"type": "object", "properties": {"a": schema}}
    assert Chat.read(USER, tools=[{"function": {"name": "f", "parameters": schema}}]).tools[0].parameters == schema


@pytest.mark.parametrize("messages", ["hi", 5, None])
def test_what_is_no_list_of_messages_is_refused(messages: Any) -> None:
    with pytest.raises(PromptError):
        Chat(messages=messages)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, ["f", "g"]),
        ("required", ["f", "g"]),
        ("none", []),
        ({"type": "function", "function": {"name": "g"}}, ["g"]),
    ],
)
def test_the_choice_says_which_functions_may_be_called(choice: Any, names: list[str]) -> None:
    chat = Chat.read(USER, tools=TOOLS, tool_choice=choice)
    assert [tool.name for tool in chat.offered] == names
