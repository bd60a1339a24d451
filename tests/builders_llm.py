"""Models with known answers, loaded whole: puppet files, an Ollama store around one, and the LLM over them."""

import hashlib
import itertools
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cases.make_malformed import T_STR
from tests.cases.puppet import EOS, build_puppet, byte_token
from twostroke.config import Config
from twostroke.llm import LLM

ASK = "?"  # every prompt that ends with it is answered by ANSWER
ANSWER = "The sky"
TEMPLATE = "{% for message in messages %}{{ message.role[0] }}:{{ message.content }}{% endfor %}?"
LOOP = "xz"  # x is followed by z and z by x, for ever
_CONTEXT_KEY = b"llama.context_length" + struct.pack("<I", 4)  # a u32 follows
_LAYER = "application/vnd.ollama.image."


def puppet_bytes(*, template: str | None = TEMPLATE, context: int = 1024) -> bytes:
    """Bytes of the model file."""
    said = [byte_token(byte) for byte in (ASK + ANSWER).encode()]
    x, z = (byte_token(byte) for byte in LOOP.encode())
    table = dict(itertools.pairwise([*said, EOS])) | {x: z, z: x}
    keys = [] if template is None else [("tokenizer.chat_template", T_STR, template)]
    file = build_puppet(table, more_keys=keys).file
    start = file.index(_CONTEXT_KEY) + len(_CONTEXT_KEY)
    return file[:start] + struct.pack("<I", context) + file[start + 4 :]


def write_puppet(path: Path, *, template: str | None = TEMPLATE, context: int = 1024) -> Path:
    path.write_bytes(puppet_bytes(template=template, context=context))
    return path


def config_of(home: Path) -> Config:
    return Config(home=home, threads=1, ollama_models=home / "ollama")


def open_llm(path: Path, **options: Any) -> LLM:
    """The file as an LLM with everything it caches beside it."""
    return LLM(path, config=config_of(path.parent), kv="f32", **options)


def add_ollama_model(
    home: Path, name: str, *, file: bytes, system: str | None = None, template: str | None = None, **parameters: Any
) -> str:
    """A model in the store below `home`; returns what to call it."""
    store = home / "ollama"
    blobs = {"model": file}
    blobs |= {"system": system.encode()} if system is not None else {}
    blobs |= {"template": template.encode()} if template is not None else {}
    blobs |= {"params": json.dumps(parameters).encode()} if parameters else {}
    layers = [_add_blob(store, kind, data) for kind, data in blobs.items()]
    manifest = store / "manifests" / "models.example" / "library" / name / "latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": layers}))
    return f"ollama:{name}"


def _add_blob(store: Path, kind: str, data: bytes) -> Mapping[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    path = store / "blobs" / f"sha256-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"mediaType": _LAYER + kind, "digest": f"sha256:{digest}", "size": len(data)}
