"""What clients are told of a model that could not be loaded: the arithmetic or the reason, never our folders."""

import logging
import os
import re
from collections.abc import Sequence

from twostroke.errors import CapacityError, TwostrokeError
from twostroke.footprint import Footprint
from twostroke.serve.api_error import ApiError
from twostroke.serve.model_slot import ModelEntry

logger = logging.getLogger("twostroke")
# Of an absolute path all but its last part; an address of the network is none.
FOLDERS = re.compile(r"(?<![\w./])(?!(?<=:)//)[/~][^\s:,;'\"]*/")


def no_room(name: str, need: Footprint, *, free_bytes: int, others: Sequence[str]) -> str:
    """The arithmetic of a load that does not fit, though every idle model would go."""
    free = f"{free_bytes / 1e9:.2f} GB are free"
    if others:
        return (
            f"{name} needs {need}; {free} with every idle model unloaded: ask again when {', '.join(others)} "
            "has answered"
        )
    return f"{name} needs {need}; {free}: take a smaller model or file, a shorter --context or --kv int8"


def as_load_error(error: Exception, entry: ModelEntry) -> ApiError:
    """The answer to those who wait for the load; the log has it whole."""
    if isinstance(error, CapacityError):
        logger.warning("%s is not loaded: %s", entry.name, error)
        return ApiError(_told(error, entry), status=503, param="model", code="insufficient_memory")
    if isinstance(error, TwostrokeError | OSError):
        logger.warning("%s could not be loaded: %s", entry.name, error)
        reason = _told(error, entry)
    else:
        logger.error("%s could not be loaded", entry.name, exc_info=error)
        reason = "internal error, see the server's log"
    return ApiError(f"{entry.name} could not be loaded: {reason}", status=503, param="model", code="model_load_failed")


def _told(error: Exception, entry: ModelEntry) -> str:
    """Its words without the folders it names."""
    folder = os.path.dirname(entry.source)
    said = str(error).replace(f"{folder}{os.sep}", "") if folder else str(error)
    return FOLDERS.sub("", said)
