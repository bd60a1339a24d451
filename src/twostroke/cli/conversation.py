"""What was said in a chat, and how answers are chosen. Plain state: it asks nobody and shows nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twostroke.errors import ConfigError, ParamsError
from twostroke.params import SamplingParams

# What a person may set, and how it is read.
SETTINGS: Mapping[str, type[int] | type[float]] = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "seed": int,
    "max_tokens": int,
}


@dataclass(slots=True)
class Conversation:
    """Questions and answers in turn. A question whose answer failed stays, so that it can be asked again."""

    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # what was set; the model's own defaults are not here

    @property
    def messages(self) -> list[dict[str, str]]:
        """As an API takes them."""
        head = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*head, *self.turns]

    @property
    def is_waiting(self) -> bool:
        """Whether the last question has no answer."""
        return bool(self.turns) and self.turns[-1]["role"] == "user"

    def ask(self, question: str) -> bool:
        """A new question; True where it takes the place of one without an answer."""
        if is_instead := self.is_waiting:
            self.turns.pop()
        self.turns.append({"role": "user", "content": question})
        return is_instead

    def hear(self, answer: str) -> None:
        """The answer to the last question, however it ended."""
        assert self.is_waiting, "an answer follows a question"
        self.turns.append({"role": "assistant", "content": answer})

    def take_back(self) -> bool:
        """Forget the last answer: its question waits again. False where nothing was asked."""
        if self.turns and not self.is_waiting:
            self.turns.pop()
        return self.is_waiting

    def clear(self) -> None:
        """Forget all turns; system message and settings stay."""
        self.turns.clear()

    def set(self, name: str, text: str | None) -> None:
        """Change one setting; None takes it back to its default. Raises ConfigError or ParamsError."""
        if name not in SETTINGS:
            raise ConfigError(f"/set knows no {name!r}: it knows {', '.join(SETTINGS)}")
        if text is None:
            self.settings.pop(name, None)
            return
        try:
            value: Any = SETTINGS[name](text)
        except ValueError:
            kind = "a whole number" if SETTINGS[name] is int else "a number"
            raise ParamsError(f"{name} is {text!r}: it must be {kind}", field=name) from None
        SamplingParams(**{name: value})  # refuses what is out of range
        self.settings[name] = value

    def save(self, path: Path) -> None:
        """All messages as JSON. Raises ConfigError where the file exists or cannot be written."""
        try:
            with path.open("x", encoding="utf-8") as file:
                json.dump({"messages": self.messages, "settings": self.settings}, file, ensure_ascii=False, indent=1)
                file.write("\n")
        except FileExistsError:
            raise ConfigError(f"{path} exists: give another name, nothing is overwritten") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
