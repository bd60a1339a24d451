"""Whether a folder embeds: the modules that sentence-transformers lists in modules.json, as metadata.

Called by the folder reader. A module that changes vectors in a way not done here is refused, never left out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.core.pooling import PoolingKind
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.json_file import read_json_list, read_json_object
from twostroke.model.metadata import MetadataValue
from twostroke.model.pooling import ANY_DIMENSIONS_KEY, DIMENSIONS_KEY, KINDS, TYPE_KEY

NEUTRAL = ("Transformer", "Normalize")  # vectors are made unit length anyway
MODES = {
    "pooling_mode_mean_tokens": PoolingKind.MEAN,
    "pooling_mode_cls_token": PoolingKind.CLS,
    "pooling_mode_lasttoken": PoolingKind.LAST,
}


def folder_pooling(folder: Path, config: Mapping[str, Any], *, architecture: str) -> dict[str, MetadataValue]:
    """Metadata of a folder that embeds, nothing for one that writes. Raises ModelFileError or UnsupportedModelError."""
    modules = folder / "modules.json"
    if not modules.is_file():
        return {}
    pooling: PoolingKind | None = None
    for module in read_json_list(modules):
        kind, path = _kind_and_path(modules, module)
        if kind == "Pooling":
            pooling = _read_pooling(folder / path / "config.json")
        elif kind not in NEUTRAL:
            known = ", ".join(("Pooling", *NEUTRAL))
            raise UnsupportedModelError(f"{modules}: module {kind!r:.80} is not supported; supported are {known}")
    if pooling is None:
        return {}
    number = next(number for number, kind in KINDS.items() if kind is pooling)
    return {f"{architecture}.{TYPE_KEY}": number} | _dimensions(folder / "config.json", config)


def _kind_and_path(file: Path, module: object) -> tuple[str, str]:
    kind = module.get("type") if isinstance(module, dict) else None
    path = module.get("path", "") if isinstance(module, dict) else None
    if not isinstance(kind, str) or not isinstance(path, str):
        raise ModelFileError(file, f"it lists {module!r:.80}; every module is an object with a type and a path")
    if path and (Path(path).name != path or "\\" in path or path == ".."):
        raise ModelFileError(file, f"a module lies in {path!r:.80}; it must be a folder of the folder")
    return kind.rpartition(".")[2], path


def _read_pooling(file: Path) -> PoolingKind:
    config = read_json_object(file)
    modes = [name for name, value in config.items() if name.startswith("pooling_mode_") and value]
    if len(modes) != 1 or modes[0] not in MODES:
        raise UnsupportedModelError(
            f"{file}: the pooling is {', '.join(modes) or 'none'}; supported is one of {', '.join(MODES)}"
        )
    if not config.get("include_prompt", True):
        raise UnsupportedModelError(f"{file}: include_prompt is false; supported is pooling of the whole text")
    return MODES[modes[0]]


def _dimensions(file: Path, config: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Whether vectors may be cut, as vLLM reads it of config.json."""
    told = config.get("matryoshka_dimensions")
    if told is None:
        return {ANY_DIMENSIONS_KEY: config.get("is_matryoshka") is True}
    if not isinstance(told, list) or not told or not all(type(each) is int for each in told):
        raise ModelFileError(file, f"matryoshka_dimensions is {told!r:.80}; it must be a list of whole numbers")
    return {DIMENSIONS_KEY: np.array(told, np.int64)}
