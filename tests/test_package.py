"""The package as a whole: public names, and the facts that live in one place each."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import twostroke

SOURCE = Path(twostroke.__file__).parent
REPOSITORY = Path(__file__).parent.parent


def sources() -> Iterator[Path]:
    return (path for path in sorted(SOURCE.rglob("*.py")))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def names_used(path: Path) -> set[str]:
    """Every dotted name a file reads, and every module it imports."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                found.add(f"{owner}.{attribute}")
            case ast.ImportFrom(module=str(module), names=aliases):
                found |= {f"{module}.{alias.name}" for alias in aliases}
            case _:
                pass
    return found


def typed_names() -> dict[str, str]:
    """What type checkers see: each public name with the module it is imported from."""
    tree = tree_of(Path(twostroke.__file__))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_rooms_import_only_what_their_contracts_allow() -> None:
    """As `make check` has it: a sideways import is no matter of taste that waits for the next look.

    In a process of its own: the linter takes over the logging of the process that it runs in.
    """
    linter = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", linter, "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_is_the_sorted_public_names() -> None:
    assert twostroke.__all__ == sorted(typed_names(), key=lambda name: (not name.isupper(), name))


def test_names_come_from_where_type_checkers_see_them() -> None:
    assert {name: home for home, names in twostroke._HOMES.items() for name in names} == typed_names()
    for name, home in typed_names().items():
        assert getattr(twostroke, name) is getattr(importlib.import_module(home), name)
    assert set(twostroke.__all__) < set(dir(twostroke))


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'twostroke' has no attribute 'LLm'"):
        _ = twostroke.LLm  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'LLm'"):
        from twostroke import LLm  # type: ignore[attr-defined]  # noqa: F401


def test_version_is_three_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", twostroke.__version__)


@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r"os\.(environ|environb|getenv|putenv)", {"config.py"}),
        (r"time\.(time|monotonic|perf_counter|process_time)(_ns)?", {"core/clock.py"}),
        (r"threading\.(Lock|RLock|Condition|Semaphore|Barrier)", {"engine/worker.py"}),
        (r"(asyncio|multiprocessing)\.(Lock|Condition|Semaphore)", {"engine/worker.py"}),
    ],
)
def test_environment_clock_and_locks_live_in_one_place(pattern: str, home: set[str]) -> None:
    users = {room_of(path) for path in sources() if any(re.fullmatch(pattern, name) for name in names_used(path))}
    assert users <= home


def test_every_module_says_what_it_owns() -> None:
    for path in sources():
        docstring = ast.get_docstring(tree_of(path))
        assert docstring, f"{room_of(path)} has no docstring"
        prose = [line for line in docstring.splitlines() if not line.startswith("    ")]  # drawings are indented
        assert len(prose) <= 10, f"{room_of(path)}: too long a docstring"


def test_only_bindings_know_nanobind() -> None:
    users = {path.name for path in (REPOSITORY / "native").rglob("*.[ch]*") if "nanobind" in path.read_text("utf-8")}
    assert users
    assert all(name.startswith("bindings") for name in users), users


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = (REPOSITORY / ".ci" / "run").read_text("utf-8").splitlines()[-1]
    assert "python -m pytest" in command
    assert command in (REPOSITORY / "README.md").read_text("utf-8")
