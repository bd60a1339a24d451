"""Small JSON files of a model folder, read with a limit. Called by the folder reader; knows no key by name."""

import json
from pathlib import Path
from typing import Any

from twostroke.errors import ModelFileError
from twostroke.model.wrong_file import explain_wrong_file

MAX_JSON_BYTES = 64 * 2**20  # an index of a million tensors has about 60 MB


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in the file. Raises ModelFileError when it is missing, too large, damaged or no object."""
    value = _read_json(path)
    if not isinstance(value, dict):
        raise ModelFileError(path, f"it holds a JSON {type(value).__name__}, an object is needed")
    return value


def read_json_list(path: Path) -> list[Any]:
    """The list in the file; raises the same."""
    value = _read_json(path)
    if not isinstance(value, list):
        raise ModelFileError(path, f"it holds a JSON {type(value).__name__}, a list is needed")
    return value


def _read_json(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise ModelFileError(path, f"it cannot be read: {error.strerror}") from error
    if len(raw) > MAX_JSON_BYTES:
        raise ModelFileError(path, f"it has more than {MAX_JSON_BYTES} bytes, the limit for JSON")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        meaning = None if raw.lstrip().startswith((b"{", b"[")) else explain_wrong_file(raw[:64])
        raise ModelFileError(path, meaning or f"it is not JSON: {error}") from None


def read_optional_json(path: Path) -> dict[str, Any]:
    """The same; an empty object where there is no such file."""
    return read_json_object(path) if path.exists() else {}
