"""The file of a measured cost: found by all it depends on, read back as it was written, refused when damaged."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.builders_cost import make_cost
from tests.core.test_step_cost import costs
from twostroke.core.cost_file import CostKey, cost_from_json, cost_to_json, read_measured
from twostroke.core.step_cost import StepCost, Table

KEY = CostKey(cpu="EPYC", cores=2, isa="avx512", threads=2, build="b0", model="m0", precision="bf16")


@given(costs)
def test_a_cost_is_read_as_it_was_written(cost: StepCost) -> None:
    assert cost_from_json(json.loads(json.dumps(cost_to_json(cost), allow_nan=False))) == cost


@pytest.mark.parametrize("field", ["cpu", "isa", "build", "model", "precision"])
def test_each_part_of_the_key_is_another_file(field: str) -> None:
    home = Path("/home")
    assert replace(KEY, **{field: "other"}).path(home) != KEY.path(home)  # type: ignore[arg-type]
    assert replace(KEY, threads=1).path(home) != replace(KEY, threads=None).path(home) != KEY.path(home)
    assert replace(KEY, cores=3).path(home) != KEY.path(home)
    assert replace(KEY).path(home) == KEY.path(home)


def test_a_file_that_is_not_there_is_no_cost_and_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_measured(tmp_path / "none.json") is None
    assert not caplog.records


@given(costs.map(cost_to_json), st.sampled_from(["base_s", "linear", "windows"]))
def test_a_cost_that_lacks_something_is_none(fields: dict[str, object], missing: str) -> None:
    del fields[missing]
    with pytest.raises(KeyError):
        cost_from_json(fields)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"cost": 1}',
        '{"cost": {"base_s": 1, "row_s": 1, "sample_s": 1, "linear": {"law": [1, 2]}, "windows": []}}',
        '{"cost": {"base_s": -1, "windows": []}}',
        '{"cost": {"base_s": NaN, "windows": []}}',
        '{"cost": {"base_s": true, "windows": []}}',
        '{"cost": {"base_s": 0, "row_s": 0, "sample_s": 0, "linear": {"table": [[2, 1], [1, 2]]}, "windows": []}}',
    ],
)
def test_a_damaged_file_is_no_cost_and_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    path = tmp_path / "cost.json"
    path.write_text(text)
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        assert read_measured(path) is None
    assert str(path) in caplog.text


@pytest.mark.parametrize("count", [0, -1, 1.5, None, "2", True])
def test_a_cost_for_no_number_of_threads_is_damaged(tmp_path: Path, count: object) -> None:
    path = tmp_path / "cost.json"
    for threads in (count, {"prefill": count, "decode": 1}, {"prefill": 1, "decode": count}, {"prefill": 1}):
        path.write_text(json.dumps({"cost": cost_to_json(make_cost()), "threads": threads}))
        assert read_measured(path) is None


def test_a_table_stays_a_table() -> None:
    table = Table(((1.0, 2.0), (5.0, 6.0)))
    cost = StepCost(base_s=0.0, row_s=0.0, sample_s=0.0, linear=table, head=table, attention=table)
    assert cost_from_json(cost_to_json(cost)).linear == table
