"""Key-values of a model with typed access: every error names the key, the wanted and the found type.

Arrays are lazy: numbers are NumPy views of the file, strings are decoded when first read. Built by
the readers; read by families, tokenizers and chat templates.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, overload

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1  # what GGUF can store; JSON can spell any number
MIN_SETTING, MAX_SETTING = 1e-30, 1e30  # far beyond any model's, and a product of several is still finite


class StringArray(Sequence[str]):
    """Strings of a file, all decoded on first use. Invalid UTF-8 becomes U+FFFD."""

    def __init__(self, length: int, decode: Callable[[], list[str]]) -> None:
        self._length = length
        self._decode = decode
        self._texts: list[str] | None = None

    def texts(self) -> list[str]:
        """The list itself, shared by every caller: do not change it."""
        if self._texts is None:
            self._texts = self._decode()
        return self._texts

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.texts()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts())


NumberArray = npt.NDArray[Any]  # integers, floats or bools as stored, read-only
MetadataValue = bool | int | float | str | NumberArray | StringArray | tuple[Any, ...]


class Metadata(Mapping[str, MetadataValue]):
    """Key-values of one model. Accessors raise ModelFileError; a default makes a key optional, never a wrong type."""

    def __init__(self, file: Path, values: Mapping[str, MetadataValue]) -> None:
        self.file = file
        self._values = dict(values)

    def __getitem__(self, key: str) -> MetadataValue:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def integer(self, key: str, *, default: int | None = None) -> int:
        """A whole number of any stored width."""
        value = self._find(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong_type(key, "a whole number")
        return self._checked_width(key, value)

    def number(self, key: str, *, default: float | None = None) -> float:
        """A whole or floating-point number; NaN and infinity are the caller's to judge."""
        value = self._find(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong_type(key, "a number")
        return float(self._checked_width(key, value) if isinstance(value, int) else value)

    def boolean(self, key: str, *, default: bool | None = None) -> bool:
        value = self._find(key, default)
        if not isinstance(value, bool):
            raise self._wrong_type(key, "true or false")
        return value

    def text(self, key: str, *, default: str | None = None) -> str:
        value = self._find(key, default)
        if not isinstance(value, str):
            raise self._wrong_type(key, "a string")
        return value

    def integers(self, key: str) -> NumberArray:
        """An array of whole numbers, as stored."""
        return self._numbers(key, "iu", "an array of whole numbers")

    def numbers(self, key: str) -> NumberArray:
        """An array of floating-point numbers, as stored."""
        return self._numbers(key, "f", "an array of floating-point numbers")

    def booleans(self, key: str) -> NumberArray:
        """An array of bools."""
        return self._numbers(key, "b", "an array of bools")

    def texts(self, key: str) -> list[str]:
        """An array of strings, decoded now; the list is shared: do not change it."""
        value = self._find(key, None)
        if not isinstance(value, StringArray):
            raise self._wrong_type(key, "an array of strings")
        return value.texts()

    def without(self, *keys: str) -> "Metadata":
        """A copy that lacks these keys."""
        return Metadata(self.file, {key: value for key, value in self._values.items() if key not in keys})

    def _numbers(self, key: str, kinds: str, wanted: str) -> NumberArray:
        value = self._find(key, None)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            raise self._wrong_type(key, wanted)
        return value

    def _checked_width(self, key: str, value: int) -> int:
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise ModelFileError(
                self.file, f"key {key!r} is a whole number of {value.bit_length()} bits; the limit is 64"
            )
        return value

    def _find(self, key: str, default: MetadataValue | None) -> MetadataValue:
        value = self._values.get(key, default)
        if value is None:
            raise ModelFileError(self.file, f"key {key!r} is missing")
        return value

    def _wrong_type(self, key: str, wanted: str) -> ModelFileError:
        found = describe_value(self._values[key])
        return ModelFileError(self.file, f"key {key!r} must be {wanted}; the file has {found}")


def is_setting(value: object) -> TypeGuard[int | float]:
    """Whether this is a number a setting may have: above 0, and neither so small nor so large that sums overflow."""
    return isinstance(value, int | float) and not isinstance(value, bool) and MIN_SETTING <= value <= MAX_SETTING


def describe_value(value: MetadataValue) -> str:
    """The type of a value in words, with the value itself where it is short."""
    if isinstance(value, StringArray):
        return f"an array of {len(value)} strings"
    if isinstance(value, np.ndarray):
        return f"an array of {len(value)} {value.dtype.name}"
    if isinstance(value, tuple):
        return f"an array of {len(value)} arrays"
    kinds: dict[type, str] = {bool: "the bool", int: "the whole number", float: "the number", str: "the string"}
    kind = kinds.get(type(value), f"the {type(value).__name__}")
    shown = repr(value)
    return f"{kind} {shown if len(shown) <= 60 else shown[:57] + '...'}"
