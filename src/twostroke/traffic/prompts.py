"""Prompts of wanted lengths out of common words, the same words for the same piece.

Lengths are exact where tokens can be counted: by the server's /tokenize or a tokenizer at hand. Else words are
converted at the rate its usage showed. Made before a load starts; never asks for an answer.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from twostroke.errors import ConfigError
from twostroke.traffic.workload import Item, Piece

# Frequent words are one token, the blank before them included, in nearly every vocabulary.
FREQUENT = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea body information "
    "back parent face others level office door health person art war history party result change morning reason "
    "research girl guy moment air teacher force education"
)
WORDS = tuple(FREQUENT.split())
MAX_ROUNDS = 40  # of changing a prompt by the tokens it lacks

Count = Callable[[str], Awaitable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMaker:
    """Turns an item's pieces into text.

    count: tokens of a text, None where nobody can count. tokens_per_word: what one more word adds. overhead: tokens the
    server adds to a text, its chat template or a beginning.
    """

    words: Sequence[str]
    count: Count | None
    tokens_per_word: float
    overhead: int

    async def text_of(self, item: Item) -> str:
        """Text of `item.prompt_tokens` tokens, overhead included. Raises ConfigError where that cannot be."""
        wanted = item.prompt_tokens - self.overhead
        if wanted < 1:
            raise ConfigError(
                f"a prompt of {item.prompt_tokens} tokens is asked for, but the server adds {self.overhead} to every "
                f"text: --input-tokens of at least {self.overhead + 1} works, or --api completions"
            )
        words = self._words_of(item.pieces, wanted)
        if self.count is None:
            return " ".join(words)
        return await self._exactly(wanted, words, random.Random(item.pieces[-1].name))

    def _words_of(self, pieces: Sequence[Piece], wanted: int) -> list[str]:
        """As many words as make `wanted` tokens; what the server adds is taken off the end."""
        words: list[str] = []
        for piece in pieces:
            rng = random.Random(piece.name)
            words += rng.choices(self.words, k=max(1, round(piece.num_tokens / self.tokens_per_word)))
        return words[: max(1, round(wanted / self.tokens_per_word))]

    async def _exactly(self, wanted: int, words: list[str], rng: random.Random) -> str:
        """Words added or taken off at the end until the count is right."""
        assert self.count is not None, "nobody counts"
        for _ in range(MAX_ROUNDS):
            text = " ".join(words)
            lacking = wanted - await self.count(text)
            if not lacking:
                return text
            if lacking > 0:
                words += rng.choices(self.words, k=lacking)
            else:
                del words[max(0, len(words) + lacking) :]
        raise ConfigError(
            f"no words make a text of exactly {wanted} tokens for this tokenizer: take another --input-tokens"
        )


async def one_token_words(count: Count) -> Sequence[str]:
    """Those of WORDS that add exactly one token to a text; all of them where none does."""
    base = "one two"
    before = await count(base)
    found = [word for word in WORDS if await count(f"{base} {word}") == before + 1]
    return found or WORDS
