"""A process whose reader has left: that is no failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.builders import environment
from twostroke.cli.exit_code import ExitCode


@pytest.mark.parametrize("is_buffered", [True, False])
@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["bench", "serve", "-h"], ["--version"], ["models"]]
)
def test_a_reader_that_is_gone_is_no_failure(tmp_path: Path, arguments: list[str], is_buffered: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "twostroke", *arguments],
            env=environment(tmp_path, PYTHONUNBUFFERED="" if is_buffered else "1"),
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (ExitCode.DONE, b"")
