"""Models in a local Ollama store, used where they lie: manifest to blob, nothing copied, nothing fetched.

    manifests/HOST/NAMESPACE/NAME/TAG (JSON: layers)      blobs/sha256-HEX

Called by the catalog. Names are checked before they become paths.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twostroke.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from twostroke.model.json_file import read_json_object

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,255}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_LAYER = "application/vnd.ollama.image."
_READ_KINDS = {"model", "template", "system", "params", "license"}  # a license has nothing to apply
_MAX_TEXT_BYTES = 2**22


@dataclass(frozen=True, slots=True)
class OllamaModel:
    """`path` is the GGUF blob. `template` is in Go's template language, `parameters` as `ollama show` lists them.

    `unread` are the kinds of layers that say something and are not read, such as example messages.
    """

    name: str
    path: Path
    template: str | None = None
    system: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def read_ollama_model(name: str, store: Path) -> OllamaModel:
    """`[HOST/][NAMESPACE/]NAME[:TAG]`, tag "latest" unless given.

    Raises ModelNotFoundError with what the store has, ModelFileError or UnsupportedModelError.
    """
    manifest = _find_manifest(name, store)
    layers = read_json_object(manifest).get("layers")
    if not isinstance(layers, list):
        raise ModelFileError(manifest, f"layers is {layers!r:.80}; it must be a list")
    blobs = {_kind(manifest, layer): _blob(manifest, store, layer) for layer in layers}
    for kind in ("adapter", "projector"):
        if kind in blobs:
            raise UnsupportedModelError(f"ollama:{name} has a layer of kind {kind}, which is not supported")
    if "model" not in blobs:
        raise ModelFileError(manifest, f"it has no layer of kind model, only {', '.join(sorted(blobs)) or 'none'}")
    return OllamaModel(
        name=name,
        path=blobs["model"],
        template=_text(blobs.get("template")),
        system=_text(blobs.get("system")),
        parameters=read_json_object(blobs["params"]) if "params" in blobs else {},
        unread=tuple(sorted(blobs.keys() - _READ_KINDS)),
    )


def list_ollama_models(store: Path) -> list[str]:
    """Names as `read_ollama_model` takes them, sorted: the shortest that says which."""
    root = store / "manifests"
    found = [path.relative_to(root).parts for path in root.glob("*/*/*/*") if path.is_file()]
    names = [
        f"{name}:{tag}" if namespace == "library" else f"{namespace}/{name}:{tag}" for _, namespace, name, tag in found
    ]
    full = [f"{host}/{namespace}/{name}:{tag}" for host, namespace, name, tag in found]
    return sorted(long if names.count(short) > 1 else short for short, long in zip(names, full, strict=True))


def _find_manifest(name: str, store: Path) -> Path:
    host, namespace, model, tag = _split_name(name)
    hosts = [host] if host else sorted(path.name for path in (store / "manifests").glob("*"))
    found = [
        path for path in (store / "manifests" / each / namespace / model / tag for each in hosts) if path.is_file()
    ]
    if len(found) == 1:
        return found[0]
    known = list_ollama_models(store)
    if found:
        raise ModelNotFoundError(f"ollama:{name} is in several places, say which: " + ", ".join(known))
    have = ", ".join(known) if known else "no models; set OLLAMA_MODELS if they are elsewhere"
    raise ModelNotFoundError(f"the Ollama store {store} has no model {name!r}; it has {have}")


def _split_name(name: str) -> tuple[str | None, str, str, str]:
    """Host (None: any), namespace, name and tag, each checked: none may be "..", hidden or hold a separator."""
    path, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "latest")
    parts = path.split("/")
    host = parts[0] if len(parts) == 3 else None
    namespace = parts[-2] if len(parts) > 1 else "library"
    checks = [_PART.fullmatch(part) for part in (namespace, parts[-1], tag)] + [_HOST.fullmatch(host or "any")]
    if len(parts) > 3 or not all(checks):
        raise ModelNotFoundError(f"{name!r} is not the name of an Ollama model; write ollama:NAME or ollama:NAME:TAG")
    return host, namespace, parts[-1], tag


def _kind(manifest: Path, layer: object) -> str:
    kind = layer.get("mediaType") if isinstance(layer, dict) else None
    if not isinstance(kind, str):
        raise ModelFileError(manifest, f"a layer is {layer!r:.80}; it must be an object with a mediaType")
    return kind.removeprefix(_LAYER)


def _blob(manifest: Path, store: Path, layer: Mapping[str, Any]) -> Path:
    digest = layer.get("digest")
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        raise ModelFileError(manifest, f"a layer has the digest {digest!r:.80}; it must be sha256: and 64 hex digits")
    path = store / "blobs" / f"sha256-{match[1]}"
    if not path.is_file():
        raise ModelFileError(manifest, f"blob {path.name} is missing: pull the model with ollama again")
    size = layer.get("size")
    if size is not None and path.stat().st_size != size:
        raise ModelFileError(path, f"it has {path.stat().st_size} bytes, its manifest says {size}: pull it again")
    return path


def _text(blob: Path | None) -> str | None:
    if blob is None:
        return None
    with blob.open("rb") as file:
        raw = file.read(_MAX_TEXT_BYTES + 1)
    if len(raw) > _MAX_TEXT_BYTES:
        raise ModelFileError(blob, f"it has more than {_MAX_TEXT_BYTES} bytes, the limit for a template or system text")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ModelFileError(blob, f"it is not UTF-8 at byte {error.start}") from None
