"""One answer of a chat as it is shown: what the model thinks aside, marked and dim, what it says as the answer."""

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.chat.answer import Content, Piece, Reasoning

THINKING = "thinking:\n"


@dataclass(slots=True, kw_only=True)
class AnswerScreen:
    """Called with each piece. `write` shows answers, `aside` what is beside them."""

    write: Callable[[str], None]
    aside: Callable[[str], None]
    has_begun: bool = False
    is_thinking: bool = False

    def __call__(self, piece: Piece) -> None:
        match piece:
            case Reasoning(text):
                self.aside(text if self.is_thinking else THINKING + text)
                self.is_thinking = True
            case Content(text):
                if self.is_thinking:
                    self.aside("\n\n")
                self.write(text)
                self.is_thinking = False
            case _:
                return  # calls: a chat offers no functions
        self.has_begun = True

    def end(self) -> None:
        """The line's end, where the answer is told to be: a pipe reads one line at least for a question."""
        if self.is_thinking:
            self.aside("\n")
        self.write("\n")
