"""The loop of a chat: a question or a command, an answer, and what is said about it. Knows no terminal and no model."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from twostroke.cli.chat_lines import read_question
from twostroke.cli.chat_screen import AnswerScreen
from twostroke.cli.chat_sources import Source, Spoken
from twostroke.cli.conversation import SETTINGS, Conversation
from twostroke.core.sequence import FinishReason
from twostroke.errors import CapacityError, ConfigError, RemoteError, TwostrokeError
from twostroke.view import quantity

HELP = """\
/phases           where the time of the last answer went
/system [TEXT]    the system message: show it, or set it from now on; /system - takes it away
/clear            forget all questions and answers
/retry            ask the last question again
/set [NAME [X]]   temperature, top_p, seed, max_tokens and so on: show, set, or without X back to the default
/save FILE        write the conversation as JSON
/help             this list
/quit, Ctrl-D     leave; Ctrl-C ends only the answer that comes
\"\"\"               begins and ends a question of several lines; so does a backslash at a line's end
A line that begins with a blank is a question, whatever follows."""


@dataclasses.dataclass(slots=True, kw_only=True)
class ChatSession:
    """One chat. `write` shows answers, `note` lines beside them, `aside` text beside them that comes in pieces."""

    source: Source
    conversation: Conversation
    write: Callable[[str], None]
    note: Callable[[list[str]], None]
    aside: Callable[[str], None]
    is_typed: bool = True  # by a person, who leaves with Ctrl-D
    while_answering: Callable[[], AbstractContextManager[None]] = nullcontext
    last: Spoken | None = None
    first_error: TwostrokeError | None = None  # of all that were told

    def run(self, read_line: Callable[[str], str | None]) -> None:
        """Until the end of input or /quit. A mistake is told and the chat goes on; so it does on Ctrl-C, if typed."""
        while True:
            try:
                said = read_question(read_line)
                if said is None or not self._hear(said):
                    return
            except KeyboardInterrupt:
                if not self.is_typed:
                    raise
                self.note(["", "Ctrl-D or /quit leaves"])
            except TwostrokeError as error:
                self.first_error = self.first_error or error
                self.note([" ".join(str(error).split()), *self._cheapest(error)])

    def _hear(self, said: str) -> bool:
        """A question or a command; False where it ends the chat."""
        if not said.startswith("/"):
            if said.strip():
                if self.conversation.ask(said.removeprefix(" ")):
                    self.note(["the question before this one has no answer and is left out"])
                self._answer()
            return True
        name, _, rest = said[1:].strip().partition(" ")
        if name == "quit":
            return False
        commands = self._commands()
        if name not in commands:
            known = ", ".join(f"/{each}" for each in (*commands, "quit"))
            raise ConfigError(f"there is no /{name}: there are {known}; begin with a blank to send it as it is")
        commands[name](rest.strip())
        return True

    def _commands(self) -> Mapping[str, Callable[[str], None]]:
        return {
            "phases": self._phases,
            "system": self._system,
            "clear": self._clear,
            "retry": self._retry,
            "set": self._set,
            "save": self._save,
            "help": self._help,
        }

    def _answer(self) -> None:
        """Nothing of the conversation is left out to make it fit: what is too long is told."""
        screen = AnswerScreen(write=self.write, aside=self.aside)
        try:
            with self.while_answering():
                spoken = self.source.answer(self.conversation.messages, self.conversation.settings, screen)
        except TwostrokeError:
            if screen.has_begun:
                self.note(["", "what came of this answer is not kept; /retry asks again"])
            raise
        screen.end()
        self.last = spoken
        if spoken.text or spoken.reason not in (FinishReason.CANCELLED, FinishReason.LENGTH):
            self.conversation.hear(spoken.text)
        if spoken.reason == FinishReason.LENGTH:
            limit = self._value("max_tokens")
            told = "its limit" if limit is None else f"max_tokens of {limit}"
            self.note([f"the answer ended at {told}: /set max_tokens N and /retry, or ask to go on"])
        elif spoken.reason == FinishReason.CANCELLED:
            self.note([f"ended after {spoken.num_tokens} tokens; /retry asks again"])

    def _cheapest(self, error: TwostrokeError) -> list[str]:
        """What mends a conversation that is full; the error has told the arithmetic."""
        is_full = isinstance(error, CapacityError) or (isinstance(error, RemoteError) and "context" in str(error))
        if not is_full:
            return []
        return ["/set max_tokens N makes room for /retry where an N fits; else /save FILE, then /clear begins anew"]

    def _phases(self, rest: str) -> None:
        if self.last is None:
            raise ConfigError("/phases tells of the last answer: nothing was answered yet")
        self.note(self.last.phases())

    def _system(self, rest: str) -> None:
        if rest:
            self.conversation.system = None if rest == "-" else rest
        system = self.conversation.system
        self.note(["no system message" if system is None else f"system: {system}"])

    def _clear(self, rest: str) -> None:
        self.conversation.clear()
        self.note(["all forgotten" if self.conversation.system is None else "all forgotten but the system message"])

    def _retry(self, rest: str) -> None:
        if not self.conversation.take_back():
            raise ConfigError("/retry asks the last question again: nothing was asked yet")
        if self._value("temperature") == 0 and self.last is not None and self.last.reason == FinishReason.STOP:
            self.note(["temperature is 0, the answer will be the same: /set temperature 0.7 for another"])
        self._answer()

    def _set(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        if name:
            self.conversation.set(name, value.strip() or None)
        names = [name] if name else list(SETTINGS)
        self.note([f"{each} {self._shown(each)}" for each in names])

    def _value(self, name: str) -> object:
        return self.conversation.settings.get(name, self.source.default(name))

    def _shown(self, name: str) -> str:
        value = self._value(name)
        if name in self.conversation.settings:
            return f"{value:g}" if isinstance(value, float) else str(value)
        if value is None:
            return "not set" if self.source.default("temperature") is not None else "the server's default"
        return f"{value:g} (default)" if isinstance(value, float) else f"{value} (default)"

    def _save(self, rest: str) -> None:
        if not rest:
            raise ConfigError("/save needs the name of a file")
        path = Path(rest).expanduser()
        self.conversation.save(path)
        self.note([f"saved {quantity.count(len(self.conversation.messages), 'message')} in {path}"])

    def _help(self, rest: str) -> None:
        self.note(HELP.splitlines())
