"""What the program imports before it knows the command: the way to the first token starts here."""

import subprocess
import sys

import pytest

from tests.cli.builders import environment

HEAVY = [
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


@pytest.mark.parametrize("module", ["twostroke", "twostroke.cli.app"])
def test_heavy_modules_wait_for_the_command_that_needs_them(
    tmp_path_factory: pytest.TempPathFactory, module: str
) -> None:
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    env = environment(tmp_path_factory.mktemp("home"))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
