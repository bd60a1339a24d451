"""Programs of `bench/` tell what they are before they measure or miss anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import twostroke

BENCH = Path(__file__).parents[2] / "bench"


def helped(script: str, *paths: Path) -> tuple[int, str, str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*paths, Path(twostroke.__file__).parents[1]]))}
    command = [sys.executable, str(BENCH / f"{script}.py"), "--help"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("script", ["sampling", "step_overhead"])
def test_help_measures_nothing(script: str) -> None:
    code, out, err = helped(script)
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: {script}.py [-h]")


@pytest.mark.parametrize("script", ["fidelity", "make_models"])
def test_a_missing_library_is_named_under_what_the_program_does(script: str, tmp_path: Path) -> None:
    for library in ("llama_cpp", "gguf"):
        (tmp_path / f"{library}.py").write_text(f"raise ImportError(name={library!r})\n")
    code, out, err = helped(script, tmp_path)
    assert (code, out) == (1, "")
    assert f"python bench/{script}.py " in err
    assert err.rstrip().endswith(" is missing: pip install '.[bench]'")
    assert "Traceback" not in err
