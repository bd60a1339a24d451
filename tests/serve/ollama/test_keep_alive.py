"""The field `keep_alive`."""

import math
from typing import Any

import pytest

from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields
from twostroke.serve.ollama.keep_alive import take_keep_alive


@pytest.mark.parametrize(
    ("value", "seconds"), [(None, None), (0, 0.0), ("0", 0.0), (300, 300.0), ("5m", 300.0), (-1, math.inf)]
)
def test_durations_are_read_and_null_says_nothing(value: Any, seconds: float | None) -> None:
    assert take_keep_alive(Fields({"keep_alive": value})) == seconds
    assert take_keep_alive(Fields({})) is None


@pytest.mark.parametrize("value", ["", "soon", True, [], {}])
def test_anything_else_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ApiError, match=r"keep_alive is .*: it must be seconds or a duration") as caught:
        take_keep_alive(Fields({"keep_alive": value}))
    assert caught.value.param == "keep_alive"
