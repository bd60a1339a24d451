"""The one way to open a model: a GGUF file, the first part of a split one, or a safetensors folder.

Called by the engine's loader and the command line. Reads headers only; weights stay in the file.
"""

from pathlib import Path

from twostroke.errors import ModelNotFoundError
from twostroke.model.gguf_split import open_gguf
from twostroke.model.source import ModelSource


def open_model(path: Path) -> ModelSource:
    """Open by what the path is. Raises ModelNotFoundError, ModelFileError or UnsupportedModelError."""
    if not path.exists():
        raise ModelNotFoundError(f"{path}: there is no such file or folder")
    return open_gguf(path)
