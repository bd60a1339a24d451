"""The environment becomes one frozen Config, or an error that says how to mend it."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from twostroke.config import MAX_THREADS, resolve
from twostroke.errors import ConfigError


def test_empty_environment_gives_defaults() -> None:
    config = resolve({})
    assert config.home.name == "twostroke"
    assert config.isa is None
    assert config.threads is None
    assert config.ollama_models == Path.home() / ".ollama" / "models"
    assert config.has_color
    assert not config.is_dumb_terminal


def test_the_process_environment_is_the_default_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path))
    assert resolve().home == tmp_path


def test_home_moves_and_need_not_exist(tmp_path: Path) -> None:
    assert resolve({"TWOSTROKE_HOME": str(tmp_path / "new")}).home == tmp_path / "new"


def test_home_understands_the_tilde() -> None:
    assert resolve({"TWOSTROKE_HOME": "~/models"}).home == Path.home() / "models"


def test_home_is_absolute_so_that_changing_directory_moves_nothing() -> None:
    assert resolve({"TWOSTROKE_HOME": "models"}).home == Path.cwd() / "models"


@pytest.mark.parametrize("name", ["TWOSTROKE_HOME", "OLLAMA_MODELS"])
@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_folder_is_an_error(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is empty: name a folder or unset it"):
        resolve({name: value})


def test_a_file_as_home_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match="that is a file, name a folder"):
        resolve({"TWOSTROKE_HOME": str(file)})


@pytest.mark.parametrize("name", ["TWOSTROKE_HOME", "OLLAMA_MODELS"])
def test_a_tilde_that_means_nobody_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is '~no-such-user/models': no home folder is known"):
        resolve({name: "~no-such-user/models"})


def test_ollama_store_can_be_elsewhere(tmp_path: Path) -> None:
    assert resolve({"OLLAMA_MODELS": str(tmp_path)}).ollama_models == tmp_path


@pytest.mark.parametrize("isa", ["portable", "avx2", "avxvnni", "avx512", "neon", "neon_i8mm"])
def test_isa_can_be_forced(isa: str) -> None:
    assert resolve({"TWOSTROKE_ISA": isa}).isa == isa


@pytest.mark.parametrize("value", ["", "AVX512", "sse2"])
def test_unknown_isa_lists_the_known(value: str) -> None:
    with pytest.raises(ConfigError, match=r"TWOSTROKE_ISA is '.*': it must be one of portable, avx2, avxvnni, avx512"):
        resolve({"TWOSTROKE_ISA": value})


@given(st.integers(min_value=1, max_value=MAX_THREADS))
def test_threads_in_range_are_taken(threads: int) -> None:
    assert resolve({"TWOSTROKE_THREADS": str(threads)}).threads == threads


@pytest.mark.parametrize(
    "value", ["", "0", "-1", "two", "1.5", " 2", "1025", "100000", "9" * 5000, "000029999", "٢", "²"]
)
def test_threads_out_of_range_are_an_error(value: str) -> None:
    with pytest.raises(ConfigError, match="whole number from 1 to 1024"):
        resolve({"TWOSTROKE_THREADS": value})


def test_a_misspelt_variable_names_the_close_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown environment variable TWOSTROKE_THREAD: did you mean .*_THREADS\?"):
        resolve({"TWOSTROKE_THREAD": "2"})


def test_of_several_unknown_variables_the_first_by_name_is_told() -> None:
    with pytest.raises(ConfigError, match="unknown environment variable TWOSTROKE_A:"):
        resolve({"TWOSTROKE_B": "1", "TWOSTROKE_A": "1"})


@pytest.mark.parametrize(("name", "value"), [("TWOSTROKE_", ""), ("TWOSTROKE_home", "/x"), ("TWOSTROKE_MODEL", "x")])
def test_every_variable_that_bears_our_name_must_be_known(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown environment variable {name}:"):
        resolve({name: value})


@pytest.mark.parametrize(("value", "threads"), [("1", 1), ("007", 7), ("1024", 1024), ("000000008", 8)])
def test_the_first_and_last_number_of_threads_are_taken(value: str, threads: int) -> None:
    assert resolve({"TWOSTROKE_THREADS": value}).threads == threads


def test_a_folder_is_any_path_that_is_no_file(tmp_path: Path) -> None:
    device = Path("/dev/null")
    with pytest.raises(ConfigError, match="OLLAMA_MODELS is '/dev/null': that is a file, name a folder"):
        resolve({"OLLAMA_MODELS": str(device)})
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    config = resolve({"TWOSTROKE_HOME": str(link), "OLLAMA_MODELS": "store"})
    assert (config.home, config.ollama_models) == (link, Path.cwd() / "store")


def test_an_unknown_variable_far_from_all_lists_the_known() -> None:
    with pytest.raises(
        ConfigError, match="known are TWOSTROKE_HOME, TWOSTROKE_ISA, TWOSTROKE_PACKED_GB, TWOSTROKE_THREADS"
    ):
        resolve({"TWOSTROKE_Q": "1"})


def test_variables_of_other_programs_are_left_alone() -> None:
    assert resolve({"TWOSTROKES": "1", "PATH": "", "OLLAMA_HOST": "x"}) == resolve({})


@pytest.mark.parametrize(("value", "has_color"), [("1", False), ("0", False), ("", True)])
def test_no_color_counts_when_not_empty(value: str, has_color: bool) -> None:
    assert resolve({"NO_COLOR": value}).has_color is has_color


@pytest.mark.parametrize(("term", "is_dumb"), [("dumb", True), ("xterm-256color", False), ("", False)])
def test_term_dumb_is_seen(term: str, is_dumb: bool) -> None:
    assert resolve({"TERM": term}).is_dumb_terminal is is_dumb


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        ("10", 10),
        ("1", 1),
        ("10000", 10_000),
        ("10001", None),
        ("1.5", None),
        ("٢", None),
        ("", None),
        ("0", None),
        ("-3", None),
        ("wide", None),
        ("9" * 9, None),
    ],
)
def test_columns_is_a_width_or_nothing(value: str, columns: int | None) -> None:
    assert resolve({"COLUMNS": value}).columns == columns


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolve({}).threads = 3  # type: ignore[misc]


@pytest.mark.parametrize(("value", "num_bytes"), [("0", 0), ("1", 10**9), ("250", 250 * 10**9)])
def test_packed_weights_have_a_limit_in_gigabytes(value: str, num_bytes: int) -> None:
    assert resolve({"TWOSTROKE_PACKED_GB": value}).packed_bytes == num_bytes


def test_packed_weights_take_16_gigabytes_where_nothing_is_said() -> None:
    assert resolve({}).packed_bytes == 16 * 10**9


@pytest.mark.parametrize("value", ["", " ", "-1", "1.5", "16GB", "1000001", "ten"])
def test_a_limit_that_is_no_number_is_an_error(value: str) -> None:
    with pytest.raises(ConfigError, match=r"TWOSTROKE_PACKED_GB is .* whole number from 0 to 1000000"):
        resolve({"TWOSTROKE_PACKED_GB": value})
