"""What an opened model offers the rest: metadata, tensors, tokenizer files, in one vocabulary for both formats.

Tensor names and metadata keys are GGUF's. Tensors are read-only views of the mapped file; nothing is
copied or converted here. Built by `open_model`, read by families and tokenizers.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twostroke.errors import UnsupportedModelError
from twostroke.model.mapped_file import FileStamp
from twostroke.model.metadata import Metadata
from twostroke.model.tensor_type import SUPPORTED_TYPES

ARCHITECTURES = ("gemma3", "llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True, eq=False)
class TensorRef:
    """One tensor of a file. `shape` is (out, in) for matrices, (n,) for vectors; `data` exactly its bytes."""

    name: str
    tensor_type: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]


class TensorTable(Mapping[str, TensorRef]):
    """Tensors by name. Taking one whose type is not supported raises UnsupportedModelError; having it does not."""

    def __init__(self, file: Path, tensors: Mapping[str, TensorRef]) -> None:
        self.file = file
        self._tensors = dict(tensors)

    def __getitem__(self, name: str) -> TensorRef:
        tensor = self._tensors[name]
        if tensor.tensor_type not in SUPPORTED_TYPES:
            raise UnsupportedModelError(
                f"{self.file}: tensor {name!r} has type {tensor.tensor_type}, which is not supported; "
                f"use a file with {', '.join(SUPPORTED_TYPES)}"
            )
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def stored(self) -> Iterator[TensorRef]:
        """Every tensor as stored, those of unsupported types too."""
        return iter(self._tensors.values())


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a folder says about its tokenizer."""

    tokenizer_json: Path
    tokenizer_config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """An opened model file or folder.

    `eos_token_ids` are the ids the folder's generation_config.json (or config.json) ends answers with;
    a GGUF file has its end ids in the metadata, and this is its `eos_token_id` alone.
    """

    path: Path
    format: Literal["gguf", "safetensors"]
    architecture: str
    metadata: Metadata
    tensors: TensorTable
    header_digest: str  # of everything but the tensor data
    files: tuple[FileStamp, ...]  # that hold the tensors
    tokenizer_files: TokenizerFiles | None = None
    chat_template: str | None = None
    eos_token_ids: tuple[int, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """Tells model contents apart, for cache keys: everything but the tensor data, and the stamps of the files.

        It reads no tensor. A touched or copied file gets a new fingerprint, which costs a cold cache.
        """
        stamps = [(file.num_bytes, file.modified_ns, file.changed_ns, file.inode) for file in self.files]
        return hashlib.sha256(f"{self.header_digest} {stamps}".encode()).hexdigest()


def check_architecture(file: Path, architecture: str) -> str:
    """Return it, or raise UnsupportedModelError with the list of supported ones."""
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{file}: architecture {architecture!r} is not supported; supported are {', '.join(ARCHITECTURES)}"
        )
    return architecture
