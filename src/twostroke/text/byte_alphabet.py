"""The alphabet of byte-level BPE: one printable character per byte, as GPT-2 defined it.

Printable Latin-1 characters stand for themselves; the other 68 bytes take the code points from
U+0100 on, in order. Vocabulary and checks use it; it knows nothing of tokens.
"""

NUM_SHIFTED = 68  # bytes that are not printable Latin-1


def _printable_bytes() -> list[int]:
    return [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]


def _build() -> dict[int, str]:
    printable = _printable_bytes()
    alphabet = {byte: chr(byte) for byte in printable}
    shifted = sorted(set(range(256)) - set(printable))
    assert len(shifted) == NUM_SHIFTED, len(shifted)
    alphabet.update({byte: chr(0x100 + index) for index, byte in enumerate(shifted)})
    return alphabet


CHAR_OF_BYTE = _build()
BYTE_LEVEL_SPELLING = tuple(CHAR_OF_BYTE[byte].encode() for byte in range(256))
BYTE_OF_CHAR = {char: byte for byte, char in CHAR_OF_BYTE.items()}


def bytes_of(piece: str) -> bytes:
    """The bytes a byte-level piece stands for; a piece with a foreign character is its own UTF-8 text."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in piece])
    except KeyError:
        return piece.encode("utf-8", "replace")
