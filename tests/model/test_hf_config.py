"""config.json as GGUF metadata: sizes, windows, and every spelling and mistake of rope settings."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.model.hf_builders import GEMMA, LLAMA, make_folder
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.hf_config import TranslatedConfig, translate_config
from twostroke.model.open import open_model

FILE = Path("config.json")


def translate(base: dict[str, Any] = LLAMA, **changes: Any) -> TranslatedConfig:
    return translate_config(FILE, base | changes)


def keys(base: dict[str, Any] = LLAMA, **changes: Any) -> dict[str, Any]:
    """Metadata without the architecture's prefix."""
    translated = translate(base, **changes)
    return {key.removeprefix(f"{translated.architecture}."): value for key, value in translated.metadata.items()}


def refusal(base: dict[str, Any] = LLAMA, **changes: Any) -> str:
    with pytest.raises((ModelFileError, UnsupportedModelError)) as caught:
        translate(base, **changes)
    return str(caught.value)


def rope(**scaling: Any) -> dict[str, Any]:
    found = keys(rope_scaling=scaling)
    return {key.removeprefix("rope.scaling."): value for key, value in found.items() if key.startswith("rope.scaling.")}


def test_sizes_keep_their_meaning() -> None:
    found = keys()
    assert found["general.architecture"] == "llama"
    assert found["twostroke.rope_style"] == "halves"
    assert {key: found[key] for key in ("block_count", "context_length", "embedding_length")} == {
        "block_count": 1,
        "context_length": 128,
        "embedding_length": 16,
    }
    assert (found["feed_forward_length"], found["vocab_size"]) == (24, 11)
    assert (found["attention.head_count"], found["attention.head_count_kv"]) == (2, 1)
    assert (found["attention.key_length"], found["rope.dimension_count"]) == (8, 8)
    assert (found["attention.layer_norm_rms_epsilon"], found["rope.freq_base"]) == (1e-5, 10000.0)


def test_explicit_head_dim_is_honoured_everywhere() -> None:
    found = keys(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=24)
    assert (found["attention.key_length"], found["attention.value_length"], found["rope.dimension_count"]) == (
        24,
        24,
        24,
    )


def test_null_means_absent() -> None:
    assert keys(head_dim=None, num_key_value_heads=None, rope_scaling=None) == keys(num_key_value_heads=2)


def test_partial_rotation_turns_a_part_of_the_head() -> None:
    assert keys(partial_rotary_factor=0.5)["rope.dimension_count"] == 4


@pytest.mark.parametrize(
    ("model_type", "architecture"), [("llama", "llama"), ("mistral", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")]
)
def test_model_types_have_their_architecture(model_type: str, architecture: str) -> None:
    assert translate(model_type=model_type).architecture == architecture


def test_unknown_model_type_lists_the_known_ones() -> None:
    assert "'mamba' is not supported; supported are llama, mistral, qwen2, qwen3, gemma3_text, gemma3" in refusal(
        model_type="mamba"
    )
    assert "model_type is None" in refusal(model_type=None)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_missing_or_wrong_size_is_named(key: str) -> None:
    assert f"key {key!r} is missing" in refusal(LLAMA | {key: None})
    assert f"key {key!r} must be a whole number; the file has the string '8'" in refusal(LLAMA | {key: "8"})
    assert f"key {key!r} must be a whole number; the file has the list" in refusal(LLAMA | {key: [8]})


def test_width_that_heads_do_not_divide_needs_a_head_dim() -> None:
    assert "hidden_size 16 is not a multiple of num_attention_heads 3" in refusal(num_attention_heads=3)
    assert "is not a multiple of num_attention_heads 0" in refusal(num_attention_heads=0)


def test_unsupported_variants_say_so() -> None:
    assert "activation 'relu' is not supported; llama has 'silu'" in refusal(hidden_act="relu")
    assert "quantization_config is not supported" in refusal(quantization_config={"quant_method": "gptq"})
    assert "use_bidirectional_attention" in refusal(GEMMA, use_bidirectional_attention=True)


# ---- windows


def test_windows_of_each_family() -> None:
    window = "attention.sliding_window"
    assert keys(model_type="mistral", sliding_window=64)[window] == 64
    assert window not in keys(model_type="mistral", sliding_window=None)
    assert window not in keys(model_type="llama", sliding_window=64)
    assert window not in keys(model_type="qwen2", sliding_window=64, use_sliding_window=False)
    assert keys(model_type="qwen2", sliding_window=64, use_sliding_window=True)[window] == 64


def test_gemma_layers_are_listed_or_counted() -> None:
    pattern = "attention.sliding_window_pattern"
    assert keys(GEMMA)[pattern] == 6
    found = keys(GEMMA, layer_types=["sliding_attention", "full_attention"])[pattern]
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [True, False]
    assert "layer_types is ['linear_attention']" in refusal(GEMMA, layer_types=["linear_attention"])


def test_gemma_scales_and_caps() -> None:
    found = keys(GEMMA, query_pre_attn_scalar=64, final_logit_softcapping=30.0, attn_logit_softcapping=None)
    assert found["attention.scale"] == 0.125
    assert found["final_logit_softcapping"] == 30.0
    assert "attn_logit_softcapping" not in found
    assert "'query_pre_attn_scalar' is 0" in refusal(GEMMA, query_pre_attn_scalar=0)


def test_text_config_of_an_image_model_takes_gemmas_defaults() -> None:
    translated = translate_config(
        FILE,
        {
            "model_type": "gemma3",
            "eos_token_id": [1, 106],
            "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
            | {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
        },
    )
    assert translated.eos_token_ids == [1, 106]
    assert translated.is_tied
    assert translated.metadata["gemma3.attention.head_count"] == 8
    assert translated.metadata["gemma3.attention.key_length"] == 256
    assert translated.metadata["gemma3.rope.scaling.factor"] == 8.0
    assert "text_config is None" in refusal({"model_type": "gemma3"})


BARE = {"hidden_size": 1024, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 16}
USUAL = {"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10_000.0}


@pytest.mark.parametrize(
    ("model_type", "wanted"),
    [
        ("llama", {"context_length": 2048, "attention.head_count_kv": 16, "attention.key_length": 64}),
        ("mistral", {"context_length": 131_072, "attention.head_count_kv": 8, "attention.key_length": 64}),
        ("qwen2", {"context_length": 32_768, "attention.head_count_kv": 16, "attention.key_length": 64}),
        ("qwen3", {"context_length": 32_768, "attention.head_count_kv": 16, "attention.key_length": 128}),
    ],
)
def test_what_a_config_leaves_out_is_what_its_model_type_means(model_type: str, wanted: dict[str, Any]) -> None:
    bare = BARE | {"model_type": model_type, "vocab_size": 64}
    found = keys(bare)
    wanted = wanted | USUAL | {"rope.dimension_count": wanted["attention.key_length"]}
    assert {key: found[key] for key in wanted} == wanted
    assert "attention.sliding_window" not in found
    assert not translate(bare).is_tied


def test_what_a_gemma_config_leaves_out() -> None:
    bare = {"model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 48, "num_hidden_layers": 2}
    wanted = {
        "attention.head_count": 8,
        "attention.head_count_kv": 4,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.scale": 0.0625,
        "attention.sliding_window": 4096,
        "attention.sliding_window_pattern": 6,
        "context_length": 131_072,
        "rope.dimension_count": 256,
        "rope.freq_base": 1_000_000.0,
        "rope.freq_base_swa": 10_000.0,
        "vocab_size": 262_208,
    }
    found = keys(bare)
    assert {key: found[key] for key in wanted} == wanted
    assert translate(bare).is_tied
    assert translate(bare).vocab_size == 262_208


def test_heads_of_one_are_the_whole_width() -> None:
    assert keys(num_attention_heads=1, num_key_value_heads=1)["attention.key_length"] == 16
    assert "is not a multiple of num_attention_heads -2" in refusal(num_attention_heads=-2)


def test_gemma_names_its_activation_by_the_newer_word() -> None:
    assert "activation 'silu' is not supported; gemma3 has" in refusal(GEMMA, hidden_activation="silu")
    assert keys(GEMMA, hidden_activation="gelu_pytorch_tanh", hidden_act="silu") == keys(GEMMA)


def test_an_image_model_keeps_what_stands_outside_its_text() -> None:
    text = {key: value for key, value in GEMMA.items() if key != "model_type"}
    outer = {"model_type": "gemma3", "eos_token_id": 1, "tie_word_embeddings": False, "text_config": text}
    assert not translate_config(FILE, outer).is_tied
    inner = outer | {"text_config": text | {"eos_token_id": 7, "tie_word_embeddings": True}}
    translated = translate_config(FILE, inner)
    assert (translated.eos_token_ids, translated.is_tied) == (7, True), "the text's own word goes first"
    assert "quantization_config is not supported" in refusal(outer, quantization_config={"quant_method": "awq"})
    assert "hidden_size" not in keys(outer, hidden_size=4096), "sizes outside are not the text's"
    assert keys(outer, hidden_size=4096)["embedding_length"] == 16


@pytest.mark.parametrize("key", ["attn_logit_softcapping", "final_logit_softcapping"])
@pytest.mark.parametrize("value", [0, -1, 1e31])
def test_a_cap_must_be_a_setting(key: str, value: float) -> None:
    assert f"key {key!r} is {value:g}; it must be a number from 1e-30 to 1e+30" in refusal(GEMMA, **{key: value})
    assert keys(GEMMA, **{key: 50.0})[key] == 50.0


@pytest.mark.parametrize("model_type", [3, ["llama"], True, {}])
def test_a_model_type_that_is_no_string_is_shown(model_type: object) -> None:
    assert f"model_type is {model_type!r}; it must be a string" in refusal(model_type=model_type)


# ---- rope


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_a_base_beside_the_factor_wins_over_the_one_outside(kind: str) -> None:
    found = keys(rope_theta=10.0, rope_parameters={"rope_type": kind, "factor": 2.0, "rope_theta": 77.0})
    assert found["rope.freq_base"] == 77.0
    partial = keys(partial_rotary_factor=1.0, rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.25})
    assert partial["rope.dimension_count"] == 2


def test_a_factor_of_one_scales_no_magnitude() -> None:
    assert rope(rope_type="yarn", factor=1.0, attention_factor=0.7)["attn_factor"] == 0.7
    assert rope(rope_type="yarn", factor=1.0, mscale=3.0, mscale_all_dim=2.0)["attn_factor"] == 1.0
    assert rope(rope_type="linear", factor=1)["factor"] == 1.0


@pytest.mark.parametrize("mscales", [{"mscale": 0.5}, {"mscale_all_dim": 0.5}, {"mscale": 0, "mscale_all_dim": 0.5}])
def test_one_mscale_without_the_other_changes_nothing(mscales: dict[str, Any]) -> None:
    assert rope(rope_type="yarn", factor=4.0, **mscales)["attn_factor"] == 1.0


def test_the_attention_factor_wins_over_the_mscales() -> None:
    both = rope(rope_type="yarn", factor=4.0, attention_factor=0.5, mscale=0.5, mscale_all_dim=1.0)
    assert both == rope(rope_type="yarn", factor=4.0, attention_factor=0.5)
    assert "'attention_factor' is -1" in refusal(
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "attention_factor": -1}
    )
    assert "'mscale' is 'a'" in refusal(
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": "a"}
    )


def test_the_local_rope_of_gemma_has_its_base_in_either_place() -> None:
    local = {"rope_type": "default"}
    found = keys(GEMMA, rope_local_base_freq=5e3, rope_parameters={"sliding_attention": local, "full_attention": {}})
    assert found["rope.freq_base_swa"] == 5e3
    assert "'rope_local_base_freq' is 0" in refusal(GEMMA, rope_local_base_freq=0)
    assert "rope_parameters.sliding_attention is [1]" in refusal(
        GEMMA, rope_parameters={"full_attention": {}, "sliding_attention": [1]}
    )
    assert "rope.freq_base_swa" not in keys(LLAMA)


def test_both_spellings_of_the_kind_mean_the_same() -> None:
    assert (
        rope(type="yarn", factor=4.0)
        == rope(rope_type="yarn", factor=4.0)
        == rope(type="yarn", rope_type="yarn", factor=4.0)
    )
    assert rope(type="yarn", factor=4.0)["type"] == "yarn"


def test_both_places_of_the_settings_mean_the_same() -> None:
    old = keys(rope_theta=5000.0, rope_scaling={"type": "linear", "factor": 2.0})
    new = keys(rope_theta=None, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0})
    both = keys(
        rope_theta=5000.0,
        rope_scaling={"rope_type": "linear", "factor": 2.0},
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
    )
    assert old == new == both
    assert "rope_scaling and rope_parameters disagree: 'factor'" in refusal(
        rope_scaling={"rope_type": "linear", "factor": 2.0}, rope_parameters={"rope_type": "linear", "factor": 4.0}
    )


def test_default_kind_scales_nothing() -> None:
    assert rope(rope_type="default") == {}
    assert keys(rope_parameters={"rope_theta": 7.0, "rope_type": "default"})["rope.freq_base"] == 7.0


def test_llama3_scaling_keeps_its_four_numbers() -> None:
    assert rope(
        rope_type="llama3", factor=8, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
    ) == {
        "type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_context_length": 8192,
    }


def test_yarn_keeps_its_betas_and_its_attention_factor() -> None:
    found = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=16, beta_slow=2)
    assert (found["yarn_beta_fast"], found["yarn_beta_slow"], found["original_context_length"]) == (16.0, 2.0, 64)
    assert found["attn_factor"] == 1.0
    usual = 0.1 * math.log(4.0) + 1
    assert rope(rope_type="yarn", factor=4.0, attention_factor=1.0)["attn_factor"] == pytest.approx(1 / usual)
    mscales = rope(rope_type="yarn", factor=4.0, mscale=0.5, mscale_all_dim=1.0)
    assert mscales["attn_factor"] * usual == pytest.approx((0.05 * math.log(4.0) + 1) / usual)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "yarn", "type": "linear", "factor": 2.0}, "rope_type 'yarn' and type 'linear'; say it once"),
        ({"rope_type": "blah", "factor": 2.0}, "rope_type 'blah' is not supported; supported are default, linear"),
        ({"rope_type": "dynamic", "factor": 2.0}, "rope_type 'dynamic' is not supported"),
        ({"rope_type": 3, "factor": 2.0}, "rope_type 3 is not supported"),
        ({"rope_type": ["yarn"], "factor": 2.0}, "rope_type ['yarn'] is not supported"),
        ({"rope_type": "linear", "factor": 10**400}, "it must be a number from 1e-30 to 1e+30"),
        ({"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e308}, "'beta_fast' is 1e+308; it must be a number from"),
        ({"factor": 2.0}, "has no rope_type"),
        ({"rope_type": "yarn"}, "rope scaling 'yarn' has no 'factor'"),
        ({"rope_type": "linear", "factor": None}, "rope scaling 'linear' has no 'factor'"),
        ({"rope_type": "linear", "factor": 0}, "'factor' is 0; it must be a number from 1e-30 to 1e+30"),
        ({"rope_type": "linear", "factor": "4"}, "'factor' is '4'; it must be a number from 1e-30 to 1e+30"),
        ({"rope_type": "linear", "factor": True}, "'factor' is True"),
        ({"rope_type": "linear", "factor": 0.5}, "'factor' is 0.5; it must be at least 1"),
        ({"rope_type": "linear", "factor": float("inf")}, "'factor' is inf"),
        (
            {"rope_type": "linear", "factor": 2.0, "beta_fast": 3},
            "rope scaling 'linear' has the unknown key 'beta_fast'",
        ),
        ({"rope_type": "llama3", "factor": 2.0}, "rope scaling 'llama3' has no 'high_freq_factor'"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, "truncate false is not supported"),
        (
            {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1.5},
            "'original_max_position_embeddings' is 1.5; it must be a whole number",
        ),
    ],
)
def test_wrong_scaling_is_refused(scaling: dict[str, Any], message: str) -> None:
    assert message in refusal(rope_scaling=scaling)
    assert message in refusal(rope_parameters=scaling)


@pytest.mark.parametrize("value", ["yarn", [1], 4])
def test_scaling_that_is_no_object_is_refused(value: object) -> None:
    assert "rope_scaling is" in refusal(rope_scaling=value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 10**400),
        ("head_dim", 10**400),
        ("rms_norm_eps", 10**400),
        ("rope_theta", 10**400),
        ("partial_rotary_factor", 10**400),
        ("partial_rotary_factor", 1e308),
    ],
)
def test_a_number_too_large_to_compute_with_is_refused_by_its_key(key: str, value: Any) -> None:
    assert f"'{key}' is" in refusal(**{key: value})


def test_base_of_zero_is_refused() -> None:
    assert "'rope_theta' is 0" in refusal(rope_theta=0)


def test_gemma_has_two_ropes_in_both_spellings() -> None:
    old = keys(GEMMA, rope_theta=1e6, rope_local_base_freq=5e3, rope_scaling={"rope_type": "linear", "factor": 8.0})
    new = keys(
        GEMMA,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
        },
    )
    assert old == new
    assert (new["rope.freq_base"], new["rope.freq_base_swa"], new["rope.scaling.factor"]) == (1e6, 5e3, 8.0)


def test_gemma_scales_global_layers_alone() -> None:
    local = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    message = refusal(GEMMA, rope_parameters={"full_attention": {"rope_type": "default"}, "sliding_attention": local})
    assert "sliding_attention has rope_type 'linear'; supported is default" in message
    assert "rope_parameters.full_attention is 3" in refusal(GEMMA, rope_parameters={"full_attention": 3})


# ---- judged by transformers

TINY: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 128,
}
ROPES: list[dict[str, Any] | None] = [
    None,
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    | {"original_max_position_embeddings": 64},
]


@pytest.mark.oracle
@pytest.mark.parametrize("scaling", ROPES, ids=["plain", "linear", "yarn", "llama3"])
@pytest.mark.parametrize(
    "name", ["LlamaConfig", "MistralConfig", "Qwen2Config", "Qwen3Config", "Gemma3TextConfig", "Gemma3Config"]
)
def test_what_transformers_saves_is_understood(tmp_path: Path, name: str, scaling: dict[str, Any] | None) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = TINY | {"head_dim": 16, "rope_scaling": scaling}
    if name == "Gemma3Config":
        config = transformers.Gemma3Config(text_config=sizes, vision_config={"num_hidden_layers": 1})
    else:
        config = getattr(transformers, name)(**sizes)
    make_folder(tmp_path / "weights")
    config.save_pretrained(tmp_path)
    translated = translate_config(tmp_path / "config.json", json.loads((tmp_path / "config.json").read_text()))
    prefix = f"{translated.architecture}."
    found = {key.removeprefix(prefix): value for key, value in translated.metadata.items()}
    text = config.text_config if name == "Gemma3Config" else config
    assert found["attention.key_length"] == 16
    assert found["attention.head_count_kv"] == 2
    assert translated.is_tied == bool(config.tie_word_embeddings)
    assert found.get("rope.scaling.type") == (scaling or {}).get("rope_type")
    parameters = text.rope_parameters
    parameters = parameters.get("full_attention", parameters)
    assert found["rope.freq_base"] == parameters["rope_theta"]


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["Llama", "Mistral", "Qwen2", "Qwen3", "Gemma3Text"])
def test_every_weight_of_a_transformers_model_has_a_gguf_name(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(**TINY, head_dim=16, attn_implementation="eager")
    model_name = "Gemma3ForCausalLM" if name == "Gemma3Text" else f"{name}ForCausalLM"
    model = getattr(transformers, model_name)(config)
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    source = open_model(tmp_path)
    assert all(tensor.startswith(("blk.", "token_embd", "output")) for tensor in source.tensors)
    assert ("output.weight" in source.tensors) == (not config.tie_word_embeddings)
    norm = model.model.norm.weight.detach().numpy() + (1 if name == "Gemma3Text" else 0)
    np.testing.assert_array_equal(source.tensors["output_norm.weight"].data.view(np.float32), norm)
