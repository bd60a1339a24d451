"""From an opened model to its program: picks the family by architecture. One file per family, one row here.

Called by whoever loads a model. Says which tensors nobody uses; never reads a weight's bytes.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from twostroke.model.gemma import build_gemma3, read_gemma3
from twostroke.model.llama import build_llama, read_llama
from twostroke.model.qwen import read_qwen2, read_qwen3
from twostroke.model.source import ModelSource, check_architecture
from twostroke.program.program import Program

_LOG = logging.getLogger("twostroke")

_NOT_WEIGHTS = ("rope_freqs.weight",)  # read into the rope table


FAMILIES: Mapping[str, Callable[[ModelSource], Program]] = MappingProxyType(
    {
        "gemma3": lambda source: build_gemma3(source, read_gemma3(source)),
        "llama": lambda source: build_llama(source, read_llama(source)),
        "qwen2": lambda source: build_llama(source, read_qwen2(source)),
        "qwen3": lambda source: build_llama(source, read_qwen3(source)),
    }
)


def build_program(source: ModelSource) -> Program:
    """The program of a model file or folder.

    Raises ModelFileError (a key, tensor or shape is wrong) or UnsupportedModelError (architecture,
    tensor type or variant). Tensors the program does not use give one warning.
    """
    program = FAMILIES[check_architecture(source.path, source.architecture)](source)
    known = _NOT_WEIGHTS if program.has_head else (*_NOT_WEIGHTS, "output.weight")
    unused = [name for name in source.tensors if name not in program.weights and name not in known]
    if unused:
        _LOG.warning("%s: %s", source.path, _unused_text(unused, program.architecture))
    return program


def _unused_text(names: list[str], architecture: str) -> str:
    shown = ", ".join(f"{name!r:.80}" for name in names[:3]) + (", ..." if len(names) > 3 else "")
    are = "a tensor is" if len(names) == 1 else f"{len(names)} tensors are"
    return f"{are} not part of a {architecture} model: {shown}"
