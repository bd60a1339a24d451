r"""What `\d`, `\s` and `\w` are to llguidance, asked byte by byte: every version of Unicode has its own answer."""

from collections.abc import Iterator

import llguidance

from twostroke.sample.characters import Characters, Range

END = 256  # behind the bytes
LENGTH_OF_FIRST = ((0x80, 1), (0xE0, 2), (0xF0, 3), (0x100, 4))  # bytes of a character by its first one


class _Bytes:
    """A vocabulary with a token for every byte."""

    eos_token_id = END
    bos_token_id = None
    special_token_ids = (END,)
    tokens = (*(bytes([byte]) for byte in range(END)), b"<end>")

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


def named_characters(name: str) -> Characters:
    """The set a pattern means by this name. Some milliseconds, a tenth of a second for words."""
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()), n_vocab=END + 1, eos_token=[END])
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_regex(name), log_level=0)
    return Characters.within(_ranges_behind(matcher, b""))


def _ranges_behind(matcher: llguidance.LLMatcher, begun: bytes) -> Iterator[Range]:
    """All characters that go on so."""
    mask = int.from_bytes(matcher.compute_bitmask(), "little") & (1 << END) - 1
    while mask:
        first = (mask & -mask).bit_length() - 1
        character = begun + bytes([first])
        if len(character) == next(length for end, length in LENGTH_OF_FIRST if character[0] < end):
            run = ~(mask >> first) & (mask >> first) + 1  # the bit behind the lowest ones
            num = run.bit_length() - 1
            yield ord(character.decode()), ord(character.decode()) + num - 1
            mask &= ~((1 << num) - 1 << first)
        else:
            further = matcher.deep_copy()
            further.consume_token(first)
            yield from _ranges_behind(further, character)
            mask &= mask - 1
