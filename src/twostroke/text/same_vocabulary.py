"""Whether two models mean the same by every token id: what a draft model must. Asked once, when it is loaded."""

from twostroke.text.tokenizer import Tokenizer

SPECIAL = (("BOS", "bos_id"), ("EOS", "eos_id"))


def vocabulary_difference(own: Tokenizer, other: Tokenizer) -> str | None:
    """Where `other` differs from `own`, in words that follow "its"; None where they are the same."""
    if own.vocab_size != other.vocab_size:
        return f"vocabulary has {other.vocab_size} tokens, not {own.vocab_size}"
    if (token_id := _first_other_token(own, other)) is not None:
        return f"token {token_id} is {_shown(other, token_id)}, not {_shown(own, token_id)}"
    for name, field in SPECIAL:
        if getattr(own.special, field) != getattr(other.special, field):
            return f"{name} is {_named(other, field)}, not {_named(own, field)}"
    if own.end_ids != other.end_ids:
        odd = min(own.end_ids ^ other.end_ids)
        ends = "ends" if odd in other.end_ids else "does not end"
        return f"token {odd}, {_shown(other, odd)}, {ends} an answer, unlike here"
    return None


def _first_other_token(own: Tokenizer, other: Tokenizer) -> int | None:
    ours, theirs = own.vocabulary, other.vocabulary
    is_alike = ours.style is theirs.style and ours.control_ids == theirs.control_ids
    if is_alike and list(ours.tokens) == list(theirs.tokens):  # as almost always, without a look at each one's bytes
        return None
    return next((each for each in range(len(ours)) if _meaning(own, each) != _meaning(other, each)), None)


def _meaning(tokenizer: Tokenizer, token_id: int) -> tuple[bytes, bool]:
    return tokenizer.token_bytes(token_id), token_id in tokenizer.control_ids


def _shown(tokenizer: Tokenizer, token_id: int) -> str:
    kind = "control token " if token_id in tokenizer.control_ids else ""
    return f"{kind}{tokenizer.token_bytes(token_id).decode('utf-8', 'backslashreplace')!r}"


def _named(tokenizer: Tokenizer, field: str) -> str:
    token_id = getattr(tokenizer.special, field)
    return "none" if token_id is None else f"{token_id}, {_shown(tokenizer, token_id)}"
