"""Numbers as people read them."""

import pytest
from hypothesis import given, strategies as st

from twostroke.view import quantity


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0.00 ms"),
        (0.00042, "0.42 ms"),
        (0.00999, "9.99 ms"),
        (0.009996, "10.0 ms"),
        (0.0341, "34.1 ms"),
        (0.9999, "999.9 ms"),
        (0.99996, "1.00 s"),
        (1.254, "1.25 s"),
        (125.0, "125.00 s"),
        (-0.0004, "-0.40 ms"),
        (0.99995, "1.00 s"),
        (0.99994, "999.9 ms"),
        (0.009994, "9.99 ms"),
        (-0.0341, "-34.1 ms"),
        (-2.0, "-2.00 s"),
    ],
)
def test_durations_are_ms_below_a_second(seconds: float | None, text: str) -> None:
    assert quantity.duration(seconds) == text


@pytest.mark.parametrize(
    ("per_s", "text"), [(None, "-"), (4.0, "4.0"), (999.96, "1000"), (999.94, "999.9"), (0.0, "0.0"), (5120.4, "5120")]
)
def test_rates_lose_the_decimal_at_a_thousand(per_s: float | None, text: str) -> None:
    assert quantity.rate(per_s) == text


@pytest.mark.parametrize(("ratio", "text"), [(None, "-"), (0.0, "0 %"), (0.614, "61 %"), (1.0, "100 %")])
def test_shares_are_percent(ratio: float | None, text: str) -> None:
    assert quantity.share(ratio) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (2_500_000, "2.5 MB"),
        (999_600, "1 MB"),
        (999_499, "999 kB"),
        (999_499_999, "999 MB"),
        (999_500_000, "1 GB"),
        (999_500_000_000, "1 TB"),
        (4_660_000_000, "4.66 GB"),
        (10**13, "10 TB"),
    ],
)
def test_sizes_are_decimal(num_bytes: int, text: str) -> None:
    assert quantity.size(num_bytes) == text


@given(st.integers(min_value=0, max_value=10**16))
def test_a_size_is_within_one_percent_of_the_bytes(num_bytes: int) -> None:
    number, unit = quantity.size(num_bytes).split()
    scale = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    assert float(number) * scale == pytest.approx(num_bytes, rel=0.01)


@pytest.mark.parametrize(("number", "text"), [(0, "0 blocks"), (1, "1 block"), (2, "2 blocks")])
def test_counts_agree_with_their_noun(number: int, text: str) -> None:
    assert quantity.count(number, "block") == text
