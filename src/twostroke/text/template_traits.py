"""What a chat template does with tools and calls, found by rendering conversations that give it away.

Templates differ: arguments as objects or as text, a call's content null or empty, tools shown or ignored. Used by
ChatPrompts, so that nothing a request holds is dropped in silence. Looks at no model's name.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from twostroke.errors import ChatTemplateError
from twostroke.text.chat_template import ChatTemplate

_NAME, _KEY, _CALL_ID, _SAID = "zqxj_vkwy", "wqzv", "zqxjvkwy1", "kxvq zwyj"  # no template says these by itself
_TOOL = {
    "type": "function",
    "function": {"name": _NAME, "description": "x", "parameters": {"type": "object", "properties": {}}},
}
_USER = {"role": "user", "content": "hi"}


@dataclass(frozen=True, slots=True)
class CallStyle:
    """How a template wants earlier calls: `arguments` as an object or as JSON text, content null or empty."""

    has_objects: bool
    has_null: bool

    def message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """An assistant's message with calls, whose `arguments` are objects, as the template wants it."""
        calls = [self._call(call) for call in message["tool_calls"]]
        content = message.get("content") or (None if self.has_null else "")
        return {**message, "content": content, "tool_calls": calls}

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = call["function"]
        if self.has_objects:
            return dict(call)
        return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}


class TemplateTraits:
    """Answers are found when first asked for."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    @cached_property
    def shows_tools(self) -> bool:
        """Whether a model is told of `tools` at all."""
        return _NAME in self._rendered([_USER], tools=[_TOOL])

    @cached_property
    def call_style(self) -> CallStyle | None:
        """How to write earlier calls; None where the template drops them or cannot take them."""
        styles = [CallStyle(objects, null) for objects, null in product((True, False), repeat=2)]
        return next((style for style in styles if self._keeps_calls(style)), None)

    @cached_property
    def keeps_results(self) -> bool:
        """Whether what a function said reaches the model."""
        style = self.call_style or CallStyle(True, False)
        return _SAID in self._rendered([*self._called(style), _result()])

    def _keeps_calls(self, style: CallStyle) -> bool:
        text = self._rendered([*self._called(style), _result()])
        is_whole = _NAME in text and _KEY in text
        is_python = f"'{_KEY}'" in text or text.count("None") > self._rendered([_USER]).count("None")
        return is_whole and not is_python and f'\\"{_KEY}' not in text  # no JSON inside a JSON text either

    def _called(self, style: CallStyle) -> list[dict[str, Any]]:
        function = {"name": _NAME, "arguments": {_KEY: 1}}
        call = {"id": _CALL_ID, "type": "function", "function": function}
        return [_USER, style.message({"role": "assistant", "tool_calls": [call]})]

    def _rendered(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        try:
            return self._template.render(messages, **options)
        except ChatTemplateError:
            return ""


def _result() -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": _CALL_ID, "name": _NAME, "content": _SAID}
