"""A dyno kept on disk: whole or not at all, refused when damaged, and the engine finds its cost."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.measure.dyno_builders import KEY, make_dyno
from twostroke.core.cost_file import read_measured
from twostroke.measure.dyno_file import dyno_from_json, dyno_to_json, read_dyno, store_dyno


def test_a_dyno_is_read_as_it_was_stored_and_the_engine_finds_its_cost(tmp_path: Path) -> None:
    dyno = make_dyno()
    path = store_dyno(dyno, home=tmp_path)
    assert path == KEY.path(tmp_path)
    assert read_dyno(path) == dyno
    measured = read_measured(path)
    assert measured is not None
    assert (measured.cost, measured.threads) == (dyno.cost, (2, 2))
    assert [each.name for each in path.parent.iterdir()] == [path.name], "a temporary file was left"


def test_a_new_dyno_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = store_dyno(make_dyno(), home=tmp_path)
    path.write_text("damaged")
    store_dyno(make_dyno(), home=tmp_path)
    assert read_dyno(path) == make_dyno()


def test_nothing_there_is_nothing_and_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_dyno(KEY.path(tmp_path)) is None
    assert not caplog.records


@pytest.mark.parametrize("part", [key for key in dyno_to_json(make_dyno()) if key != "is_kept"])
def test_a_file_that_lacks_a_part_is_damaged(part: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fields = dyno_to_json(make_dyno())
    del fields[part]
    path = tmp_path / "dyno.json"
    path.write_text(json.dumps(fields))
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        assert read_dyno(path) is None
    assert str(path) in caplog.text


@pytest.mark.parametrize("text", ["", "[]", "null", '{"cost": []}', "\x00\x01"])
def test_what_is_no_dyno_is_damaged(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "dyno.json"
    path.write_text(text)
    assert read_dyno(path) is None
    assert "twostroke dyno measures it" in caplog.text


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("threads", 2),
        ("threads", {"prefill": 0, "decode": 2}),
        ("threads", {"prefill": 2, "decode": 7}),
        ("threads", {"prefill": 2}),
        ("num_rounds", "5"),
        ("took_s", -1.0),
        ("disk_bytes_per_s", float("nan")),
    ],
)
def test_a_value_that_cannot_be_is_damaged(part: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, AssertionError)):
        dyno_from_json(dyno_to_json(make_dyno()) | {part: value})


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dyno").write_text("a file where the folder belongs")
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        store_dyno(make_dyno(), home=tmp_path)
    assert "cannot be kept" in caplog.text
