"""The models of this machine by the names other programs may use: listed, described, fetched, deleted.

Made by the command line for the server. Knows names alone: never a path that a stranger gave.
"""

from pathlib import Path

from twostroke.model.catalog import CatalogEntry, delete, list_fetched, pull
from twostroke.model.packaged_fetch import OnProgress


class Shelf:
    """What lies below one home folder."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def fetched(self) -> list[CatalogEntry]:
        """What was fetched and is still here."""
        return list_fetched(home=self._home)

    def pull(self, name: str, *, on_progress: OnProgress) -> None:
        """Fetch a model by its name. Terms that must be accepted are never accepted here.

        Raises ModelNotFoundError, TermsError or DownloadError.
        """
        pull(name, home=self._home, on_progress=on_progress)

    def delete(self, name: str) -> None:
        """Delete a fetched model. Raises ModelNotFoundError or OSError."""
        delete(name, home=self._home)
