"""The messages of a chat, read strictly: text alone, in the roles templates know.

Called by `openai.read_wish`; what comes out goes to the model's own template. Never renders anything.
"""

from collections.abc import Mapping
from typing import Any

from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields, one_of, wrong

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


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
    content = _content(message)
    message.end(null_keys_pass=True)
    return {"role": ROLES[role], "content": content}


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
