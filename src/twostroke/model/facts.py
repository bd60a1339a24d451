"""What a model's file says about it, for people and other programs: read from its header, no weight is touched.

Asked by LLM and by the server's routes that list and describe models; knows nothing of how a model runs.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.model.mapped_file import FileStamp
from twostroke.model.metadata import MetadataValue, StringArray
from twostroke.model.open import open_model
from twostroke.model.source import ModelSource

FILE_TYPES = {  # of GGUF's general.file_type
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    32: "BF16",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    name: str
    tensor_type: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """`metadata` has GGUF's keys and JSON's kinds of values; arrays are None but where they were asked for.

    `digest` tells contents apart: 64 hexadecimal digits that change with every edit of the file or its times.
    `quantisation` is the name of the file's mixture of types, or the type most of its bytes have.
    """

    format: str
    architecture: str
    num_parameters: int
    quantisation: str
    num_bytes: int
    modified_s: float
    digest: str
    template: str | None
    metadata: Mapping[str, Any]
    tensors: tuple[TensorFacts, ...]
    files: tuple[FileStamp, ...] = ()  # that hold the tensors

    @property
    def is_current(self) -> bool:
        """Whether the files are still the ones that were read."""
        return all(file.is_current() for file in self.files)


def read_facts(path: Path, *, with_arrays: bool = False) -> ModelFacts:
    """Raises what `open_model` raises."""
    source = open_model(path)
    tensors = tuple(
        TensorFacts(name=tensor.name, tensor_type=tensor.tensor_type, shape=tensor.shape)
        for tensor in source.tensors.stored()
    )
    return ModelFacts(
        format=source.format,
        architecture=source.architecture,
        num_parameters=sum(math.prod(tensor.shape) for tensor in tensors),
        quantisation=_quantisation(source),
        num_bytes=sum(file.num_bytes for file in source.files),
        modified_s=max(file.modified_ns for file in source.files) / 1e9,
        digest=source.fingerprint,
        template=source.chat_template,
        metadata={key: _json(value, with_arrays=with_arrays) for key, value in source.metadata.items()},
        tensors=tensors,
        files=source.files,
    )


def _quantisation(source: ModelSource) -> str:
    file_type = source.metadata.get("general.file_type")
    if isinstance(file_type, int) and file_type in FILE_TYPES:
        return FILE_TYPES[file_type]
    num_bytes: Counter[str] = Counter()
    for tensor in source.tensors.stored():
        num_bytes[tensor.tensor_type] += tensor.data.nbytes
    return max(num_bytes, key=lambda name: (num_bytes[name], name))


def _json(value: MetadataValue, *, with_arrays: bool) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None  # JSON has no other
    if isinstance(value, bool | int | str):
        return value
    if not with_arrays:
        return None
    if isinstance(value, np.ndarray):
        return _json(tuple(value.tolist()), with_arrays=True)
    if isinstance(value, StringArray):
        return value.texts()
    return [_json(each, with_arrays=True) for each in value]
