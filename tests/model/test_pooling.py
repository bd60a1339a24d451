"""Which files embed and how: the key of a GGUF file, the modules of a folder; what is not understood is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders_gguf import WIDTH, write_model
from tests.cases.make_malformed import T_STR, T_U32
from tests.model.hf_builders import LLAMA, llama_weights, make_folder
from twostroke.core.pooling import Pooling, PoolingKind
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.model.pooling import read_pooling

TRANSFORMER = {"type": "sentence_transformers.models.Transformer", "path": ""}
POOLING = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
NORMALIZE = {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}


def gguf(folder: Path, number: int | None, *, architecture: str = "llama") -> Path:
    keys = [] if number is None else [(f"{architecture}.pooling_type", T_U32, number)]
    return write_model(folder / "model.gguf", architecture, tensor_type="F32", keys=keys)


def folder_of(
    folder: Path,
    *,
    modules: Any = (TRANSFORMER, POOLING, NORMALIZE),
    bare: bool = False,
    config: Any = None,
    **pooling: Any,
) -> Path:
    """A folder that embeds; `bare`: saved without a head, names without their prefix."""
    weights = llama_weights()
    if bare:
        del weights["lm_head.weight"]
        weights = {name.removeprefix("model."): values for name, values in weights.items()}
    make_folder(folder, config=LLAMA | (config or {}), weights=weights)
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    wishes = {"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True, "include_prompt": True} | pooling
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(wishes))
    return folder


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
@pytest.mark.parametrize(("number", "kind"), [(1, PoolingKind.MEAN), (2, PoolingKind.CLS), (3, PoolingKind.LAST)])
def test_a_gguf_file_names_its_pooling_by_a_number(
    tmp_path: Path, architecture: str, number: int, kind: PoolingKind
) -> None:
    source = open_model(gguf(tmp_path, number, architecture=architecture))
    assert read_pooling(source) == Pooling(kind=kind, dimensions=(WIDTH,))
    program = build_program(source)
    assert (program.has_head, program.output_width) == (False, WIDTH)


@pytest.mark.parametrize("number", [None, 0])
def test_a_file_without_pooling_writes(tmp_path: Path, number: int | None) -> None:
    source = open_model(gguf(tmp_path, number))
    program = build_program(source)
    assert read_pooling(source) is None
    assert (program.has_head, program.output_width) == (True, program.vocab_size)


def test_numbers_without_a_meaning_and_rankers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"'llama\.pooling_type' is 7: it must be 0 \(none\), 1 \(mean\)"):
        build_program(open_model(gguf(tmp_path, 7)))
    with pytest.raises(UnsupportedModelError, match="models that rank pairs are not supported"):
        build_program(open_model(gguf(tmp_path, 4)))
    path = write_model(tmp_path / "text.gguf", "llama", tensor_type="F32", keys=[("llama.pooling_type", T_STR, "mean")])
    with pytest.raises(ModelFileError, match=r"llama\.pooling_type"):
        build_program(open_model(path))


@pytest.mark.parametrize("bare", [False, True])
def test_a_folder_names_its_pooling_by_its_modules(
    tmp_path: Path, bare: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = open_model(folder_of(tmp_path / "model", bare=bare))
    assert read_pooling(source) == Pooling(kind=PoolingKind.LAST, dimensions=(16,))
    assert not build_program(source).has_head
    assert not caplog.records  # a head that is there is no surprise


def test_two_folders_that_differ_by_their_pooling_are_two_models(tmp_path: Path) -> None:
    last = open_model(folder_of(tmp_path / "last"))
    mean = open_model(folder_of(tmp_path / "mean", pooling_mode_lasttoken=False, pooling_mode_mean_tokens=True))
    assert last.header_digest != mean.header_digest


@pytest.mark.parametrize(
    ("config", "dimensions"),
    [
        ({"is_matryoshka": True}, range(1, 17)),
        ({"matryoshka_dimensions": [8, 4]}, (4, 8, 16)),
        ({"matryoshka_dimensions": [8, 16]}, (8, 16)),
        ({"is_matryoshka": False}, (16,)),
    ],
)
def test_a_folder_says_what_its_vectors_may_be_cut_to(tmp_path: Path, config: Any, dimensions: Any) -> None:
    pooling = read_pooling(open_model(folder_of(tmp_path / "model", config=config)))
    assert pooling is not None
    assert pooling.dimensions == dimensions


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"modules": {"a": 1}}, ModelFileError, "a list is needed"),
        ({"modules": [7]}, ModelFileError, "every module is an object"),
        ({"modules": [{"type": 1, "path": ""}]}, ModelFileError, "every module is an object"),
        ({"modules": [POOLING | {"path": "../1_Pooling"}]}, ModelFileError, "must be a folder of the folder"),
        ({"modules": [POOLING | {"path": "/etc"}]}, ModelFileError, "must be a folder of the folder"),
        ({"modules": [POOLING | {"path": ".."}]}, ModelFileError, "must be a folder of the folder"),
        ({"modules": [POOLING | {"path": "none"}]}, ModelFileError, "cannot be read"),
        ({"modules": [POOLING, {"type": "x.Dense", "path": "2_Dense"}]}, UnsupportedModelError, "module 'Dense'"),
        (
            {"pooling_mode_mean_tokens": True},
            UnsupportedModelError,
            "mean_tokens, pooling_mode_lasttoken; supported is one",
        ),
        ({"pooling_mode_lasttoken": False}, UnsupportedModelError, "the pooling is none"),
        (
            {"pooling_mode_lasttoken": False, "pooling_mode_max_tokens": True},
            UnsupportedModelError,
            "the pooling is pooling_mode_max_tokens",
        ),
        ({"include_prompt": False}, UnsupportedModelError, "include_prompt is false"),
        ({"config": {"matryoshka_dimensions": []}}, ModelFileError, "must be a list of whole numbers"),
        ({"config": {"matryoshka_dimensions": [8, 17]}}, ModelFileError, "vectors have 16 numbers"),
        ({"config": {"matryoshka_dimensions": [0]}}, ModelFileError, "vectors have 16 numbers"),
    ],
)
def test_modules_that_are_not_understood_are_refused(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    folder = folder_of(tmp_path / "model", **options)
    with pytest.raises(error, match=words):
        read_pooling(open_model(folder))
