"""The one way to open a model: a GGUF file, the first part of a split one, or a safetensors folder.

Called by the engine's loader and the command line. Reads headers only; weights stay in the file.
"""

from pathlib import Path

from twostroke.errors import ModelNotFoundError
from twostroke.model.gguf_split import open_gguf
from twostroke.model.hf_folder import open_folder
from twostroke.model.source import ModelSource


def open_model(path: Path) -> ModelSource:
    """Open by what the path is; a .safetensors file needs config.json and tokenizer.json beside it.

    Raises ModelNotFoundError, ModelFileError or UnsupportedModelError.
    """
    if not path.exists():
        raise ModelNotFoundError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return open_folder(path)
    if path.suffix == ".safetensors":
        return open_folder(path.parent, weights=path)
    return open_gguf(path)
