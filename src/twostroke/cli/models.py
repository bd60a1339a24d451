"""`twostroke models`: what can be named, what is already here, and what packed weights take on disk."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len

from twostroke.config import Config, resolve
from twostroke.model.catalog import CatalogEntry, list_models
from twostroke.view import quantity

if TYPE_CHECKING:
    from twostroke.model.packed_store import PackedEntry, PackedStore

HEADINGS = ("name", "size", "state", "license", "description")
PACKED_HEADINGS = ("packed weights of", "size", "state")


def models(
    *,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete packed weights of files that are gone or have changed.")
    ] = False,
) -> None:
    """List known models, and packed weights kept for quick starts."""
    config = resolve()
    if prune:
        sys.stdout.write(pruned_line(packed_store(config).prune()) + "\n")
        return
    entries = list_models(home=config.home, ollama_models=config.ollama_models)
    lines = aligned([HEADINGS, *(cells(entry) for entry in entries)])
    if packed := packed_store(config).entries():
        lines += ["", *aligned([PACKED_HEADINGS, *(packed_cells(entry) for entry in packed)])]
    sys.stdout.write("\n".join(lines) + "\n")


def packed_store(config: Config) -> "PackedStore":
    from twostroke.load import packed_store  # with all it stands on a third of a second

    return packed_store(config)


def packed_cells(entry: "PackedEntry") -> tuple[str, ...]:
    """One line of packed weights: the file they were made of, of several the first."""
    made_of = str(entry.sources[0].path) if entry.sources else entry.path.name
    return (made_of, quantity.size(entry.num_bytes), "in use" if entry.is_usable else "outdated")


def pruned_line(removed: "Sequence[PackedEntry]") -> str:
    if not removed:
        return "all packed weights are in use, nothing was deleted"
    return f"deleted {quantity.count(len(removed), 'file')}, {quantity.size(sum(each.num_bytes for each in removed))}"


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
