"""Texts as sequences of token ids: words an answer may not have, marks that repetitions do not reach over.

Called by `LLM` before a request is queued. Never looks at logits.
"""

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

from twostroke.errors import ParamsError
from twostroke.text.tokenizer import Tokenizer

TokenIds = tuple[int, ...]

LINE_END = "\n"
KEPT = 8  # sets of marks; one costs a look at every token of the vocabulary
MAX_SPELLINGS = 2**14  # of all marks of a request: every answer takes its own copy of them


class WordIds:
    """What texts are as ids of one vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.of_marks = lru_cache(KEPT)(self._of_marks)

    def of_words(self, words: Iterable[str | TokenIds]) -> tuple[TokenIds, ...]:
        """Each word as it is spelled inside a text, as it stands and behind a space; ids are taken as they are."""
        found: dict[TokenIds, None] = {}
        for word in words:
            for ids in (word,) if isinstance(word, tuple) else map(self._inside, (word, f" {word}")):
                if ids:
                    found[ids] = None
        return tuple(found)

    def _of_marks(self, marks: tuple[str, ...]) -> tuple[TokenIds, ...]:
        """Every token that has a mark in it, and every token a mark begins in, with those of the mark's rest.

        Raises ParamsError where they are too many.
        """
        whole, rests, inside = [mark.encode() for mark in marks], _rests(marks), cache(self._inside)
        found: dict[TokenIds, None] = {}
        for token_id in range(self._tokenizer.vocab_size):
            token = self._tokenizer.token_bytes(token_id)
            if any(mark in token for mark in whole):
                found[(token_id,)] = None
                continue
            for start in range(len(token)):
                for rest in rests.get(token[start:], ()):
                    found[(token_id, *inside(rest))] = None
            if len(found) > MAX_SPELLINGS:
                raise ParamsError(
                    f"dry_sequence_breakers are spelled in more than {MAX_SPELLINGS} ways, the limit, as many tokens "
                    "end with their first letters: use fewer, or ones that are tokens of their own",
                    field="dry_sequence_breakers",
                )
        return tuple(found)

    def _inside(self, text: str) -> TokenIds:
        """Ids of a text with other text before it: behind a line end, as some encoders put a space before any text."""
        line_end, behind = (self._tokenizer.encode_inside(each) for each in (LINE_END, LINE_END + text))
        if behind[: len(line_end)] == line_end:
            return tuple(behind[len(line_end) :])
        return tuple(self._tokenizer.encode_inside(text))  # the two are one token


def _rests(marks: Iterable[str]) -> Mapping[bytes, list[str]]:
    """What is left of marks behind each of their beginnings, whole characters alone."""
    rests: dict[bytes, list[str]] = {}
    for mark in marks:
        for size in range(1, len(mark)):
            rests.setdefault(mark[:size].encode(), []).append(mark[size:])
    return rests
