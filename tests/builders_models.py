"""Tiny random models of every family and rope scaling, made by the transformers library and saved as folders.

One list for every reader: each is judged against transformers on the same prompts.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VOCAB_SIZE = 96
ORIGINAL_CONTEXT = 32  # before scaling; prompts go past it

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class TinyModel:
    """A config of transformers: its family and the keywords that differ from the tiny sizes."""

    name: str
    family: str  # "Llama", "Mistral", "Qwen2", "Qwen3", "Gemma3"
    options: dict[str, Any] = field(default_factory=dict)


def _scaled(kind: str, **options: Any) -> dict[str, Any]:
    scaling = {"rope_type": kind, "rope_theta": 10_000.0, "factor": 4.0, **options}
    if kind != "linear":
        scaling["original_max_position_embeddings"] = ORIGINAL_CONTEXT
    return {"rope_parameters": scaling}


_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}


def tiny_models() -> list[TinyModel]:
    """Every family, head layout and rope scaling that is supported."""
    return [
        TinyModel("llama", "Llama"),
        TinyModel("llama_tied", "Llama", {"tie_word_embeddings": True}),
        TinyModel("llama_multi_head", "Llama", {"num_key_value_heads": 4}),
        TinyModel("llama_one_kv_head", "Llama", {"num_key_value_heads": 1}),
        TinyModel("llama_head_dim_24", "Llama", {"head_dim": 24}),
        TinyModel("llama_biases", "Llama", {"attention_bias": True, "mlp_bias": True}),
        TinyModel("llama_base_500000", "Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
        TinyModel("llama_linear", "Llama", _scaled("linear")),
        TinyModel("llama_yarn", "Llama", _scaled("yarn")),
        TinyModel("llama_yarn_options", "Llama", _scaled("yarn", beta_fast=16.0, beta_slow=2.0, attention_factor=0.9)),
        TinyModel("llama_llama3", "Llama", _scaled("llama3", **_LLAMA3)),
        TinyModel("mistral", "Mistral", {"sliding_window": None, "head_dim": 24}),
        TinyModel("mistral_window", "Mistral", {"sliding_window": 9}),
        TinyModel("qwen2", "Qwen2"),
        TinyModel("qwen2_tied_yarn", "Qwen2", {"tie_word_embeddings": True, **_scaled("yarn")}),
        TinyModel("qwen3", "Qwen3", {"head_dim": 24}),
        TinyModel("qwen3_tied_linear", "Qwen3", {"tie_word_embeddings": True, "head_dim": 16, **_scaled("linear")}),
        TinyModel("gemma3", "Gemma3", _gemma()),
        TinyModel("gemma3_linear", "Gemma3", _gemma(rope_parameters=_GEMMA_ROPE)),
        TinyModel("gemma3_untied_softcap", "Gemma3", _gemma(tie_word_embeddings=False, final_logit_softcapping=3.0)),
        TinyModel("gemma3_pattern_3", "Gemma3", _gemma(sliding_window_pattern=3, query_pre_attn_scalar=40)),
    ]


def _gemma(**options: Any) -> dict[str, Any]:
    """Seven layers: the pattern's global layer and one more; a window far below the prompts."""
    tiny = {"num_hidden_layers": 7, "head_dim": 24, "sliding_window": 7, "query_pre_attn_scalar": 24}
    return {**tiny, "tie_word_embeddings": True, **options}


def make_tiny_model(tiny: TinyModel) -> Any:
    """The transformers model in float32, seeded by its name. Norms and biases are random too: ones hide errors."""
    import torch
    import transformers

    config_name = "Gemma3TextConfig" if tiny.family == "Gemma3" else f"{tiny.family}Config"
    config = getattr(transformers, config_name)(**{**_SIZES, **tiny.options})
    torch.manual_seed(sum(tiny.name.encode()))
    model = getattr(transformers, f"{tiny.family}ForCausalLM")(config).to(torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.2)
            else:
                parameter.mul_(4.0)  # far from uniform attention and logits
    return model


def save_tiny_model(tiny: TinyModel, folder: Path, *, first_character: int = 0x4E00) -> Any:
    """Save it the way models are published, with a tokenizer of one character per id; returns the model itself."""
    from tokenizers import Tokenizer, models

    model = make_tiny_model(tiny)
    model.save_pretrained(folder)
    characters = Tokenizer(models.BPE({chr(first_character + index): index for index in range(VOCAB_SIZE)}, []))
    characters.save(str(folder / "tokenizer.json"))
    return model
