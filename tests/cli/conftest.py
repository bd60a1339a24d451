"""What every test of the command line shares."""

from collections.abc import Iterator
from functools import cache

import pytest
import typer.main


@pytest.fixture(scope="session", autouse=True)
def commands_are_built_once() -> Iterator[None]:
    """A process runs one command. Here hundreds run in one, and the tree of commands costs more than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield
