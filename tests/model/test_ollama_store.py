"""A local Ollama store: names to blobs, and nothing outside the store whatever a name or manifest says."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.make_malformed import build_gguf
from twostroke.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from twostroke.model.ollama_store import list_ollama_models, read_ollama_model
from twostroke.model.open import open_model

HOST = "models.example"
KIND = "application/vnd.ollama.image."


def add_blob(store: Path, kind: str, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    (store / "blobs" / f"sha256-{digest}").write_bytes(data)
    return {"mediaType": KIND + kind, "digest": f"sha256:{digest}", "size": len(data)}


def add_manifest(
    store: Path, layers: object, *, name: str = "library/tiny", tag: str = "latest", host: str = HOST
) -> Path:
    path = store / "manifests" / host / name / tag
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return path


def add_model(store: Path, **place: str) -> dict[str, Any]:
    layer = add_blob(store, "model", build_gguf()[0])
    add_manifest(store, [layer], **place)
    return layer


def test_model_is_used_where_it_lies(tmp_path: Path) -> None:
    layers = [
        add_blob(tmp_path, "model", build_gguf()[0]),
        add_blob(tmp_path, "template", b"{{ .Prompt }}"),
        add_blob(tmp_path, "system", "Sei höflich.".encode()),
        add_blob(tmp_path, "params", b'{"stop": ["</s>"], "temperature": 0.5}'),
        add_blob(tmp_path, "license", b"MIT"),
    ]
    add_manifest(tmp_path, layers)
    model = read_ollama_model("tiny", tmp_path)
    assert model.path.parent == tmp_path / "blobs"
    assert (model.template, model.system) == ("{{ .Prompt }}", "Sei höflich.")
    assert model.parameters == {"stop": ["</s>"], "temperature": 0.5}
    assert open_model(model.path).architecture == "llama"


def test_layers_nobody_reads_are_remembered(tmp_path: Path) -> None:
    layers = [add_blob(tmp_path, kind, kind.encode()) for kind in ("license", "messages")]
    add_manifest(tmp_path, [add_blob(tmp_path, "model", build_gguf()[0]), *layers])
    assert read_ollama_model("tiny", tmp_path).unread == ("messages",)


@pytest.mark.parametrize("name", ["tiny", "tiny:latest", "library/tiny", f"{HOST}/library/tiny:latest"])
def test_every_form_of_a_name_finds_the_model(tmp_path: Path, name: str) -> None:
    add_model(tmp_path)
    assert read_ollama_model(name, tmp_path).path.is_file()


def test_tag_namespace_and_host_are_told_apart(tmp_path: Path) -> None:
    add_model(tmp_path, tag="135m")
    add_model(tmp_path, name="someone/tiny", tag="1.5-q4_K_M")
    add_model(tmp_path, name="me/own", host="localhost:5000")
    assert list_ollama_models(tmp_path) == ["me/own:latest", "someone/tiny:1.5-q4_K_M", "tiny:135m"]
    for name in [*list_ollama_models(tmp_path), "localhost:5000/me/own"]:
        assert read_ollama_model(name, tmp_path).path.is_file()
    with pytest.raises(ModelNotFoundError, match="has no model 'tiny'; it has me/own:latest, someone/tiny"):
        read_ollama_model("tiny", tmp_path)


def test_name_in_two_places_must_say_which(tmp_path: Path) -> None:
    add_model(tmp_path)
    add_model(tmp_path, host="other.example")
    full = [f"{HOST}/library/tiny:latest", "other.example/library/tiny:latest"]
    assert list_ollama_models(tmp_path) == full
    with pytest.raises(ModelNotFoundError, match="in several places, say which: " + ", ".join(full)):
        read_ollama_model("tiny", tmp_path)
    assert read_ollama_model(full[1], tmp_path).path.is_file()


def test_missing_store_says_where_it_looked(tmp_path: Path) -> None:
    assert list_ollama_models(tmp_path / "none") == []
    with pytest.raises(ModelNotFoundError, match=r"none has no model 'tiny'; it has no models; set OLLAMA_MODELS"):
        read_ollama_model("tiny", tmp_path / "none")


@pytest.mark.parametrize(
    "name",
    [
        *("", ":", "..", "../tiny", "a/../../b", "a/..", "/etc/passwd", "tiny:..", "tiny:../../x", "a/b/c/d", "a\\b"),
        *("a\0b", "..:x", ".hidden", "tiny:", "x" * 200, "ti ny", "host/a/b:c:d", "../library/tiny"),
    ],
)
def test_name_never_becomes_a_path_outside_the_store(tmp_path: Path, name: str) -> None:
    add_model(tmp_path / "store")
    (tmp_path / "tiny").write_text("{}")
    with pytest.raises(ModelNotFoundError):
        read_ollama_model(name, tmp_path / "store")


@pytest.mark.parametrize(
    "digest", ["sha256:../../../etc/passwd", "sha256:" + "A" * 64, "md5:" + "0" * 64, "", 5, None, "sha256:" + "0" * 63]
)
def test_digest_never_becomes_a_path_outside_the_store(tmp_path: Path, digest: object) -> None:
    add_manifest(tmp_path, [{"mediaType": KIND + "model", "digest": digest, "size": 1}])
    with pytest.raises(ModelFileError, match="must be sha256: and 64 hex digits"):
        read_ollama_model("tiny", tmp_path)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (None, "layers is None"),
        ({}, "layers is {}"),
        ([], "no layer of kind model, only none"),
        (["x"], "a layer is 'x'"),
        ([{"digest": "sha256:00"}], "it must be an object with a mediaType"),
    ],
)
def test_damaged_manifest_is_refused(tmp_path: Path, layers: object, message: str) -> None:
    add_manifest(tmp_path, layers)
    with pytest.raises(ModelFileError, match=message):
        read_ollama_model("tiny", tmp_path)


def test_missing_or_cut_blob_is_named(tmp_path: Path) -> None:
    layer = add_model(tmp_path)
    blob = tmp_path / "blobs" / layer["digest"].replace(":", "-")
    blob.write_bytes(blob.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match=r"bytes, its manifest says \d+: pull it again"):
        read_ollama_model("tiny", tmp_path)
    blob.unlink()
    with pytest.raises(ModelFileError, match=f"blob {blob.name} is missing"):
        read_ollama_model("tiny", tmp_path)


@pytest.mark.parametrize("kind", ["adapter", "projector"])
def test_layers_that_change_the_model_are_unsupported(tmp_path: Path, kind: str) -> None:
    add_manifest(tmp_path, [add_blob(tmp_path, "model", b"m"), add_blob(tmp_path, kind, b"a")])
    with pytest.raises(UnsupportedModelError, match=f"ollama:tiny has a layer of kind {kind}"):
        read_ollama_model("tiny", tmp_path)


def test_template_must_be_text_of_bounded_size(tmp_path: Path) -> None:
    model = add_blob(tmp_path, "model", b"m")
    add_manifest(tmp_path, [model, add_blob(tmp_path, "template", b"\xff")])
    with pytest.raises(ModelFileError, match="it is not UTF-8 at byte 0"):
        read_ollama_model("tiny", tmp_path)
    add_manifest(tmp_path, [model, add_blob(tmp_path, "template", bytes(2**22 + 1))])
    with pytest.raises(ModelFileError, match="more than 4194304 bytes"):
        read_ollama_model("tiny", tmp_path)
