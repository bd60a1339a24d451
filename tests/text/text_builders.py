"""Small vocabularies for tests: written by hand or trained on generated lines, as GGUF metadata."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from tokenizers import Tokenizer as LibraryTokenizer, models, pre_tokenizers, trainers

from tests.cases.text_lines import text_lines
from twostroke.text.byte_alphabet import CHAR_OF_BYTE
from twostroke.text.gguf_tokenizer import tokenizer_from_gguf
from twostroke.text.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@lru_cache(maxsize=1)
def _trained() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Pieces and merges of a byte-level vocabulary of 900 pieces."""
    backend = LibraryTokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=sorted(CHAR_OF_BYTE.values()), special_tokens=[], show_progress=False
    )
    backend.train_from_iterator(text_lines(400, seed=7), trainer)
    pieces = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    merges = []
    known = set(CHAR_OF_BYTE.values())
    for piece, _ in pieces:
        if piece in known:
            continue
        cut = next(cut for cut in range(1, len(piece)) if piece[:cut] in known and piece[cut:] in known)
        merges.append(f"{piece[:cut]} {piece[cut:]}")
        known.add(piece)
    return tuple(piece for piece, _ in pieces), tuple(merges)


def byte_level_metadata(
    *, pre: str = "smollm", control: Sequence[str] = CHATML, user_defined: Sequence[str] = (), **keys: Any
) -> dict[str, Any]:
    """GGUF keys of a trained byte-level vocabulary; control tokens come first, then user-defined ones."""
    pieces, merges = _trained()
    tokens = [*control, *user_defined, *pieces]
    kinds = [CONTROL] * len(control) + [USER_DEFINED] * len(user_defined) + [NORMAL] * len(pieces)
    ids = {"bos_token_id": 1, "eos_token_id": 2} if len(control) >= 3 else {}
    fields = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": np.array(kinds, dtype=np.int32),
        "merges": list(merges),
        **ids,
        **keys,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items() if value is not None}


def byte_level_tokenizer(**options: Any) -> Tokenizer:
    return tokenizer_from_gguf(byte_level_metadata(**options))


def sentencepiece_metadata(
    pieces: Sequence[str] = ("▁", "a", "b", "▁ab", "ab"),
    *,
    user_defined: Sequence[str] = (),
    byte_kind: int = BYTE,
    **keys: Any,
) -> dict[str, Any]:
    """GGUF keys of a SentencePiece vocabulary: <unk> <s> </s>, 256 bytes, user-defined tokens, pieces by rank."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *user_defined, *pieces]
    kinds = [
        UNKNOWN,
        CONTROL,
        CONTROL,
        *[byte_kind] * 256,
        *[USER_DEFINED] * len(user_defined),
        *[NORMAL] * len(pieces),
    ]
    scores = [0.0] * (259 + len(user_defined)) + [-1.0 - rank for rank in range(len(pieces))]
    fields = {
        "model": "llama",
        "tokens": tokens,
        "token_type": np.array(kinds, dtype=np.int32),
        "scores": np.array(scores, dtype=np.float32),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        **keys,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items() if value is not None}


def sentencepiece_tokenizer(*args: Any, **options: Any) -> Tokenizer:
    return tokenizer_from_gguf(sentencepiece_metadata(*args, **options))
