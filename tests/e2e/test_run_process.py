"""`twostroke run` as a process: what reaches stdout, stderr, terminals and closed pipes."""

import os
import pty
import signal
import subprocess
import termios
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cli.builders import ANSWER, environment, make_answering, make_endless, run, running


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def model(home: Path) -> str:
    return make_answering(home)


@pytest.fixture(scope="module")
def endless(home: Path) -> str:
    return make_endless(home)


def test_stdout_is_the_answer_and_one_line_end(home: Path, model: str) -> None:
    code, out, err = run(["run", "-m", model, "--raw", "why?"], env=environment(home))
    assert (code, out.decode()) == (0, ANSWER + "\n")
    report = err.decode().splitlines()
    assert [line.split()[0] for line in report if line and not line.startswith(" ")] == [
        "measured",
        "prefill",
        "decode",
        "TTFT",
        "E2E",
        "KV",
        "end",
    ]
    assert b"\x1b" not in out + err


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_bytes_are_utf8_whatever_the_locale(home: Path, model: str, locale: str) -> None:
    arguments: list[str | bytes] = ["run", "-m", model, "--raw", "--quiet", "é漢?".encode()]
    assert run(arguments, env=environment(home, LC_ALL=locale)) == (0, ANSWER.encode() + b"\n", b"")


def test_a_pipe_is_the_prompt_even_without_a_last_line_end(home: Path, model: str) -> None:
    env = environment(home, LC_ALL="POSIX")
    code, out, _ = run(["run", "-m", model, "--quiet", "--raw"], env=env, data="é?".encode())
    assert (code, out.decode()) == (0, ANSWER + "\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("is_buffered", [True, False])
@pytest.mark.parametrize("arguments", [["models"], ["run", "--raw", "why?"], ["--version"], ["run", "--help"]])
def test_a_full_disk_is_one_line_that_names_stdout(
    home: Path, model: str, arguments: list[str], is_buffered: bool
) -> None:
    env = environment(home, PYTHONUNBUFFERED="" if is_buffered else "1", TWOSTROKE_HOME=str(home))
    given = [*arguments, "-m", model, "--quiet"] if "--raw" in arguments else arguments
    with open("/dev/full", "wb") as full, running(given, env=env, stdout=full) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith(b"twostroke: stdout cannot be written: No space left on device")
    assert err.count(b"\n") == 1


def test_an_empty_stdin_ends_at_once_with_the_fix(home: Path, model: str) -> None:
    code, out, err = run(["run", "-m", model, "--raw"], env=environment(home))
    assert (code, out) == (2, b"")
    assert err.startswith(b"twostroke: the prompt is empty: give one")
    assert len(err) < 1000


def asked_endlessly(home: Path, endless: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running(["run", "-m", endless, "--raw", "--max-tokens", "500000", "why?"], env=environment(home))


def test_a_reader_that_leaves_ends_the_program_quietly(home: Path, endless: str) -> None:
    with asked_endlessly(home, endless) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"x"
        process.stdout.close()
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == b""


def test_ctrl_c_keeps_what_is_there(home: Path, endless: str) -> None:
    with asked_endlessly(home, endless) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (first + rest).rstrip(b"\n") == (b"xy" * 500_000)[: len(first + rest) - 1]
    assert (first + rest).endswith(b"\n")
    assert b"cancelled;" in err
    assert b"Traceback" not in err


def test_a_stopped_program_goes_on_and_a_terminated_one_ends(home: Path, endless: str) -> None:
    with asked_endlessly(home, endless) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        process.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read(1) == b"y"
        process.terminate()
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (-signal.SIGTERM, b"")


@pytest.mark.parametrize(
    ("changes", "has_escapes"), [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)]
)
def test_a_terminal_gets_colour_unless_told_otherwise(
    home: Path, model: str, changes: dict[str, str], has_escapes: bool
) -> None:
    master, slave = pty.openpty()
    try:
        before = termios.tcgetattr(slave)
        arguments, env = ["run", "-m", model, "--raw", "why?"], environment(home, **changes)
        with running(arguments, env=env, stdin=slave, stdout=slave, stderr=slave) as process:
            shown = read_terminal(master)
            assert process.wait(timeout=20) == 0
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(slave)
        os.close(master)
    assert shown.decode().startswith(ANSWER + "\r\n")
    assert (b"\x1b" in shown) is has_escapes


def read_terminal(master: int) -> bytes:
    """Everything up to the report's last line."""
    shown = b""
    while b" answer tokens" not in shown:
        shown += os.read(master, 10_000)
    while not shown.endswith(b"\n"):
        shown += os.read(master, 10_000)
    return shown
