"""What the program imports before it knows the command: the way to the first token starts here."""

import subprocess
import sys
from pathlib import Path

import pytest

import twostroke
from tests.cli.builders import environment

HEAVY = [
    "twostroke.llm",
    "numpy",
    "tokenizers",
    "jinja2",
    "fastapi",
    "uvicorn",
    "huggingface_hub",
    "transformers",
    "torch",
    "rich.console",
    "rich.progress",
    "pip",
    "httpx",
]


@pytest.mark.parametrize("module", ["twostroke", "twostroke.cli.entry", "twostroke.cli.app"])
def test_heavy_modules_wait_for_the_command_that_needs_them(
    tmp_path_factory: pytest.TempPathFactory, module: str
) -> None:
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    env = environment(tmp_path_factory.mktemp("home"))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_the_console_script_begins_without_the_command_line_library(tmp_path: Path) -> None:
    code = "import sys, twostroke.cli.entry; print('typer' in sys.modules, 'logging' in sys.modules)"
    env = environment(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_version_needs_no_numpy(tmp_path: Path) -> None:
    code = "import sys; from twostroke.cli.entry import main; main(); print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["twostroke", twostroke.__version__, "False"]
