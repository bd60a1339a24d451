"""Whether a model embeds, and how: `{architecture}.pooling_type` of a GGUF file, which a folder is translated to.

Called by the families, which leave out the head, and by the loader.
"""

from types import MappingProxyType

from twostroke.core.pooling import Pooling, PoolingKind
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.source import ModelSource

NONE, RANK = 0, 4  # of GGUF's numbers
KINDS = MappingProxyType({1: PoolingKind.MEAN, 2: PoolingKind.CLS, 3: PoolingKind.LAST})
TYPE_KEY = "pooling_type"
DIMENSIONS_KEY = "twostroke.matryoshka_dimensions"  # of folders; GGUF files do not say
ANY_DIMENSIONS_KEY = "twostroke.is_matryoshka"


def embeds(source: ModelSource) -> bool:
    """Whether its output is a vector per text, not the next token."""
    return _type_of(source) != NONE


def read_pooling(source: ModelSource) -> Pooling | None:
    """None for a model that writes. Raises ModelFileError or UnsupportedModelError."""
    kind = _type_of(source)
    if kind == NONE:
        return None
    width = source.metadata.integer(f"{source.architecture}.embedding_length")
    return Pooling(kind=KINDS[kind], dimensions=_dimensions(source, width))


def _type_of(source: ModelSource) -> int:
    key = f"{source.architecture}.{TYPE_KEY}"
    kind = source.metadata.integer(key, default=NONE)
    if kind == RANK:
        raise UnsupportedModelError(f"{source.path}: key {key!r} is {RANK}: models that rank pairs are not supported")
    if kind != NONE and kind not in KINDS:
        known = ", ".join(f"{number} ({name})" for number, name in KINDS.items())
        raise ModelFileError(source.path, f"key {key!r} is {kind}: it must be {NONE} (none), {known} or {RANK} (rank)")
    return kind


def _dimensions(source: ModelSource, width: int) -> tuple[int, ...] | range:
    if DIMENSIONS_KEY in source.metadata:
        told = [int(each) for each in source.metadata.integers(DIMENSIONS_KEY)]
        if not all(1 <= each <= width for each in told):
            raise ModelFileError(source.path, f"matryoshka_dimensions is {told}: vectors have {width} numbers")
        return tuple(sorted({*told, width}))
    if source.metadata.boolean(ANY_DIMENSIONS_KEY, default=False):
        return range(1, width + 1)
    return (width,)
