"""Checks a GGUF vocabulary when the file is opened: lengths and types of its arrays, range of its special ids.

Nothing is decoded here. Called by the GGUF side of `open_model`; tokenizers may rely on what it checked.
"""

import logging

import numpy as np

from twostroke.errors import ModelFileError
from twostroke.model.metadata import Metadata, StringArray, describe_value

_TOKENS = "tokenizer.ggml.tokens"
_SCORES = "tokenizer.ggml.scores"
_TYPES = "tokenizer.ggml.token_type"
_log = logging.getLogger("twostroke")


def checked_vocabulary(metadata: Metadata) -> Metadata:
    """Return the metadata, less special ids that say "none"; raise ModelFileError where arrays disagree."""
    if _TOKENS not in metadata:
        return metadata
    tokens = metadata[_TOKENS]
    if not isinstance(tokens, StringArray):
        raise ModelFileError(
            metadata.file, f"key {_TOKENS!r} must be an array of strings; the file has {describe_value(tokens)}"
        )
    _check_array(metadata, _SCORES, len(tokens), wanted=("float32",))
    _check_array(metadata, _TYPES, len(tokens), wanted=("int32", "uint32"))
    if _TYPES not in metadata:
        _log.warning("%s: key %r is missing; every token is taken for normal text", metadata.file, _TYPES)
    return metadata.without(*_absent_ids(metadata, len(tokens)))


def _check_array(metadata: Metadata, key: str, num_tokens: int, *, wanted: tuple[str, ...]) -> None:
    if key not in metadata:
        return
    array = metadata[key]
    if not isinstance(array, np.ndarray) or array.dtype.name not in wanted:
        raise ModelFileError(
            metadata.file,
            f"key {key!r} must be an array of {' or '.join(wanted)}; the file has {describe_value(array)}",
        )
    if len(array) != num_tokens:
        raise ModelFileError(
            metadata.file, f"key {key!r} has {len(array)} elements, key {_TOKENS!r} has {num_tokens}; both must agree"
        )


def _absent_ids(metadata: Metadata, num_tokens: int) -> list[str]:
    """Keys of special ids that are -1, which some writers mean as "none"."""
    absent = []
    for key in metadata:
        if not (key.startswith("tokenizer.ggml.") and key.endswith("_token_id")):
            continue
        token_id = metadata.integer(key)
        if token_id == -1:
            _log.warning("%s: key %r is -1, taken as: the model has no such token", metadata.file, key)
            absent.append(key)
        elif not 0 <= token_id < num_tokens:
            raise ModelFileError(
                metadata.file,
                f"key {key!r} is the id {token_id}; the vocabulary has {num_tokens} tokens, 0 to {num_tokens - 1}",
            )
    return absent
