"""What LLM takes as a prompt: text, token ids or a conversation, several of them, and text that is none.

Asked on the caller's thread before anything is rendered or tokenised; knows no model.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twostroke.chat.chat import Chat
from twostroke.errors import PromptError

Message = Mapping[str, Any]
Prompt = str | Sequence[int] | Sequence[Message] | Chat


def as_chat(prompt: Any) -> Chat | None:
    """A conversation, with or without what goes beside it; None for other prompts."""
    if isinstance(prompt, Chat):
        return prompt
    return Chat(messages=prompt) if is_chat(prompt) else None


def is_chat(prompt: Any) -> bool:
    return isinstance(prompt, Sequence) and bool(prompt) and all(isinstance(message, Mapping) for message in prompt)


def several(prompts: Any) -> list[Any]:
    """Tell one prompt from several: text and flat lists of ids are one."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise PromptError(
            f"the prompt is of type {type(prompts).__name__}: it must be text, token ids or a list of either"
        )
    if all(isinstance(prompt, int) for prompt in prompts):
        return [prompts]
    return list(prompts)


def refuse_lone_surrogates(prompt: Any) -> None:
    """Raises PromptError where text holds half a character: it has no UTF-8, so it can only be a mistake."""
    if isinstance(prompt, str):
        _refuse(prompt, place="the prompt", field="prompt")
    elif (chat := as_chat(prompt)) is not None:
        tools = [tool.as_shown() for tool in chat.tools]
        beside = {"messages": chat.messages, "tools": tools, "chat_template_kwargs": chat.variables}
        for field, value in beside.items():
            for place, text in texts_of(value, place=field):
                _refuse(text, place=place, field=field)


def texts_of(value: Any, *, place: str) -> Iterator[tuple[str, str]]:
    """Every text in plain data, keys too, with the words for where it stands."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield f"a key of {place}", key
            yield from texts_of(item, place=f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts_of(item, place=f"{place}[{index}]")


def contents_of(messages: Sequence[Message]) -> list[str]:
    """What the messages say: their contents that are text, whole or in parts."""
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents for part in (content if isinstance(content, list | tuple) else [content])]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return [text for text in texts if isinstance(text, str)]


def said_in(messages: Sequence[Message]) -> list[str]:
    """Every text of theirs that somebody may shorten: contents, reasoning, and what earlier calls named."""
    texts = contents_of(messages)
    for message in messages:
        reasoning = message.get("reasoning_content")
        texts += [reasoning] if isinstance(reasoning, str) else []
        for call in message.get("tool_calls") or ():
            arguments = call["function"].get("arguments")
            if isinstance(arguments, str):
                arguments = json.loads(arguments) if arguments.strip() else {}
            texts += [call["function"]["name"], *(text for _, text in texts_of(arguments, place="arguments"))]
    return texts


def _refuse(text: str, *, place: str, field: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X}, a lone surrogate, at character {error.start}"
        shown = place.encode("ascii", "backslashreplace").decode()
        raise PromptError(
            f"{shown} has {found}: it stands for no text; read the text as UTF-8 with errors='replace', "
            "or write U+FFFD there",
            field=field,
        ) from None
