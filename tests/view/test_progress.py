"""A download is one line on a terminal, whatever its width, and ten lines in a log."""

import io

import pytest

from tests.view.test_terminal import resize, screen_of, terminal_of, written
from twostroke.config import resolve
from twostroke.view.progress import Progress
from twostroke.view.terminal import Terminal

MB = 1_000_000
TITLE = "smollm2:135m from a package with a name that is far too long for any terminal 漢字漢字"


@pytest.mark.parametrize("columns", [1, 2, 10, 20, 80, 200])
@pytest.mark.parametrize("total", [None, 90 * MB])
def test_one_line_at_every_width(columns: int, total: int | None) -> None:
    with terminal_of(columns) as (stream, master):
        with Progress(TITLE, terminal=Terminal.of(stream, resolve({}))) as progress:
            for done in range(0, 91 * MB, 10 * MB):
                progress(done, total)
        lines = screen_of(written(stream, master), columns)
    assert len(lines) <= 1


def test_the_numbers_come_first_and_survive_a_cut() -> None:
    with terminal_of(40) as (stream, master):
        with Progress(TITLE, terminal=Terminal.of(stream, resolve({}))) as progress:
            progress(45 * MB, 90 * MB)
        # 39 columns: the last one stays free
        assert screen_of(written(stream, master), 40) == [" 50 %  45 MB of 90 MB  smollm2:135m fro"]


def test_columns_is_honoured() -> None:
    with terminal_of(200) as (stream, master):
        with Progress(TITLE, terminal=Terminal.of(stream, resolve({"COLUMNS": "10"}))) as progress:
            progress(45 * MB, 90 * MB)
        assert screen_of(written(stream, master), 200) == [" 50 %  45"]


def test_the_line_follows_a_resize() -> None:
    with terminal_of(80) as (stream, master):
        progress = Progress(TITLE, terminal=Terminal.of(stream, resolve({})))
        progress(10 * MB, 90 * MB)
        written(stream, master)
        resize(stream.fileno(), 20)
        progress(45 * MB, 90 * MB)
        shown = written(stream, master)
    assert screen_of(shown, 20) == [" 50 %  45 MB of 90"]


def test_a_shorter_line_erases_the_longer_one() -> None:
    with terminal_of(30) as (stream, master):
        with Progress("x", terminal=Terminal.of(stream, resolve({}))) as progress:
            progress(999 * MB, None)
            progress(1, None)
        assert screen_of(written(stream, master), 30) == ["1 B  x"]


def test_an_unchanged_line_is_not_drawn_again() -> None:
    with terminal_of(30) as (stream, master):
        progress = Progress("x", terminal=Terminal.of(stream, resolve({})))
        for done in range(500):
            progress(90 * MB + done, 180 * MB)
        assert written(stream, master).count(b"\r") == 1


def test_the_cursor_leaves_the_line_even_after_an_error() -> None:
    with terminal_of(30) as (stream, master):

        def interrupted() -> None:
            with Progress("x", terminal=Terminal.of(stream, resolve({}))) as progress:
                progress(1, 2)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert written(stream, master).endswith(b"\r\n")


@pytest.mark.parametrize("environ", [{}, {"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_a_log_gets_one_line_per_ten_percent(environ: dict[str, str]) -> None:
    stream = io.StringIO()
    with Progress("model", terminal=Terminal.of(stream, resolve(environ))) as progress:
        for done in range(0, 1001, 3):
            progress(done * MB, 1000 * MB)
        progress(1000 * MB, 1000 * MB)
    lines = stream.getvalue().splitlines()
    assert [int(line.split()[0]) for line in lines] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert lines[-1] == "100 %  1 GB of 1 GB  model"
    assert "\r" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_a_dumb_terminal_gets_a_log() -> None:
    with terminal_of(80) as (stream, master):
        with Progress("model", terminal=Terminal.of(stream, resolve({"TERM": "dumb"}))) as progress:
            progress(5 * MB, 10 * MB)
        assert written(stream, master) == b"50 %  5 MB of 10 MB  model\r\n"


def test_a_big_jump_is_one_line_of_a_log() -> None:
    stream = io.StringIO()
    progress = Progress("model", terminal=Terminal.of(stream, resolve({})))
    progress(0, 100)
    progress(95, 100)
    progress(99, 100)
    progress(100, 100)
    assert [line.split()[0] for line in stream.getvalue().splitlines()] == ["0", "95", "100"]


def test_a_log_of_unknown_length_stays_silent() -> None:
    stream = io.StringIO()
    with Progress("model", terminal=Terminal.of(stream, resolve({}))) as progress:
        progress(5 * MB, None)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("total", [None, 0])
def test_an_unknown_or_empty_length_shows_the_bytes_alone(total: int | None) -> None:
    with terminal_of(40) as (stream, master):
        with Progress("x", terminal=Terminal.of(stream, resolve({}))) as progress:
            progress(1500, total)
        assert screen_of(written(stream, master), 40) == ["1.5 kB  x"]
    log = io.StringIO()
    with Progress("x", terminal=Terminal.of(log, resolve({}))) as progress:
        progress(0, total)
    assert log.getvalue() == ""


@pytest.mark.parametrize("columns", [1, 2, 3, 7])
@pytest.mark.parametrize("title", ["漢字", "a\u0301", "\N{PINCHED FINGERS}"])
def test_the_narrowest_lines_fill_their_columns_and_never_the_last(columns: int, title: str) -> None:
    with terminal_of(columns) as (stream, master):
        progress = Progress(title, terminal=Terminal.of(stream, resolve({})))
        progress(5, 10)
        shown = written(stream, master).decode()
    assert shown == "\r" + " 50 %  5 B"[: max(1, columns - 1)]


def test_a_wide_character_is_not_cut_in_two() -> None:
    with terminal_of(10) as (stream, master):
        progress = Progress("漢字漢字", terminal=Terminal.of(stream, resolve({})))
        progress(1, None)  # 1 B and two spaces leave four of nine columns
        assert written(stream, master).decode() == "\r1 B  漢字"


def test_a_line_that_was_left_is_left_once_and_drawn_again_when_needed() -> None:
    with terminal_of(30) as (stream, master):
        with Progress("x", terminal=Terminal.of(stream, resolve({}))) as progress:
            progress.end_line()  # nothing is drawn: nothing to leave
            progress(1, 2)
            progress.end_line()
            progress.end_line()
            progress(1, 2)  # the same numbers, on a new line
        shown = written(stream, master)
    line = b"\r" + b" 50 %  1 B of 2 B  x".ljust(29)
    assert shown == (line + b"\r\n") * 2


@pytest.mark.parametrize(
    ("steps", "percents"),
    [
        ([0, 9, 10, 19, 20], [0, 10, 20]),
        ([9, 10], [9, 10]),
        ([11, 19, 20, 21], [11, 20]),
        ([100, 100], [100]),
    ],
)
def test_a_log_speaks_again_at_the_next_full_ten(steps: list[int], percents: list[int]) -> None:
    stream = io.StringIO()
    progress = Progress("x", terminal=Terminal.of(stream, resolve({})))
    for done in steps:
        progress(done, 100)
    assert [int(line.split()[0]) for line in stream.getvalue().splitlines()] == percents
