"""A model folder: config.json, tokenizer.json and safetensors in one file or in shards, as a ModelSource.

Called by `open_model`. Which file is read is decided here alone; names inside files never become paths
outside the folder.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.errors import ModelFileError
from twostroke.model.hf_config import TranslatedConfig, translate_config
from twostroke.model.hf_pooling import folder_pooling
from twostroke.model.hf_tensors import tie_head, translate_tensors
from twostroke.model.json_file import read_json_object, read_optional_json
from twostroke.model.metadata import Metadata
from twostroke.model.safetensors import SafetensorsFile, StoredTensor, read_safetensors
from twostroke.model.source import ModelSource, TensorTable, TokenizerFiles

_log = logging.getLogger("twostroke")
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def open_folder(folder: Path, *, weights: Path | None = None) -> ModelSource:
    """Open a folder; `weights` names one of its safetensors files where the user chose it."""
    config_file = folder / "config.json"
    if not config_file.exists():
        raise ModelFileError(folder, _explain_no_config(folder))
    raw = read_json_object(config_file)
    config = translate_config(config_file, raw)
    files, stored = _read_weights(folder, weights)
    translated = translate_tensors(stored, architecture=config.architecture, file=folder)
    pooling = folder_pooling(folder, raw, architecture=config.architecture)
    tensors = tie_head(translated, is_tied=config.is_tied, file=config_file) if not pooling else translated
    tokenizer = _find_tokenizer(folder)
    return ModelSource(
        path=weights or folder,
        format="safetensors",
        architecture=config.architecture,
        metadata=Metadata(config_file, {**config.metadata, **pooling}),
        tensors=TensorTable(folder, tensors),
        header_digest=_digest({**raw, "pooling": repr(pooling)} if pooling else raw, files, tokenizer),
        files=tuple(file.mapped.stamp for file in files),
        tokenizer_files=tokenizer,
        chat_template=read_chat_template(folder, tokenizer.tokenizer_config),
        eos_token_ids=_read_eos_ids(folder, config),
    )


def _explain_no_config(folder: Path) -> str:
    ggufs = sorted(path.name for path in folder.glob("*.gguf"))
    if ggufs:
        return f"this folder has no config.json but GGUF files: open one of them, for example {folder / ggufs[0]}"
    return "this folder has no config.json; a model folder has config.json, tokenizer.json and *.safetensors"


def _read_weights(folder: Path, chosen: Path | None) -> tuple[list[SafetensorsFile], dict[str, StoredTensor]]:
    if chosen is None and not (folder / _SINGLE).exists() and (folder / _INDEX).exists():
        return _read_shards(folder)
    path = chosen or _only_file(folder)
    file = read_safetensors(path)
    return [file], dict(file.tensors)


def _only_file(folder: Path) -> Path:
    """model.safetensors, or the one safetensors file there is."""
    if (folder / _SINGLE).exists():
        return folder / _SINGLE
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelFileError(folder, f"it has {len(found)} safetensors files but no {_INDEX} that says what is where")
    if any(folder.glob("*.bin")):
        raise ModelFileError(folder, "it has PyTorch .bin weights only, which are not loaded because they can run code")
    raise ModelFileError(folder, f"it has no weights: neither {_SINGLE} nor {_INDEX}")


def _read_shards(folder: Path) -> tuple[list[SafetensorsFile], dict[str, StoredTensor]]:
    """Every tensor from the shard the index names; copies of it in other shards are not looked at."""
    index = folder / _INDEX
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(index, f"weight_map is {weight_map!r:.80}; it must map tensor names to files")
    shards: dict[str, SafetensorsFile] = {}
    stored: dict[str, StoredTensor] = {}
    for tensor, name in weight_map.items():
        _check_shard_name(index, tensor, name)
        if name not in shards:
            if not (folder / name).is_file():
                raise ModelFileError(index, f"shard {name} is missing; put it into {folder}")
            shards[name] = read_safetensors(folder / name)
        if tensor not in shards[name].tensors:
            raise ModelFileError(index, f"tensor {tensor!r} should be in {name}, but that file does not have it")
        stored[tensor] = shards[name].tensors[tensor]
    return list(shards.values()), stored


def _check_shard_name(index: Path, tensor: str, name: object) -> None:
    if not isinstance(name, str) or Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
        raise ModelFileError(
            index, f"tensor {tensor!r} is in {name!r:.80}; it must be a safetensors file of the folder"
        )


def _find_tokenizer(folder: Path) -> TokenizerFiles:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFileError(
            folder, "it has no tokenizer.json; save the tokenizer again with the fast tokenizer of transformers"
        )
    return TokenizerFiles(path, read_optional_json(folder / "tokenizer_config.json"))


def read_chat_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else tokenizer_config's string or its entry named "default", else chat_template.json."""
    jinja = folder / "chat_template.jinja"
    if jinja.is_file():
        try:
            return jinja.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelFileError(jinja, f"it cannot be read: {error}") from error
    file, template = folder / "tokenizer_config.json", tokenizer_config.get("chat_template")
    if template is None:
        file = folder / "chat_template.json"
        template = read_optional_json(file).get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        if "default" not in named:
            _log.warning("%s: no chat template is named 'default' (%s); none is used", file, ", ".join(map(str, named)))
            return None
        template = named["default"]
    if template is not None and not isinstance(template, str):
        raise ModelFileError(file, f"chat_template is {template!r:.80}; it must be a string or a list of named ones")
    return template


def _read_eos_ids(folder: Path, config: TranslatedConfig) -> tuple[int, ...]:
    """generation_config.json decides, config.json where it is silent."""
    file, value = folder / "generation_config.json", config.eos_token_ids
    found = read_optional_json(file).get("eos_token_id")
    if found is None:
        file = folder / "config.json"
    else:
        value = found
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < config.vocab_size:
            raise ModelFileError(
                file, f"eos_token_id is {value!r:.80}; ids are whole numbers from 0 to {config.vocab_size - 1}"
            )
    return tuple(ids)


def _digest(config: Mapping[str, Any], files: list[SafetensorsFile], tokenizer: TokenizerFiles) -> str:
    status = tokenizer.tokenizer_json.stat()
    facts = [
        config,
        [file.header_digest for file in files],
        tokenizer.tokenizer_config,
        [status.st_size, status.st_mtime_ns],
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
