"""A source with a script, and a chat that is typed as a list of lines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.chat.answer import Content, Reasoning
from twostroke.cli.chat_session import ChatSession
from twostroke.cli.chat_sources import Messages, Show, Spoken
from twostroke.cli.conversation import Conversation
from twostroke.errors import TwostrokeError


@dataclass(frozen=True)
class BrokenOff:
    """An answer that fails behind this text."""

    text: str
    error: TwostrokeError


Answer = str | TwostrokeError | Spoken | BrokenOff


def make_spoken(text: str, *, reason: str = "stop", num_tokens: int = 3) -> Spoken:
    return Spoken(text=text, reason=reason, num_tokens=num_tokens, phases=lambda: [f"phases of {text}"])


class ScriptedSource:
    """Gives its answers in turn and keeps what it was asked."""

    name = "scripted"

    def __init__(self, *answers: Answer, defaults: Mapping[str, Any] | None = None, thought: str = "") -> None:
        self.thought = thought  # before each answer
        self.asked: list[tuple[list[Mapping[str, str]], dict[str, Any]]] = []
        self._answers = iter(answers)
        self._defaults = {"temperature": 0.0, "max_tokens": 256} if defaults is None else defaults

    def default(self, setting: str) -> Any:
        return self._defaults.get(setting)

    def answer(self, messages: Messages, settings: Mapping[str, Any], show: Show) -> Spoken:
        self.asked.append((list(messages), dict(settings)))
        answer = next(self._answers)
        if isinstance(answer, BrokenOff):
            show(Content(answer.text))
            raise answer.error
        if isinstance(answer, TwostrokeError):
            raise answer
        spoken = make_spoken(answer) if isinstance(answer, str) else answer
        for piece in (Reasoning(self.thought), Content(spoken.text)):
            if piece.text:
                show(piece)
        return spoken


class Chat:
    """A finished chat: what was shown, what was noted, what was asked."""

    def __init__(
        self, *lines: str | type[KeyboardInterrupt], source: ScriptedSource, system: str | None = None
    ) -> None:
        self.shown: list[str] = []
        self.notes: list[str] = []
        self.asides: list[str] = []
        self.source = source
        self.session = ChatSession(
            source=source,
            conversation=Conversation(system=system),
            write=self.shown.append,
            note=self.notes.extend,
            aside=self.asides.append,
        )
        self.session.run(typing(lines))

    @property
    def text(self) -> str:
        return "".join(self.shown)


def typing(lines: Sequence[str | type[KeyboardInterrupt]]) -> Callable[[str], str | None]:
    """A reader of these lines, then of the end; a KeyboardInterrupt among them is raised."""
    coming = iter(lines)

    def read_line(prompt: str) -> str | None:
        line = next(coming, None)
        if line is None or isinstance(line, str):
            return line
        raise line

    return read_line
