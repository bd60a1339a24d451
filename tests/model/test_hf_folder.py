"""Model folders: which files are read, tied heads, shards, chat templates, end ids, and every refusal."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.make_malformed import SAFETENSORS_RECIPES, build_safetensors
from tests.model.hf_builders import (
    GEMMA,
    LLAMA,
    gemma_weights,
    llama_weights,
    make_folder,
    make_sharded,
    pack_weights,
    write_json,
)
from twostroke.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from twostroke.model.open import open_model

HEAD, EMBED, NORM = "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"


def refusal(folder: Path) -> str:
    with pytest.raises((ModelFileError, UnsupportedModelError)) as caught:
        open_model(folder)
    return str(caught.value)


def test_folder_speaks_the_vocabulary_of_gguf(tmp_path: Path) -> None:
    weights = llama_weights()
    source = open_model(make_folder(tmp_path, weights=weights))
    assert (source.format, source.architecture, source.path) == ("safetensors", "llama", tmp_path)
    assert set(source.tensors) == {
        "token_embd.weight",
        "output_norm.weight",
        "output.weight",
        *(f"blk.0.attn_{part}.weight" for part in ("norm", "q", "k", "v", "output")),
        *(f"blk.0.ffn_{part}.weight" for part in ("norm", "gate", "up", "down")),
    }
    q = source.tensors["blk.0.attn_q.weight"]
    assert (q.tensor_type, q.shape) == ("F32", (16, 16))
    assert q.data.tobytes() == weights["model.layers.0.self_attn.q_proj.weight"].tobytes()
    assert source.tokenizer_files is not None
    assert source.tokenizer_files.tokenizer_json == tmp_path / "tokenizer.json"


def test_safetensors_file_is_opened_with_its_folder(tmp_path: Path) -> None:
    make_folder(tmp_path)
    other = tmp_path / "other.safetensors"
    other.write_bytes(pack_weights(llama_weights() | {NORM: np.full(16, 7, np.float32)}))
    norm = open_model(other).tensors["output_norm.weight"]
    assert norm.data.view(np.float32)[0] == 7


@pytest.mark.parametrize(("dtype", "kind"), [("F16", np.float16), ("BF16", np.uint16)])
def test_half_types_are_kept_as_stored(tmp_path: Path, dtype: str, kind: type) -> None:
    weights: dict[str, Any] = {name: np.ones(array.shape, kind) for name, array in llama_weights().items()}
    source = open_model(make_folder(tmp_path, weights=pack_weights(weights, dtype=dtype)))
    assert {tensor.tensor_type for tensor in source.tensors.values()} == {dtype}


def test_unsupported_dtype_matters_only_when_the_tensor_is_taken(tmp_path: Path) -> None:
    data = pack_weights({name: array.view(np.int32) for name, array in llama_weights().items()}, dtype="I32")
    source = open_model(make_folder(tmp_path, weights=data))
    with pytest.raises(UnsupportedModelError, match=r"'output_norm.weight' has type I32"):
        source.tensors["output_norm.weight"]


# ---- the head


def test_untied_model_without_a_head_is_refused(tmp_path: Path) -> None:
    weights = llama_weights()
    del weights[HEAD]
    assert "tensor 'lm_head.weight' is missing" in refusal(make_folder(tmp_path, weights=weights))


def test_absent_tie_means_the_default_of_the_model_type(tmp_path: Path) -> None:
    weights = llama_weights()
    del weights[HEAD]
    config = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    assert "'lm_head.weight' is missing" in refusal(make_folder(tmp_path / "llama", config=config, weights=weights))
    gemma = open_model(make_folder(tmp_path / "gemma", config=GEMMA, weights=gemma_weights()))
    assert "output.weight" not in gemma.tensors


@pytest.mark.parametrize("has_head", [False, True])
def test_tied_model_uses_the_embedding(tmp_path: Path, has_head: bool, caplog: pytest.LogCaptureFixture) -> None:
    weights = llama_weights()
    weights[HEAD] = weights[EMBED].copy()
    if not has_head:
        del weights[HEAD]
    source = open_model(make_folder(tmp_path, config=LLAMA | {"tie_word_embeddings": True}, weights=weights))
    assert "output.weight" not in source.tensors
    assert caplog.messages == []


def test_tied_model_with_a_different_head_warns_once_and_uses_the_embedding(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        source = open_model(make_folder(tmp_path, config=LLAMA | {"tie_word_embeddings": True}))
    assert "output.weight" not in source.tensors
    assert ["'lm_head.weight' differs from the embedding" in message for message in caplog.messages] == [True]


def test_untied_recipe_without_a_head_names_it(tmp_path: Path) -> None:
    data = SAFETENSORS_RECIPES["s34_tied_conflict"](build_safetensors())
    assert "lm_head.weight" in refusal(make_folder(tmp_path, weights=data))


@pytest.mark.parametrize("name", sorted(SAFETENSORS_RECIPES))
def test_recipe_in_a_folder_is_refused_or_opened(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path, weights=SAFETENSORS_RECIPES[name](build_safetensors()))
    if name in ("s26_dtype_f64", "s29_extra_field", "s31_name_escape", "s32_name_path"):
        assert "token_embd.weight" in open_model(folder).tensors
    else:
        assert refusal(folder)


def test_name_that_looks_like_a_path_is_only_a_name(tmp_path: Path) -> None:
    data = SAFETENSORS_RECIPES["s32_name_path"](build_safetensors())
    source = open_model(make_folder(tmp_path, weights=data))
    assert "../../etc/x" in source.tensors
    assert "output_norm.weight" not in source.tensors


# ---- Gemma


def test_gemma_norms_get_their_one_and_gemma_names(tmp_path: Path) -> None:
    weights = gemma_weights()
    tensors = open_model(make_folder(tmp_path, config=GEMMA, weights=weights)).tensors
    for ours, theirs in {
        "blk.0.attn_norm": "model.layers.0.input_layernorm",
        "blk.0.post_attention_norm": "model.layers.0.post_attention_layernorm",
        "blk.0.ffn_norm": "model.layers.0.pre_feedforward_layernorm",
        "blk.0.post_ffw_norm": "model.layers.0.post_feedforward_layernorm",
        "blk.0.attn_q_norm": "model.layers.0.self_attn.q_norm",
        "blk.0.attn_k_norm": "model.layers.0.self_attn.k_norm",
        "output_norm": "model.norm",
    }.items():
        tensor = tensors[f"{ours}.weight"]
        assert tensor.tensor_type == "F32"
        np.testing.assert_array_equal(tensor.data.view(np.float32), weights[f"{theirs}.weight"] + 1)
        assert not tensor.data.flags.writeable


def test_gemma_norm_of_bfloat16_is_added_in_float32(tmp_path: Path) -> None:
    halves = {name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in gemma_weights().items()}
    tensors = open_model(make_folder(tmp_path, config=GEMMA, weights=pack_weights(halves, dtype="BF16"))).tensors
    wanted = (halves[NORM].astype(np.uint32) << 16).view(np.float32) + np.float32(1)
    np.testing.assert_array_equal(tensors["output_norm.weight"].data.view(np.float32), wanted)
    assert tensors["token_embd.weight"].tensor_type == "BF16"


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_text_part_of_an_image_model_is_found(tmp_path: Path, prefix: str) -> None:
    weights = {prefix + name.removeprefix("model."): array for name, array in gemma_weights().items()}
    weights["vision_tower.embeddings.weight"] = np.zeros(4, np.float32)
    text = {key: value for key, value in GEMMA.items() if key != "model_type"}
    source = open_model(
        make_folder(tmp_path, config={"model_type": "gemma3", "text_config": text}, weights=pack_weights(weights))
    )
    assert source.architecture == "gemma3"
    assert "blk.0.post_ffw_norm.weight" in source.tensors
    assert not any("vision" in name for name in source.tensors)


def test_tensor_under_two_names_is_refused(tmp_path: Path) -> None:
    weights = gemma_weights() | {"model.language_model.norm.weight": np.zeros(16, np.float32)}
    assert "is there twice, under two names" in refusal(make_folder(tmp_path, config=GEMMA, weights=weights))


# ---- shards


def split_weights() -> list[dict[str, Any]]:
    items = list(llama_weights().items())
    return [dict(items[:6]), dict(items[6:])]


def test_shards_equal_one_file(tmp_path: Path) -> None:
    one, two = open_model(make_folder(tmp_path / "one")), open_model(make_sharded(tmp_path / "two", split_weights()))
    assert set(one.tensors) == set(two.tensors)
    assert all(one.tensors[name].data.tobytes() == two.tensors[name].data.tobytes() for name in one.tensors)


def test_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_sharded(tmp_path, split_weights())
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "shard model-00002-of-00002.safetensors is missing" in refusal(folder)


def test_tensor_in_the_wrong_shard_is_named(tmp_path: Path) -> None:
    weight_map = dict.fromkeys(llama_weights(), "model-00001-of-00002.safetensors")
    message = refusal(make_sharded(tmp_path, split_weights(), weight_map=weight_map))
    assert "tensor 'model.layers.0.post_attention_layernorm.weight' should be in model-00001-of-00002" in message


@pytest.mark.parametrize("number", [1, 2])
def test_index_decides_between_two_copies(tmp_path: Path, number: int) -> None:
    shards = split_weights()
    shards[0][NORM], shards[1][NORM] = np.full(16, 1, np.float32), np.full(16, 2, np.float32)
    names = [f"model-0000{index}-of-00002.safetensors" for index in (1, 2)]
    weight_map = {name: names[index] for index, shard in enumerate(shards) for name in shard}
    folder = make_sharded(tmp_path, shards, weight_map=weight_map | {NORM: names[number - 1]})
    assert open_model(folder).tensors["output_norm.weight"].data.view(np.float32)[0] == number


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/x.safetensors", "a\\b.safetensors", "x.bin", 3, None])
def test_shard_name_never_leaves_the_folder(tmp_path: Path, name: object) -> None:
    message = refusal(make_sharded(tmp_path, split_weights(), weight_map={EMBED: name}))
    assert "must be a safetensors file of the folder" in message


@pytest.mark.parametrize("weight_map", [[], {}, "x"])
def test_index_without_a_map_is_refused(tmp_path: Path, weight_map: Any) -> None:
    assert "weight_map is" in refusal(make_sharded(tmp_path, split_weights(), weight_map=weight_map))


# ---- which files


def test_missing_path_and_missing_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file or folder"):
        open_model(tmp_path / "none")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no config.json; a model folder has" in refusal(empty)
    (empty / "m.gguf").write_bytes(b"")
    assert f"open one of them, for example {empty / 'm.gguf'}" in refusal(empty)
    no_tokenizer = make_folder(tmp_path / "tokenizer")
    (no_tokenizer / "tokenizer.json").unlink()
    assert "no tokenizer.json; save the tokenizer again" in refusal(no_tokenizer)


def test_folder_without_safetensors_says_what_it_has(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    assert "it has no weights" in refusal(folder)
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert "PyTorch .bin weights only" in refusal(folder)
    (folder / "a.safetensors").write_bytes(data)
    assert len(open_model(folder).tensors) == 12
    (folder / "b.safetensors").write_bytes(data)
    assert "2 safetensors files but no model.safetensors.index.json" in refusal(folder)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", "not JSON"),
        ("[1]", "a JSON list"),
        ("<html>", "HTML page"),
        ('{"a":' * 99_999, "not JSON"),
        ("\x00", "not"),
    ],
)
def test_damaged_config_is_refused(tmp_path: Path, text: str, meaning: str) -> None:
    folder = make_folder(tmp_path)
    (folder / "config.json").write_text(text)
    assert meaning in refusal(folder)


def test_json_above_its_limit_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    with (folder / "config.json").open("wb") as file:
        file.truncate(2**26 + 1)
    assert "more than 67108864 bytes" in refusal(folder)


# ---- templates and end ids


def test_chat_template_file_wins_over_the_tokenizer_config(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    assert open_model(folder).chat_template is None
    write_json(folder / "chat_template.json", {"chat_template": "third"})
    assert open_model(folder).chat_template == "third"
    write_json(folder / "tokenizer_config.json", {"chat_template": "second"})
    assert open_model(folder).chat_template == "second"
    (folder / "chat_template.jinja").write_text("first ö")
    assert open_model(folder).chat_template == "first ö"


def test_named_chat_templates_use_the_default_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_folder(tmp_path)
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    write_json(folder / "tokenizer_config.json", {"chat_template": named})
    assert open_model(folder).chat_template == "d"
    write_json(folder / "tokenizer_config.json", {"chat_template": named[:1]})
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        assert open_model(folder).chat_template is None
    assert ["no chat template is named 'default' (tool_use)" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize("template", [3, {"a": 1}, [{"name": "default", "template": 5}]])
def test_chat_template_of_another_type_is_refused(tmp_path: Path, template: object) -> None:
    folder = make_folder(tmp_path)
    write_json(folder / "tokenizer_config.json", {"chat_template": template})
    assert "must be a string or a list of named ones" in refusal(folder)


def test_end_ids_come_from_the_generation_config_first(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    assert open_model(folder).eos_token_ids == (2,)
    write_json(folder / "generation_config.json", {"temperature": 0.6})
    assert open_model(folder).eos_token_ids == (2,)
    write_json(folder / "generation_config.json", {"eos_token_id": [4, 2]})
    assert open_model(folder).eos_token_ids == (4, 2)
    write_json(folder / "config.json", LLAMA | {"eos_token_id": None})
    (folder / "generation_config.json").unlink()
    assert open_model(folder).eos_token_ids == ()


@pytest.mark.parametrize("value", [-1, 11, "2", [1, True], 1.5])
def test_end_id_outside_the_vocabulary_is_refused(tmp_path: Path, value: object) -> None:
    folder = make_folder(tmp_path)
    write_json(folder / "generation_config.json", {"eos_token_id": value})
    assert "ids are whole numbers from 0 to 10" in refusal(folder)


def test_fingerprint_follows_config_weights_and_tokenizer(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    seen = {open_model(folder).fingerprint}
    write_json(folder / "config.json", LLAMA | {"rope_theta": 5000.0})
    seen.add(open_model(folder).fingerprint)
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    seen.add(open_model(folder).fingerprint)
    (folder / "model.safetensors").write_bytes(pack_weights(llama_weights() | {NORM: np.zeros(16, np.float32)}))
    seen.add(open_model(folder).fingerprint)
    assert len(seen) == 4
