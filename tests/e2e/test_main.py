"""`python -m twostroke` is the command line."""

import subprocess
import sys
from pathlib import Path

import twostroke
from tests.cli.builders import environment


def said(home: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "twostroke", *arguments]
    ended = subprocess.run(
        command, env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_it_is_the_program(tmp_path: Path) -> None:
    assert said(tmp_path, "--version") == (0, f"twostroke {twostroke.__version__}\n", "")


def test_its_exit_codes_reach_the_shell(tmp_path: Path) -> None:
    code, out, err = said(tmp_path, "run", "-m", "no-such-model", "hi")
    assert (code, out) == (2, "")
    assert err.startswith("twostroke: there is no model and no file 'no-such-model'")
