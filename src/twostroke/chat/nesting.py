"""How deep plain data may be nested: what walks it later calls itself at every level."""

from collections.abc import Mapping
from typing import Any

MAX_LEVELS = 64  # schemas people write have some ten


def is_too_deep(value: Any) -> bool:
    """Whether a value has more than MAX_LEVELS levels of objects and lists."""
    level = [value]
    for _ in range(MAX_LEVELS + 1):
        level = [item for each in level for item in _items(each)]
        if not level:
            return False
    return True


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []
