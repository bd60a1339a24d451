"""A chat's answer as OpenAI's clients receive it: reasoning, content and calls, whole and in deltas.

Made by a reply's Choice, which feeds it events. Counts the tokens of reasoning; knows no frame around the message.
"""

import secrets
from typing import Any

from twostroke.chat.answer import CallArguments, CallBegin, Content, Piece, Reasoning, answer_of
from twostroke.chat.reader import AnswerReader
from twostroke.core.event import Event, FinishEvent
from twostroke.core.sequence import FinishReason


class ChatMessage:
    """One message as it grows. Its calls have ids no other call has."""

    def __init__(self, reader: AnswerReader, *, has_reasoning: bool) -> None:
        self.may_think = reader.may_think
        self.num_reasoning_tokens = 0
        self._reader = reader
        self._has_reasoning = has_reasoning
        self._num_tokens = 0
        self._pieces: list[Piece] = []
        self._call_ids: list[str] = []

    def reason(self, reason: str) -> str:
        """OpenAI's word for an end: an answer that was not cut and calls says so."""
        return "tool_calls" if reason == FinishReason.STOP and self._call_ids else reason

    def read(self, text: str) -> None:
        """Take a whole answer at once."""
        for piece in (*self._reader.feed(text), *self._reader.end()):
            self._note(piece)

    def take(self, event: Event) -> list[dict[str, Any]]:
        """The deltas of an event."""
        was_thinking = self._reader.is_thinking
        pieces = self._reader.feed(event.text)
        if isinstance(event, FinishEvent):
            pieces += self._reader.end()
        else:
            self._num_tokens += 1
            if was_thinking or self._reader.is_thinking or any(isinstance(piece, Reasoning) for piece in pieces):
                self.num_reasoning_tokens = self._num_tokens
        return [delta for delta in map(self._note, pieces) if delta]

    def _note(self, piece: Piece) -> dict[str, Any]:
        """Remember a piece; its delta, empty where it is not told."""
        self._pieces.append(piece)
        match piece:
            case Content(text):
                return {"content": text}
            case Reasoning(text):
                return {"reasoning_content": text} if self._has_reasoning else {}
            case CallBegin(index, name):
                self._call_ids.append(self._new_id())
                call = {"index": index, "id": self._call_ids[index], "type": "function"}
                return {"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]}
            case CallArguments(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    def _new_id(self) -> str:
        size = self._reader.call_id_size
        return f"call_{secrets.token_hex(12)}" if size is None else secrets.token_hex(size)[:size]

    def whole(self) -> dict[str, Any]:
        """The message, complete; content is null where there are only calls."""
        answer = answer_of(self._pieces)
        content = None if answer.tool_calls and not answer.content else answer.content
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if answer.reasoning and self._has_reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.tool_calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call_id, call in zip(self._call_ids, answer.tool_calls, strict=True)
            ]
        return message
