"""The messages of Ollama's chat, read strictly: text alone, in the roles templates know. Called by `wish`."""

from collections.abc import Mapping
from typing import Any

from twostroke.serve.fields import Fields, one_of
from twostroke.serve.harmless import Harmless, among, take_harmless

ROLES = ("system", "user", "assistant")
NO_IMAGES = Harmless("images", among([]), "this server reads no images, leave them out")
NOT_IN_MESSAGES = (NO_IMAGES, Harmless("tool_calls", among([]), "tools are not offered here, leave it out"))


def read_chat_messages(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Every message with its role and text; none where the model is only to be loaded. Raises ApiError.

    Clients send an answer back whole: keys that are null pass.
    """
    messages = fields.array("messages") or []
    return tuple(_message(fields.inside(message, f"messages[{index}]")) for index, message in enumerate(messages))


def _message(message: Fields) -> Mapping[str, Any]:
    role = message.take("role")
    if not isinstance(role, str) or role not in ROLES:
        raise message.wrong("role", one_of(ROLES))
    content = message.take("content")
    if not isinstance(content, str):
        raise message.wrong("content", "a string")
    take_harmless(message, NOT_IN_MESSAGES)
    message.end(null_keys_pass=True)
    return {"role": role, "content": content}
