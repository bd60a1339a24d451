"""What the OpenAPI document tells of a chat: its messages and what goes beside them. Read by `openapi`."""

from typing import Any

from twostroke.chat.tools import MAX_TOOLS, ToolMode
from twostroke.chat_prompt import EFFORTS

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
_TEXT_PART: Schema = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": TEXT},
}
_CALL: Schema = {
    "type": "object",
    "required": ["id", "function"],
    "properties": {
        "id": TEXT,
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "required": ["name", "arguments"],
            "properties": {"name": TEXT, "arguments": TEXT},
        },
    },
}
MESSAGES: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["role"],
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"anyOf": [TEXT, {"type": "array", "minItems": 1, "items": _TEXT_PART}, {"type": "null"}]},
            "reasoning_content": {"anyOf": [TEXT, {"type": "null"}]},
            "tool_calls": {"anyOf": [{"type": "array", "minItems": 1, "items": _CALL}, {"type": "null"}]},
            "tool_call_id": {"anyOf": [TEXT, {"type": "null"}]},
            "name": {"anyOf": [TEXT, {"type": "null"}]},
        },
    },
}
_FUNCTION: Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "description": {"anyOf": [TEXT, {"type": "null"}]},
        "parameters": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        "strict": {"anyOf": [FLAG, {"type": "null"}]},
    },
}
_NAMED: Schema = {
    "type": "object",
    "required": ["type", "function"],
    "properties": {
        "type": {"const": "function"},
        "function": {"type": "object", "required": ["name"], "properties": {"name": TEXT}},
    },
}
# What goes beside messages, wherever they are taken.
CHAT_FIELDS: dict[str, Schema] = {
    "messages": MESSAGES,
    "tools": {
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_TOOLS,
        "items": {
            "type": "object",
            "required": ["function"],
            "properties": {"type": {"const": "function"}, "function": _FUNCTION},
        },
    },
    "tool_choice": {"anyOf": [{"enum": [mode.value for mode in ToolMode]}, _NAMED]},
    "parallel_tool_calls": FLAG,
    "reasoning_effort": {"enum": list(EFFORTS)},
    "chat_template_kwargs": {"type": "object"},
    "add_generation_prompt": FLAG,
    "continue_final_message": FLAG,
}
