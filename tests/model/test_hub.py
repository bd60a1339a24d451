"""Names of repositories to files, judged by a hub on this machine; what a name may mean, and what it may not."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.make_malformed import build_gguf
from tests.model.fake_hub import serve_hub
from tests.model.hf_builders import make_folder
from twostroke.errors import DownloadError, ModelNotFoundError
from twostroke.model.hub import HubFile, HubName, choose_files, fetch_from_hub, parse_hub_name
from twostroke.model.open import open_model

BASE = build_gguf()[0]


def files(*paths: str) -> list[HubFile]:
    return [HubFile(path, 1) for path in paths]


def chosen(name: HubName, *paths: str) -> list[str]:
    return [file.path for file in choose_files(name, files(*paths))]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = make_folder(tmp_path_factory.mktemp("folder"))
    repositories = {
        "org/one": {"README.md": b"# one", "tiny.gguf": BASE},
        "org/many": {"tiny-Q4_K_M.gguf": BASE, "sub/tiny-Q8_0.gguf": BASE + b"\0"},
        "org/folder": {path.name: path.read_bytes() for path in folder.iterdir()} | {"extra.py": b"raise SystemExit"},
        "org/nothing": {"README.md": b"# nothing"},
    }
    with serve_hub(repositories) as address:
        yield address


def test_the_one_gguf_file_is_fetched_with_progress(tmp_path: Path, hub: str) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch_from_hub(
        HubName("org/one"), tmp_path, on_progress=lambda done, total: seen.append((done, total)), endpoint=hub
    )
    assert path.read_bytes() == BASE
    assert open_model(path).architecture == "llama"
    assert seen[-1] == (len(BASE), len(BASE))
    assert seen == sorted(seen)


def test_quantisation_or_file_chooses(tmp_path: Path, hub: str) -> None:
    assert fetch_from_hub(HubName("org/many", "q4_k_m"), tmp_path, endpoint=hub).name == "tiny-Q4_K_M.gguf"
    path = fetch_from_hub(HubName("org/many", "sub/tiny-Q8_0.gguf"), tmp_path, endpoint=hub)
    assert path.read_bytes() == BASE + b"\0"


def test_folder_is_fetched_without_its_code(tmp_path: Path, hub: str) -> None:
    path = fetch_from_hub(HubName("org/folder"), tmp_path, endpoint=hub)
    assert open_model(path).format == "safetensors"
    assert not (path / "extra.py").exists()


def test_what_is_not_there_lists_what_is(tmp_path: Path, hub: str) -> None:
    with pytest.raises(ModelNotFoundError, match=r"several models, say which .* sub/tiny-Q8_0.gguf, tiny-Q4_K_M.gguf"):
        fetch_from_hub(HubName("org/many"), tmp_path, endpoint=hub)
    with pytest.raises(ModelNotFoundError, match=r"has no file for 'Q2_K'; it has sub/tiny-Q8_0.gguf, tiny"):
        fetch_from_hub(HubName("org/many", "Q2_K"), tmp_path, endpoint=hub)
    with pytest.raises(ModelNotFoundError, match=r"neither GGUF files nor config.json with safetensors"):
        fetch_from_hub(HubName("org/nothing"), tmp_path, endpoint=hub)
    with pytest.raises(ModelNotFoundError, match="the hub has no repository org/none"):
        fetch_from_hub(HubName("org/none"), tmp_path, endpoint=hub)


def test_hub_that_does_not_answer_is_a_download_error(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="hf:org/one could not be fetched"):
        fetch_from_hub(HubName("org/one"), tmp_path, endpoint="http://127.0.0.1:9")


def test_endpoint_of_the_client_is_used(tmp_path: Path, hub: str) -> None:
    code = (
        "import sys; from pathlib import Path; from twostroke.model.catalog import pull; "
        "print(pull('hf:org/one', home=Path(sys.argv[1])))"
    )
    environment = os.environ | {"HF_ENDPOINT": hub, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    output = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert Path(output.stdout.strip()).read_bytes() == BASE


# ---- names


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("org/repo", HubName("org/repo")),
        ("Org-1/re.po_2:Q4_K_M", HubName("Org-1/re.po_2", "Q4_K_M")),
        ("org/repo:sub/file.gguf", HubName("org/repo", "sub/file.gguf")),
    ],
)
def test_good_names_are_split(name: str, parsed: HubName) -> None:
    assert parse_hub_name(name) == parsed


@pytest.mark.parametrize(
    "name", ["", "repo", "org/", "/repo", "../repo", "org/..", "org/re..po", "org/repo:", "a/b/c", "org/re po", "a\0/b"]
)
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="write hf:ORG/REPO"):
        parse_hub_name(name)


# ---- choices


def test_all_parts_of_a_split_model_are_one_choice() -> None:
    parts = ["m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"]
    assert chosen(HubName("o/r"), *parts) == sorted(parts)
    assert chosen(HubName("o/r", "Q8_0"), "m-Q4_0.gguf", *parts) == sorted(parts)
    assert chosen(HubName("o/r", parts[0]), "m-Q4_0.gguf", *parts) == sorted(parts)


def test_quantisation_is_a_whole_word() -> None:
    paths = ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-IQ4_K.gguf"]
    assert chosen(HubName("o/r", "q4_k_m"), *paths) == ["m-Q4_K_M.gguf"]
    with pytest.raises(ModelNotFoundError, match="no file for 'Q4_K'"):
        choose_files(HubName("o/r", "Q4_K"), files(*paths))
    with pytest.raises(ModelNotFoundError, match="more than one file for 'Q8_0'"):
        choose_files(HubName("o/r", "Q8_0"), files("a-Q8_0.gguf", "b-Q8_0.gguf"))


@pytest.mark.parametrize("path", ["../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", ".."])
def test_file_outside_the_repository_is_never_chosen(path: str) -> None:
    assert chosen(HubName("o/r"), path, "good.gguf") == ["good.gguf"]
    with pytest.raises(ModelNotFoundError, match="no file for"):
        chosen(HubName("o/r", path), path, "good.gguf")


def test_image_projector_is_no_model() -> None:
    assert chosen(HubName("o/r"), "mmproj-model-f16.gguf", "model.gguf") == ["model.gguf"]


def test_folder_takes_its_own_files_alone() -> None:
    paths = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json"]
    others = [
        "model.py",
        "pytorch_model.bin",
        "onnx/model.safetensors",
        "original/tokenizer.json",
        "training_args.json",
    ]
    assert chosen(HubName("o/r"), *others, *reversed(paths)) == paths
    with pytest.raises(ModelNotFoundError, match="neither GGUF"):
        choose_files(HubName("o/r"), files(*paths[1:]))


def test_folder_is_preferred_where_nothing_is_said_and_gguf_where_it_is() -> None:
    paths = ["config.json", "model.safetensors", "m-Q8_0.gguf"]
    assert chosen(HubName("o/r"), *paths) == ["config.json", "model.safetensors"]
    assert chosen(HubName("o/r", "Q8_0"), *paths) == ["m-Q8_0.gguf"]
