"""A GGUF model of one file or several parts: joins the parts and says exactly what is wrong with a set.

Parts are found next to the first by their names, NAME-00001-of-00003.gguf. Called by `open_model`.
"""

import re
from pathlib import Path

from twostroke.errors import ModelFileError
from twostroke.model.gguf import GgufFile, read_gguf
from twostroke.model.source import ModelSource, TensorRef, TensorTable, check_architecture
from twostroke.model.vocabulary import checked_vocabulary

_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
MAX_PARTS = 99_999  # five digits in the name


def open_gguf(path: Path) -> ModelSource:
    """Open a whole model from its only or first file."""
    first = read_gguf(path)
    parts = _read_parts(first)
    metadata = checked_vocabulary(first.metadata)
    architecture = check_architecture(path, metadata.text("general.architecture"))
    eos = "tokenizer.ggml.eos_token_id"
    return ModelSource(
        path=path,
        format="gguf",
        architecture=architecture,
        metadata=metadata,
        tensors=TensorTable(path, _join_tensors(parts)),
        header_digest="+".join(part.header_digest for part in parts),
        files=tuple(part.mapped.stamp for part in parts),
        chat_template=metadata.text("tokenizer.chat_template", default="") or None,
        eos_token_ids=(metadata.integer(eos),) if eos in metadata else (),
    )


def _read_parts(first: GgufFile) -> list[GgufFile]:
    count = first.metadata.integer("split.count", default=1)
    if count <= 1:
        return [first]
    if count > MAX_PARTS:
        raise ModelFileError(first.path, f"key 'split.count' is {count}; the limit is {MAX_PARTS} parts")
    _check_is_first(first, count)
    _check_not_joined(first, count)
    parts = [first]
    for number in range(2, count + 1):
        path = _part_path(first.path, number, count)
        if path is None:
            raise ModelFileError(
                first.path,
                f"it is part 1 of {count}, but its name does not end in -00001-of-{count:05d}.gguf, so the other "
                "parts cannot be found: give all parts their names back",
            )
        if not path.is_file():
            raise ModelFileError(path, f"part {number} of {count} is missing; put it next to {first.path.name}")
        parts.append(_read_part(path, number, first))
    return parts


def _check_is_first(part: GgufFile, count: int) -> None:
    number = part.metadata.integer("split.no", default=0) + 1
    if number == 1:
        return
    first = _part_path(part.path, 1, count) or part.path.with_name(f"{part.path.stem}-00001-of-{count:05d}.gguf")
    raise ModelFileError(part.path, f"it is part {number} of {count} of a split model; open part 1, {first.name}")


def _check_not_joined(first: GgufFile, count: int) -> None:
    rest = bytes(first.mapped.data[first.data_end : first.data_end + first.alignment + 4])
    if rest.lstrip(b"\0").startswith(b"GGUF") and _part_path(first.path, 1, count) != first.path:
        raise ModelFileError(
            first.path,
            f"{count} parts of a split model were joined into one file, which GGUF does not allow: "
            f"keep them apart as NAME-00001-of-{count:05d}.gguf and so on, and open the first",
        )


def _part_path(path: Path, number: int, count: int) -> Path | None:
    """The sibling that holds this part; None where the file's name has no part numbers or another count."""
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        return None
    return path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf")


def _read_part(path: Path, number: int, first: GgufFile) -> GgufFile:
    part = read_gguf(path)
    found = part.metadata.integer("split.no", default=0) + 1
    if found != number:
        raise ModelFileError(path, f"its name says part {number}, its key 'split.no' part {found}: parts were renamed")
    for key in ("split.count", "split.tensors.count"):
        here, there = (file.metadata.integer(key, default=0) for file in (part, first))
        if here != there:
            raise ModelFileError(
                path, f"it belongs to another model than {first.path.name}: key {key!r} is {here} here, {there} there"
            )
    return part


def _join_tensors(parts: list[GgufFile]) -> dict[str, TensorRef]:
    tensors: dict[str, TensorRef] = {}
    for part in parts:
        for name, tensor in part.tensors.items():
            if name in tensors:
                raise ModelFileError(
                    part.path, f"it belongs to another model: tensor {name!r} is in an earlier part already"
                )
            tensors[name] = tensor
    wanted = parts[0].metadata.integer("split.tensors.count", default=len(tensors)) if len(parts) > 1 else len(tensors)
    if wanted != len(tensors):
        raise ModelFileError(
            parts[0].path,
            f"key 'split.tensors.count' is {wanted}, its {len(parts)} parts hold {len(tensors)} tensors: "
            "one part belongs to another model",
        )
    return tensors
