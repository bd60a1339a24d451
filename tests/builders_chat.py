"""Models that answer every prompt with one text of our choice, control tokens among its words."""

import itertools
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cases.make_malformed import T_STR, vocab
from tests.cases.puppet import EOS, build_puppet, byte_token

_LAST_LETTERS = "\n]>?"  # what prompts end with
_CONTEXT_KEY = b"llama.context_length" + struct.pack("<I", 4)  # a u32 follows


def write_speaker(
    path: Path, text: str, *, template: str, control: Sequence[str] = (), size: int = 5, context: int = 2048
) -> Path:
    """A model file whose template is `template` and whose every answer is `text`, in tokens of about `size` letters.

    A literal of `control` is one control token wherever it stands; each may stand in the text once.
    """
    pieces = pieces_of(text, control=control, size=size)
    words = [piece for piece in pieces if piece not in control]
    ids = {piece: len(vocab()) + index for index, piece in enumerate([*words, *control])}
    said = [ids[piece] for piece in pieces]
    table: Mapping[int, int] = dict(itertools.pairwise([*said, EOS])) | {
        byte_token(ord(letter)): said[0] if said else EOS for letter in _LAST_LETTERS
    }
    keys = [("tokenizer.chat_template", T_STR, template)]
    file = build_puppet(table, extra_tokens=words, control_tokens=control, more_keys=keys).file
    start = file.index(_CONTEXT_KEY) + len(_CONTEXT_KEY)
    path.write_bytes(file[:start] + struct.pack("<I", context) + file[start + 4 :])
    return path


def pieces_of(text: str, *, control: Sequence[str] = (), size: int = 5) -> list[str]:
    """The text in pieces no two of which are equal: what comes next depends on the last token alone."""
    literals = "|".join(map(re.escape, control))
    pieces: list[str] = []
    known = {token[0] for token in vocab()} | set(_LAST_LETTERS)
    for part in re.split(f"({literals})", text) if control else [text]:
        start, is_control = 0, part in control
        while start < len(part):
            end = len(part) if is_control else start + size
            while part[start:end] in known and end < len(part):
                end += 1
            if 0 < len(part) - end < 2 and not is_control:
                end = len(part)
            piece = part[start:end]
            assert piece not in known, f"{piece!r} stands in the text twice: choose another size"
            pieces.append(piece)
            known.add(piece)
            start = end
    return pieces
