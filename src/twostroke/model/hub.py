"""Models from a Hugging Face hub through its own client: `ORG/REPO`, `ORG/REPO:FILE` or `ORG/REPO:QUANTISATION`.

The client brings endpoint, token, proxies and resuming; files lie in its cache layout below our home.
Called by the catalog. The client is imported when it is used: it takes a third of a second.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from twostroke.errors import DownloadError, ModelNotFoundError, TwostrokeError
from twostroke.model.packaged_fetch import OnProgress

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")
TIMEOUT_S = 20.0  # for the list of files; downloads have the client's own
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_FOLDER_FILES = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|chat_template)\.json|chat_template\.jinja"
    r"|model.*\.safetensors|model\.safetensors\.index\.json"
)


@dataclass(frozen=True, slots=True)
class HubName:
    """A checked name; `choice` is a file of the repository or the name of a quantisation."""

    repo: str
    choice: str | None = None


@dataclass(frozen=True, slots=True)
class HubFile:
    path: str
    num_bytes: int


def parse_hub_name(name: str) -> HubName:
    """`ORG/REPO[:FILE or quantisation]`; raises ModelNotFoundError for anything else."""
    repo, colon, choice = name.partition(":")
    if not _REPO.fullmatch(repo) or ".." in repo or (colon and not choice):
        raise ModelNotFoundError(
            f"{name!r} is not the name of a repository; write hf:ORG/REPO, hf:ORG/REPO:FILE or hf:ORG/REPO:Q4_K_M"
        )
    return HubName(repo, choice or None)


def fetch_from_hub(
    name: HubName, cache: Path, *, on_progress: OnProgress | None = None, endpoint: str | None = None
) -> Path:
    """Fetch what the name means; return the GGUF file (the first part) or the folder.

    Raises ModelNotFoundError with what the repository has, or DownloadError.
    """
    from huggingface_hub import errors

    try:
        return _fetch(name, cache, on_progress=on_progress, endpoint=endpoint)
    except TwostrokeError:
        raise
    except errors.GatedRepoError as error:
        raise DownloadError(
            f"hf:{name.repo} wants its terms accepted on its page, and the client's token: {error}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFoundError(f"the hub has no repository {name.repo}, or it is private: {error}") from error
    except Exception as error:  # the client passes on what its transport raises, and has changed transports
        raise DownloadError(f"hf:{name.repo} could not be fetched: {error}") from error


def _fetch(name: HubName, cache: Path, *, on_progress: OnProgress | None, endpoint: str | None) -> Path:
    from huggingface_hub import HfApi, hf_hub_download

    repository = HfApi(endpoint=endpoint).model_info(name.repo, files_metadata=True, timeout=TIMEOUT_S)
    chosen = choose_files(name, [HubFile(file.rfilename, file.size or 0) for file in repository.siblings or ()])
    bar = _bar_class(_Counter(on_progress, sum(file.num_bytes for file in chosen)))
    paths = [
        Path(
            hf_hub_download(
                name.repo,
                file.path,
                revision=repository.sha,  # all files of one state
                cache_dir=cache,
                endpoint=endpoint,
                tqdm_class=bar,
            )
        )
        for file in chosen
    ]
    return paths[0] if paths[0].suffix == ".gguf" else paths[0].parent


def choose_files(name: HubName, files: Sequence[HubFile]) -> list[HubFile]:
    """The files a name means: one GGUF with all its parts, or all of a safetensors folder, in a fixed order.

    Raises ModelNotFoundError that lists what there is, where nothing or more than one model fits.
    """
    files = [file for file in files if not _leaves_folder(file.path)]
    ggufs = [file for file in files if file.path.endswith(".gguf") and "mmproj" not in file.path.lower()]
    if name.choice is not None:
        return _choose(name, ggufs, name.choice)
    folder = sorted((file for file in files if _FOLDER_FILES.fullmatch(file.path)), key=lambda file: file.path)
    paths = {file.path for file in folder}
    if "config.json" in paths and any(path.endswith(".safetensors") for path in paths):
        return folder
    models = _group_parts(ggufs)
    if len(models) == 1:
        return models[0]
    raise _no_choice(name, ggufs, "which" if models else "neither GGUF files nor config.json with safetensors")


def _leaves_folder(path: str) -> bool:
    """No repository has such a file; a server that claims so would have the client write outside its cache."""
    return PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts


def _choose(name: HubName, ggufs: Sequence[HubFile], choice: str) -> list[HubFile]:
    exact = [file for file in ggufs if file.path == choice]
    word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(choice)}(?![A-Za-z0-9_])", re.IGNORECASE)
    models = [parts for parts in _group_parts(ggufs) if exact and exact[0] in parts]
    models = models or [parts for parts in _group_parts(ggufs) if word.search(parts[0].path)]
    if len(models) != 1:
        raise _no_choice(name, ggufs, "more than one file" if models else "no file")
    return models[0]


def _group_parts(ggufs: Sequence[HubFile]) -> list[list[HubFile]]:
    """Parts of one split model together, in order; every other file alone."""
    groups: dict[str, list[HubFile]] = {}
    for file in sorted(ggufs, key=lambda file: file.path):
        groups.setdefault(_PART.sub(r"-of-\2.gguf", file.path), []).append(file)
    return list(groups.values())


def _no_choice(name: HubName, ggufs: Sequence[HubFile], problem: str) -> ModelNotFoundError:
    have = ", ".join(parts[0].path for parts in _group_parts(ggufs)) or "no GGUF files"
    if problem == "which":
        return ModelNotFoundError(f"hf:{name.repo} has several models, say which as hf:{name.repo}:FILE; it has {have}")
    wanted = f"{problem} for {name.choice!r}" if name.choice else problem
    return ModelNotFoundError(f"hf:{name.repo} has {wanted}; it has {have}")


def hub_files(path: Path) -> list[Path]:
    """Every file fetched for what `fetch_from_hub` returned: those of a folder, or a file with all its parts."""
    if path.is_dir():
        return [file for file in sorted(path.iterdir()) if file.is_file()]
    parts = _PART.search(path.name)
    if parts is None:
        return [path]
    stem = path.name[: parts.start()]
    return sorted(file for file in path.parent.iterdir() if _PART.sub("", file.name) == stem)


def unlink(files: Sequence[Path]) -> int:
    """Delete files, and what links among them point to, as the client keeps the bytes elsewhere; returns the bytes."""
    num_bytes = 0
    for file in files:
        num_bytes += file.stat().st_size
        file.resolve().unlink()
        file.unlink(missing_ok=True)
    return num_bytes


class _Counter:
    """Bytes over all files of one fetch."""

    def __init__(self, on_progress: OnProgress | None, total: int) -> None:
        self._on_progress = on_progress
        self._total = total
        self._done = 0

    def add(self, num_bytes: int) -> None:
        self._done += num_bytes
        if self._on_progress:
            self._on_progress(min(self._done, self._total), self._total)


def _bar_class(counter: _Counter) -> Any:
    """The client reports through a progress bar class: this one draws nothing and counts."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class CountingBar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)
            super().__init__(*args, **(options | {"disable": True}))
            counter.add(int(options.get("initial") or 0))

        def update(self, n: float | None = 1) -> bool | None:
            counter.add(int(n or 0))
            return None

    return CountingBar
