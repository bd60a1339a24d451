"""Messages of Ollama's chat: read into OpenAI's form, calls and results brought together, mistakes at their place."""

from typing import Any

import pytest

from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields
from twostroke.serve.ollama.messages import OpenCalls, read_chat_messages


def read(*messages: Any) -> list[dict[str, Any]]:
    fields = Fields({"messages": list(messages)})
    found = [dict(message) for message in read_chat_messages(fields)]
    fields.end()
    fields.refuse_unknown()
    return found


def refused(*messages: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(*messages)
    return caught.value


def called(name: str, call_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    return call if call_id is None else call | {"id": call_id}


def asked(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def result(text: str, **whose: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, **whose}


def ids_of(messages: list[dict[str, Any]]) -> list[str | None]:
    """Of results, in their order."""
    return [message.get("tool_call_id") for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_a_plain_message_is_its_role_and_text(role: str) -> None:
    assert read({"role": role, "content": "hi"}) == [{"role": role, "content": "hi"}]


def test_no_messages_are_none() -> None:
    assert read() == []
    assert read_chat_messages(Fields({"messages": None})) == ()


def test_an_answer_may_have_thought_and_need_not_have_spoken() -> None:
    assert read({"role": "assistant"}) == [{"role": "assistant", "content": ""}]
    assert read({"role": "assistant", "content": "4", "thinking": "2+2"}) == [
        {"role": "assistant", "content": "4", "reasoning_content": "2+2"}
    ]
    assert read({"role": "assistant", "content": "4", "thinking": "", "tool_calls": []}) == [
        {"role": "assistant", "content": "4"}
    ]


def test_calls_without_ids_get_some_of_nine_letters_and_results_find_theirs() -> None:
    found = read(asked(called("a", x=1), called("b")), result("of a", tool_name="a"), result("of b"))
    calls = found[0]["tool_calls"]
    assert [call["id"] for call in calls] == ["call00001", "call00002"]
    assert calls[0] == {"id": "call00001", "type": "function", "function": {"name": "a", "arguments": {"x": 1}}}
    assert found[1] == {"role": "tool", "content": "of a", "tool_call_id": "call00001", "name": "a"}
    assert found[2] == {"role": "tool", "content": "of b", "tool_call_id": "call00002", "name": "b"}


def test_results_in_another_order_find_their_calls_by_name_or_id() -> None:
    calls = asked(called("a"), called("b"), called("a", "mine"))
    assert ids_of(read(calls, result("", tool_name="b"), result("", tool_call_id="mine"), result(""))) == [
        "call00002",
        "mine",
        "call00001",
    ]
    assert ids_of(read(calls, result("", name="a"), result("", name="a"))) == ["call00001", "mine"]


def test_ids_go_on_from_one_answer_to_the_next() -> None:
    found = read(asked(called("a")), result("1"), asked(called("a"), called("a")), result("2"), result("3"))
    assert ids_of(found) == ["call00001", "call00002", "call00003"]


def test_a_result_nobody_called_for_is_told_as_far_as_it_is_known() -> None:
    assert read(result("?")) == [{"role": "tool", "content": "?"}]
    assert read(result("?", tool_name="f")) == [{"role": "tool", "content": "?", "name": "f"}]
    found = read(asked(called("a")), result("?", tool_name="b"), result("a's"))
    assert found[1] == {"role": "tool", "content": "?", "name": "b"}
    assert found[2]["tool_call_id"] == "call00001", "a stranger's result takes no call away"


def test_a_call_answered_once_is_open_no_more() -> None:
    calls = OpenCalls()
    assert [calls.add("f", None), calls.add("f", "own")] == ["call00001", "own"]
    assert calls.result("f", None) == ("call00001", "f")
    assert calls.result(None, "own") == ("own", "f")
    assert calls.result("f", None) == (None, "f")


@pytest.mark.parametrize(
    ("message", "param", "words"),
    [
        ("hi", "messages[1]", "messages[1] is 'hi', a string: it must be an object"),
        ({"content": "x"}, "messages[1].role", "it must be one of system, user, assistant, tool"),
        ({"role": "developer", "content": "x"}, "messages[1].role", "messages[1].role is 'developer'"),
        ({"role": "user"}, "messages[1].content", "it must be a string"),
        ({"role": "user", "content": ["x"]}, "messages[1].content", "it must be a string"),
        ({"role": "assistant", "content": 5}, "messages[1].content", "messages[1].content is 5"),
        ({"role": "user", "content": "x", "images": ["aGk="]}, "messages[1].images", "reads no images"),
        (asked({"type": "code"}), "messages[1].tool_calls[0].type", 'it must be "function"'),
        (asked({}), "messages[1].tool_calls[0].function", "an object with name and arguments"),
        (asked({"function": {"name": "f"}}), "messages[1].tool_calls[0].function.arguments", "is missing"),
        (
            asked(called("f"), {"function": {"name": "f", "arguments": "{}"}}),
            "messages[1].tool_calls[1].function.arguments",
            "it must be an object",
        ),
        (result("x", tool_name=5), "messages[1].tool_name", "it must be a string"),  # type: ignore[arg-type]
    ],
)
def test_a_mistake_is_told_at_its_place(message: Any, param: str, words: str) -> None:
    error = refused({"role": "user", "content": "hi"}, message)
    assert (error.status, error.param) == (400, param)
    assert words in str(error)


def test_keys_nobody_knows_pass_where_they_are_null_and_are_named_where_not() -> None:
    assert read({"role": "user", "content": "x", "images": None, "foo": None}) == [{"role": "user", "content": "x"}]
    assert read(asked(called("f") | {"index": None}))[0]["tool_calls"][0]["id"] == "call00001"
    error = refused({"role": "user", "content": "x", "foo": 1}, {"role": "user", "content": "x", "bar": 2})
    assert "messages[0].foo, messages[1].bar are refused" in str(error)
    assert error.code == "unknown_field"
