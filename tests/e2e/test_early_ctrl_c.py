"""Ctrl-C has its exit code from the first import of the program on, and says nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.builders import environment, make_chain

# Python hears Ctrl-C at the moment the named module is looked for, as a hasty user would send it.
PROGRAM = """
import os, signal, sys

awaited = sys.argv.pop(1)

class Hasty:
    def find_spec(name, path=None, target=None):
        if name == awaited:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Hasty)
from twostroke.cli.entry import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["twostroke.cli.app", "typer", "twostroke.llm", "numpy", "tokenizers", "jinja2"])
def test_ctrl_c_while_modules_load_has_the_code_of_the_signal(tmp_path: Path, module: str) -> None:
    model = make_chain(tmp_path / "chain.gguf", prompt_end="?", answer=b"abc")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, "run", "-m", str(model), "why?"],
        env=environment(tmp_path / "home"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
