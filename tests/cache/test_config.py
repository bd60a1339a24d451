"""Wrong settings are refused with the value."""

import pytest

from twostroke.cache.config import CacheConfig
from twostroke.errors import ConfigError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"block_size": 0}, "block_size is 0"),
        ({"num_blocks": ()}, "num_blocks has 0 and windows 1"),
        ({"num_blocks": (1, 2)}, "num_blocks has 2 and windows 1"),
        ({"num_blocks": (0,)}, "KV group 0 has 0 blocks"),
        ({"windows": (0,)}, "KV group 0 has a window of 0"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_value(fields: dict[str, object], message: str) -> None:
    right = {"block_size": 4, "num_blocks": (4,), "windows": (None,)}
    CacheConfig(**right)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        CacheConfig(**{**right, **fields})  # type: ignore[arg-type]
