import math

import pytest

from twostroke.serve.keep_alive import read_keep_alive


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        ("1m30s500ms", 90.5),
        ("90", 90.0),
        ("0", 0.0),
        ("0s", 0.0),
        (0, 0.0),
        (2.5, 2.5),
        (-1, math.inf),
        ("-1", math.inf),
        ("-1m", math.inf),
        (math.inf, math.inf),
        (100 * 365 * 86400, 100 * 365 * 86400.0),
        (1e10, math.inf),  # no calendar has its end
        ("9" * 60 + "h", math.inf),
    ],
)
def test_seconds_and_durations_are_read_and_what_is_negative_is_for_ever(value: object, seconds: float) -> None:
    assert read_keep_alive(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["", "soon", "5 m", "m", "1d", "5m ", "--1", "1e3", "٣m", "9" * 100, True, None, [], math.nan]
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="seconds or a duration"):
        read_keep_alive(value)
