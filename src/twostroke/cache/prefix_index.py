"""Which block holds which content: chained keys of full blocks, one index per KV group.

A key covers everything its block's bytes depend on: every token before it, tenant, model, precision
and adapter. Called by the cache alone; never hands out or counts blocks.
"""

from array import array
from collections.abc import Iterable, Sequence as Seq
from hashlib import blake2b

KEY_BYTES = 32  # 128 bits against deliberate collisions: tenants must not be able to forge each other's keys


def root_key(parts: Iterable[str]) -> bytes:
    """Start of a chain; `parts` are length-prefixed, so ("a", "bc") and ("ab", "c") differ."""
    digest = blake2b(digest_size=KEY_BYTES)
    for part in parts:
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return digest.digest()


def block_key(parent: bytes, token_ids: Seq[int]) -> bytes:
    """Key of a full block of `token_ids` that follows the block `parent`."""
    return blake2b(parent + array("q", token_ids).tobytes(), digest_size=KEY_BYTES).digest()


class PrefixIndex:
    """Key <-> block, one to one."""

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def __contains__(self, block: int) -> bool:
        return block in self._key_of

    def find(self, key: bytes) -> int | None:
        """The block with this content, if any."""
        return self._block_of.get(key)

    def publish(self, key: bytes, *, block: int) -> None:
        """Make `block` findable; the first block with a key keeps it, a twin stays private."""
        if key not in self._block_of and block not in self._key_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def withdraw(self, block: int) -> None:
        """Forget the block's content, if it was published."""
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]
