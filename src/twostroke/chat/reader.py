"""The text of an answer, read as it comes: reasoning, content, calls. The pieces' borders change nothing of it.

One AnswerReader per answer, fed by Result, the server's replies or any other door. Marks are never shown, nor the
blanks beside them; a call is told when it is complete, and one that is broken is content, letter by letter. Knows no
tokens.
"""

from collections.abc import Collection

from twostroke.chat.answer import ChatAnswer, Content, Piece, Reasoning, answer_of
from twostroke.chat.answer_format import AnswerFormat, CallFormat
from twostroke.chat.call_block import BrokenCallError, CallBlock
from twostroke.chat.held_block import HeldBlock

MAX_BROKEN = 16  # after so many broken calls the rest is content: the text of each is looked at again


class AnswerReader:
    """Reads one answer.

    `is_thinking`: the prompt itself opened the reasoning. `names`: functions that may be called; without any, the
    marks of calls are text like any other. `is_held`: a grammar holds every call to its form, so calls are told as they
    come, not when they are complete.
    """

    def __init__(
        self,
        answer_format: AnswerFormat,
        *,
        is_thinking: bool = False,
        names: Collection[str] = (),
        is_held: bool = False,
    ) -> None:
        self._think = answer_format.think
        self._calls = answer_format.calls if names else None
        self._names = frozenset(names)
        self._num_calls = 0
        self._num_broken = 0
        self._pieces: list[Piece] = []
        self._blanks: list[str] = []  # held back: shown if text follows, dropped if a mark does
        self._edge = ""  # held back: what may become a mark
        self._block: CallBlock | HeldBlock | None = None
        self._is_held = is_held
        self._is_fresh = True  # nothing was shown since the beginning, or since the last call
        self._drops_blanks = is_thinking  # a mark came before what is shown next
        self._may_open = self._think is not None and not is_thinking
        self.is_thinking = self._think is not None and is_thinking
        self.may_think = self._think is not None
        self.call_id_size = None if answer_format.calls is None else answer_format.calls.id_size

    def read(self, text: str) -> ChatAnswer:
        """A whole answer."""
        return answer_of([*self.feed(text), *self.end()])

    def feed(self, text: str) -> list[Piece]:
        """What became certain with this text."""
        while text:
            if self._block is not None:
                text = self._read_block(self._block, text)
                continue
            text, self._edge = self._edge + text, ""
            if self.is_thinking:
                text = self._read_thought(text)
            elif self._may_open:
                text = self._read_opening(text)
            else:
                text = self._read_content(text)
        return self._taken()

    def end(self) -> list[Piece]:
        """What was held back. A call that is not complete is content, if nothing of it was told."""
        if self._block is not None and self._block.has_begun:
            self._blanks.clear()  # a call that was told in part: its rest does not come
        elif self._block is not None:
            self._num_broken = MAX_BROKEN
            self._read_content(self._break(self._block))
        self._show(self._edge)
        return self._taken()

    def _taken(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    # Reasoning

    def _read_opening(self, text: str) -> str:
        """The beginning of an answer: only here may reasoning open."""
        assert self._think is not None
        opening, word = self._think.opening, text.lstrip()
        if word.startswith(opening):
            self._may_open, self.is_thinking, self._drops_blanks = False, True, True
            self._blanks.clear()
            return word[len(opening) :]
        if opening.startswith(word):
            self._blanks.append(text[: len(text) - len(word)])
            self._edge = word
            return ""
        self._may_open = False
        return text

    def _read_thought(self, text: str) -> str:
        assert self._think is not None
        before, mark, rest = text.partition(self._think.closing)
        if not mark:
            self._hold(text, self._think.closing)
            return ""
        self._show_word(before)
        self._blanks.clear()
        self.is_thinking, self._drops_blanks, self._is_fresh = False, True, True
        return rest

    # Content and calls

    def _read_content(self, text: str) -> str:
        if self._calls is None:
            self._show(text)
            return ""
        if self._is_fresh and self._calls.is_bare:
            word = text.lstrip(" \t\r\n;" if self._num_calls else " \t\r\n")
            if not word or word[0] == "{":
                self._blanks.append(text[: len(text) - len(word)])
                self._block = self._new_block(self._calls, opening="") if word else None
                return word
        before, mark, rest = text.partition(self._calls.opening)
        if not mark:
            self._hold(text, self._calls.opening)
            return ""
        self._show_word(before)
        self._block = self._new_block(self._calls, opening=mark)
        return rest

    def _new_block(self, calls: CallFormat, *, opening: str) -> CallBlock | HeldBlock:
        if self._is_held:
            return HeldBlock(calls, opening=opening, index=self._num_calls)
        return CallBlock(calls, names=self._names, opening=opening, index=self._num_calls)

    def _read_block(self, block: CallBlock | HeldBlock, text: str) -> str:
        try:
            rest = block.feed(text)
        except BrokenCallError:
            return self._break(block)
        self._pieces += block.taken()
        if rest is None:
            return ""
        self._num_calls += block.num_calls
        self._block = None
        self._blanks.clear()
        self._drops_blanks = self._is_fresh = True
        return rest

    def _break(self, block: CallBlock | HeldBlock) -> str:
        """Show the beginning of a broken call; what is left may hold a better one."""
        self._block = None
        self._num_broken += 1
        if self._num_broken >= MAX_BROKEN:
            self._calls = None
        text = block.opening + block.text
        num_shown = max(1, len(block.opening))
        self._show(text[:num_shown])
        return text[num_shown:]

    # What is shown and what is held back

    def _hold(self, text: str, mark: str) -> None:
        """Show all of a text but its end, where that may belong to a mark."""
        size = next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:size])), 0)
        self._show_word(text[: len(text) - size])
        self._edge = text[len(text) - size :]

    def _show_word(self, text: str) -> None:
        """Show a text, hold back the blanks it ends with."""
        word = text.rstrip()
        if word:
            self._show(word)
        self._blanks.append(text[len(word) :])

    def _show(self, text: str) -> None:
        text = "".join((*self._blanks, text))
        self._blanks.clear()
        if self._drops_blanks:
            text = text.lstrip()
        if text:
            self._drops_blanks = self._is_fresh = False
            self._pieces.append(Reasoning(text) if self.is_thinking else Content(text))
