"""`twostroke pull`: fetch a model now instead of on first use; one that is here is checked byte by byte."""

import sys
from typing import Annotated

import typer

from twostroke.cli.terms import ask_terms
from twostroke.config import resolve
from twostroke.model.catalog import pull as fetch
from twostroke.view.progress import Progress
from twostroke.view.terminal import Terminal


def pull(
    name: Annotated[str, typer.Argument(help="smollm2:135m, gemma3:270m or hf:ORG/REPO[:FILE or quantisation].")],
    *,
    accept_terms: Annotated[bool, typer.Option("--accept-terms", help="Accept the model's terms unasked.")] = False,
) -> None:
    """Fetch a model, or check the one that is here; prints its path."""
    config = resolve()
    terminal = Terminal.of(sys.stderr, config)
    with Progress(name, terminal=terminal) as progress:
        terms = accept_terms or ask_terms(terminal, before=progress.end_line)
        path = fetch(name, home=config.home, on_progress=progress, accept_terms=terms)
    sys.stdout.write(f"{path}\n")
