"""Ctrl-C has its exit code from the first import on, says nothing, and is left alone where others decide about it."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.builders import environment, make_chain
from twostroke.cli.entry import leaving_on_interrupt

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


def test_ctrl_c_is_python_s_again_after_the_imports() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with leaving_on_interrupt():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_parent_that_ignores_ctrl_c_is_obeyed() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with leaving_on_interrupt():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_import_without_a_say_about_signals() -> None:
    passed = []

    def enter() -> None:
        with leaving_on_interrupt():
            passed.append(True)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert passed == [True]
