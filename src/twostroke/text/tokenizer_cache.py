"""Keeps the costly part of a built tokenizer on disk: its merge rules, and for folders its pieces.

One file per model vocabulary and format version; written whole or not at all; a damaged or foreign file
is built anew. Called by the builders with a directory they were given; reads no settings.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from twostroke.text.merges import MergeRules

_FORMAT = 2  # raise when the meaning of an entry changes
_MAGIC = b"twostroke tokenizer\n"
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Merge rules and whatever else JSON can hold."""

    rules: MergeRules
    facts: dict[str, Any] = field(default_factory=dict)


def cached_entry(directory: Path | None, *, fingerprint: str, build: Callable[[], CacheEntry]) -> CacheEntry:
    """The entry stored for this fingerprint, or a new one from `build`, stored for the next time.

    No directory, or one that cannot be written, means no caching.
    """
    if directory is None:
        return build()
    key = hashlib.sha256(f"{_FORMAT} {tokenizers.__version__} {fingerprint}".encode()).hexdigest()
    path = directory / f"{key}.tokenizer"
    entry = _read(path)
    if entry is None:
        entry = build()
        with contextlib.suppress(OSError):
            _write(path, entry)
    return entry


def _read(path: Path) -> CacheEntry | None:
    """The entry, or None where the file is missing, cut or altered."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST_BYTES
    digest, body = content[len(_MAGIC) : head], memoryview(content)[head:]
    if not content.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    facts_bytes = int.from_bytes(body[:8], "little")
    facts = json.loads(bytes(body[8 : 8 + facts_bytes]))
    return CacheEntry(np.frombuffer(body[8 + facts_bytes :], dtype="<i4").reshape(-1, 3), facts)


def _write(path: Path, entry: CacheEntry) -> None:
    facts = json.dumps(entry.facts, ensure_ascii=True).encode()
    body = len(facts).to_bytes(8, "little") + facts + entry.rules.astype("<i4").tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".tokenizer-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
