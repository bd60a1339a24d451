"""`twostroke models`: what can be named, and what is already here."""

import sys

from rich.cells import cell_len

from twostroke.config import resolve
from twostroke.model.catalog import CatalogEntry, list_models
from twostroke.view import quantity

HEADINGS = ("name", "size", "state", "license", "description")


def models() -> None:
    """List the models that can be named."""
    config = resolve()
    entries = list_models(home=config.home, ollama_models=config.ollama_models)
    rows = [HEADINGS, *(cells(entry) for entry in entries)]
    sys.stdout.write("\n".join(aligned(rows)) + "\n")


def cells(entry: CatalogEntry) -> tuple[str, ...]:
    """One line of the table. A packaged model that is not here shows what fetching it would cost."""
    size = quantity.ABSENT if entry.num_bytes is None else quantity.size(entry.num_bytes)
    is_here = entry.path is not None or entry.license is None
    return (entry.name, size, "here" if is_here else "to fetch", entry.license or quantity.ABSENT, entry.description)


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines, columns padded by what a terminal shows of them."""
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
