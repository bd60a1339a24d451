"""`twostroke delete`: remove the files of a model that was fetched."""

import sys
from typing import Annotated

import typer

from twostroke.config import resolve
from twostroke.model.catalog import delete as delete_files
from twostroke.view import quantity


def delete(name: Annotated[str, typer.Argument(help="A fetched model, as `twostroke models` names it.")]) -> None:
    """Delete the files of a fetched model. Its packed weights go with `twostroke models --prune`."""
    num_bytes = delete_files(name, home=resolve().home)
    sys.stdout.write(f"deleted {name}, {quantity.size(num_bytes)}\n")
