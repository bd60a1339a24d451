"""The messages of a chat, read strictly: text alone, in the roles templates know, with earlier calls and their results.

Called by `chat_fields`; what comes out goes to the model's own template. Never renders anything.
"""

import json
from collections.abc import Mapping
from typing import Any

from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields, one_of, wrong

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def read_messages(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Every message with its role and text. Raises ApiError at the place of the first mistake.

    Clients send an answer back whole: unknown keys that are null pass.
    """
    messages = fields.required("messages", list, "an array of messages")
    if not messages:
        raise ApiError("messages is empty: send at least one message", param="messages")
    return tuple(_message(fields.inside(message, f"messages[{index}]")) for index, message in enumerate(messages))


def _message(message: Fields) -> Mapping[str, Any]:
    role = message.take("role")
    if not isinstance(role, str) or role not in ROLES:
        raise message.wrong("role", one_of(list(ROLES)))
    read = {"role": ROLES[role]}
    if role == "assistant":
        read |= _answer(message)
    elif role == "tool":
        read |= _result(message)
    else:
        read["content"] = _content(message)
    message.end(null_keys_pass=True)
    return read


def _answer(message: Fields) -> dict[str, Any]:
    """An earlier answer: what it said, what it thought, what it called."""
    calls = message.array("tool_calls")
    if calls == []:
        raise message.wrong("tool_calls", "a non-empty array of calls")
    place = f"{message.place}tool_calls"
    read: dict[str, Any] = {"content": None if calls and message.take("content") is None else _content(message)}
    reasoning = message.text("reasoning_content")
    if reasoning is not None:
        read["reasoning_content"] = reasoning
    if calls:
        read["tool_calls"] = [_call(message.inside(call, f"{place}[{at}]")) for at, call in enumerate(calls)]
    return read


def _call(call: Fields) -> dict[str, Any]:
    call_id: str = call.required("id", str, "a string")
    if call.take("type") not in (None, "function"):
        raise call.wrong("type", '"function"')
    function = call.object("function")
    call.end(null_keys_pass=True)
    if function is None:
        raise call.wrong("function", "an object with name and arguments")
    name: str = function.required("name", str, "a string")
    text: str = function.required("arguments", str, "a JSON object, as text")
    function.end(null_keys_pass=True)
    try:
        arguments = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise function.wrong("arguments", "a JSON object, as text")
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _result(message: Fields) -> dict[str, Any]:
    """What a function said."""
    call_id: str = message.required("tool_call_id", str, "a string")
    name = message.text("name")
    return {"content": _content(message), "tool_call_id": call_id, **({} if name is None else {"name": name})}


def _content(message: Fields) -> str:
    content = message.take("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise message.wrong("content", "a string or a non-empty array of text parts")
    place = f"{message.place}content"
    return "".join(_text_part(message.inside(part, f"{place}[{index}]")) for index, part in enumerate(content))


def _text_part(part: Fields) -> str:
    kind, text = part.take("type"), part.take("text")
    if kind != "text":
        part.end()
        raise wrong(f"{part.place}type", '"text", the only kind this model reads', kind)
    if not isinstance(text, str):
        raise part.wrong("text", "a string")
    part.end()
    return text
