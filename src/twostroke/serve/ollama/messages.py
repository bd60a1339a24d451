"""The messages of Ollama's chat, read strictly: text, in the roles templates know, with earlier calls and results.

Called by `wish`; what comes out has OpenAI's form, which templates are written for: calls and their results get the ids
that Ollama's clients need not know.
"""

from collections.abc import Mapping
from typing import Any

from twostroke.serve.fields import Fields, one_of
from twostroke.serve.harmless import Harmless, among, take_harmless

ROLES = ("system", "user", "assistant", "tool")
NO_IMAGES = Harmless("images", among([]), "this server reads no images, leave them out")


def read_chat_messages(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Every message; none where the model is only to be loaded. Raises ApiError at the place of the first mistake.

    Clients send an answer back whole: keys that are null pass.
    """
    messages, calls = fields.array("messages") or [], OpenCalls()
    return tuple(_message(fields.inside(message, f"messages[{at}]"), calls) for at, message in enumerate(messages))


class OpenCalls:
    """Calls whose results have not come yet, oldest first."""

    def __init__(self) -> None:
        self._num_ids = 0
        self._open: list[tuple[str, str]] = []  # id and name

    def add(self, name: str, call_id: str | None) -> str:
        """The id of a call, its own or a new one of nine letters, which every template takes."""
        self._num_ids += 1
        call_id = call_id or f"call{self._num_ids:05d}"
        self._open.append((call_id, name))
        return call_id

    def result(self, name: str | None, call_id: str | None) -> tuple[str | None, str | None]:
        """Id and name of the call a result belongs to, as far as they can be known."""
        for each in self._open:
            if call_id in (None, each[0]) and name in (None, each[1]):
                self._open.remove(each)
                return each
        return call_id, name


def _message(message: Fields, calls: OpenCalls) -> Mapping[str, Any]:
    role = message.take("role")
    if not isinstance(role, str) or role not in ROLES:
        raise message.wrong("role", one_of(ROLES))
    read: dict[str, Any] = {"role": role}
    if role == "assistant":
        read |= _answer(message, calls)
    else:
        content = message.take("content")
        if not isinstance(content, str):
            raise message.wrong("content", "a string")
        read["content"] = content
    if role == "tool":
        read |= _result(message, calls)
    take_harmless(message, [NO_IMAGES])
    message.end(null_keys_pass=True)
    return read


def _answer(message: Fields, calls: OpenCalls) -> dict[str, Any]:
    """An earlier answer: what it said, what it thought, what it called."""
    read: dict[str, Any] = {"content": message.text("content") or ""}
    thinking = message.text("thinking")
    if thinking:
        read["reasoning_content"] = thinking
    place = f"{message.place}tool_calls"
    given = message.array("tool_calls") or []
    if given:
        read["tool_calls"] = [_call(message.inside(call, f"{place}[{at}]"), calls) for at, call in enumerate(given)]
    return read


def _call(call: Fields, calls: OpenCalls) -> dict[str, Any]:
    call_id, kind, function = call.text("id"), call.take("type"), call.object("function")
    if kind not in (None, "function"):
        raise call.wrong("type", '"function"')
    call.end(null_keys_pass=True)
    if function is None:
        raise call.wrong("function", "an object with name and arguments")
    name: str = function.required("name", str, "a string")
    arguments: dict[str, Any] = function.required("arguments", dict, "an object")
    function.look_at("index")  # their order says it too
    function.end(null_keys_pass=True)
    return {
        "id": calls.add(name, call_id),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _result(message: Fields, calls: OpenCalls) -> dict[str, Any]:
    """Whose result it is; `name` is an older word for `tool_name`."""
    name, older, call_id = message.text("tool_name"), message.text("name"), message.text("tool_call_id")
    call_id, name = calls.result(name or older, call_id)
    known = {"tool_call_id": call_id, "name": name}
    return {key: value for key, value in known.items() if value is not None}
