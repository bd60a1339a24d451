"""Wrong settings are refused with the value."""

import pytest

from twostroke.errors import ConfigError
from twostroke.schedule.config import SchedulerConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_rows", 0),
        ("max_step_tokens", 0),
        ("max_chunk_tokens", 0),
        ("min_prefill_tokens", 0),
        ("max_waiting", 0),
        ("max_preemptions", -1),
        ("max_decode_stall_s", -0.1),
        ("max_step_s", float("nan")),
        ("priority_ageing_s", -1.0),
        ("prefill_ageing_tokens_per_s", -1.0),
        ("output_quantile", 0.0),
        ("output_quantile", 1.0),
    ],
)
def test_a_wrong_setting_is_refused_by_name_and_value(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{field} is {value}"):
        SchedulerConfig(**{field: value})  # type: ignore[arg-type]


def test_a_step_has_room_for_every_row_and_one_prefill_token() -> None:
    SchedulerConfig(max_rows=7, max_step_tokens=8)
    with pytest.raises(ConfigError, match="use max_rows of at most 7"):
        SchedulerConfig(max_rows=8, max_step_tokens=8)
