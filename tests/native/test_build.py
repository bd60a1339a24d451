"""What a fresh machine may lack ends the build with the fix, not with a page of compiler output."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
# The one on PATH, or the one of a wheel beside this Python.
CMAKE = shutil.which("cmake", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))

pytestmark = [
    pytest.mark.skipif(CMAKE is None, reason="cmake is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in compilers are shell scripts"),
]


def configure(build: Path, *options: str, **environment: str) -> str:
    """What `cmake` says when it must fail, as one line."""
    command = [str(CMAKE), "-S", str(REPOSITORY), "-B", str(build), f"-DPython_EXECUTABLE={sys.executable}", *options]
    run = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode != 0, run.stdout
    return " ".join((run.stdout + run.stderr).split())


def make_script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_no_compiler_names_the_package_to_install(tmp_path: Path) -> None:
    said = configure(tmp_path / "build", CXX=str(tmp_path / "missing"))
    assert "twostroke needs a C++20 compiler and found none" in said
    assert "apt-get install g++" in said


def test_a_compiler_without_cpp20_is_named(tmp_path: Path) -> None:
    real = shutil.which("g++") or shutil.which("clang++")
    if real is None:
        pytest.skip("no compiler to age")
    refuse = 'for a; do case "$a" in -std=*20|-std=*2a) echo "unknown $a" >&2; exit 1;; esac; done'
    old = make_script(tmp_path / "old", f'{refuse}\nexec {real} -std=c++17 "$@"')
    said = configure(tmp_path / "build", CXX=old)
    assert f"twostroke needs C++20, which {old}" in said
    assert "g++ 11 or clang++ 14 or newer" in said


def test_missing_python_headers_name_the_package_to_install(tmp_path: Path) -> None:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("no compiler, which is asked for first")
    said = configure(tmp_path / "build", f"-DPython_INCLUDE_DIR={tmp_path / 'empty'}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"twostroke needs the headers of Python {version} (Python.h)" in said
    assert f"apt-get install python{version}-dev" in said
