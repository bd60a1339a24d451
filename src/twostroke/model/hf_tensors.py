"""Names and values of a safetensors folder's tensors in GGUF's vocabulary.

Values stay views of the files, except Gemma's norm weights, which get the 1 that GGUF files have added
already: small float32 arrays. Called by the folder reader.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError
from twostroke.model.safetensors import StoredTensor
from twostroke.model.source import TensorRef
from twostroke.program.quant import dequantise

_log = logging.getLogger("twostroke")
_LAYER = re.compile(r"model\.layers\.(\d{1,6})\.(.+)\.(weight|bias)")
_TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
# Gemma has a norm on both sides of each half, so the same word means another place.
_GEMMA_LAYER_NAMES = _LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_TEXT_PREFIXES = {
    "language_model.model.": "model.",
    "model.language_model.": "model.",
    "language_model.lm_head.": "lm_head.",
}
_BODY_PREFIXES = ("embed_tokens.", "layers.", "norm.")
_NOT_TEXT = ("vision_tower.", "model.vision_tower.", "multi_modal_projector.", "model.multi_modal_projector.")
_COMPUTED = ".rotary_emb.inv_freq"  # old checkpoints stored the rope's angles; they follow from the configuration
_COMPARE_BYTES = 2**24


def translate_tensors(stored: Mapping[str, StoredTensor], *, architecture: str, file: Path) -> dict[str, TensorRef]:
    """Tensors by GGUF name; names we do not know are kept, parts for images and stored angles are left out."""
    tensors: dict[str, TensorRef] = {}
    for name, tensor in stored.items():
        if name.startswith(_NOT_TEXT) or name.endswith(_COMPUTED):
            continue
        ours = gguf_name(name, architecture=architecture)
        if ours in tensors:
            raise ModelFileError(file, f"tensor {name!r} is there twice, under two names")
        ref = TensorRef(ours, tensor.dtype, tensor.shape, tensor.data)
        tensors[ours] = _plus_one(ref) if architecture == "gemma3" and _is_norm(ours) else ref
    return tensors


def gguf_name(name: str, *, architecture: str) -> str:
    """The GGUF name of a checkpoint's tensor; an unknown name is returned as it is."""
    for prefix, plain in _TEXT_PREFIXES.items():
        if name.startswith(prefix):
            name = plain + name.removeprefix(prefix)
    if name.startswith(_BODY_PREFIXES):  # saved without a head: nothing stands before them
        name = f"model.{name}"
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    match = _LAYER.fullmatch(name)
    names = _GEMMA_LAYER_NAMES if architecture == "gemma3" else _LAYER_NAMES
    if match is None or match[2] not in names:
        return name
    return f"blk.{int(match[1])}.{names[match[2]]}.{match[3]}"


def tie_head(tensors: Mapping[str, TensorRef], *, is_tied: bool, file: Path) -> dict[str, TensorRef]:
    """Make the tensors say what the configuration says: a tied model has no head of its own.

    A tied model that ships a different head gives one warning and uses the embedding; an untied one
    without a head is an error.
    """
    head, embedding = tensors.get("output.weight"), tensors.get("token_embd.weight")
    if head is None:
        if not is_tied:
            raise ModelFileError(
                file,
                "the head is not tied to the embedding (tie_word_embeddings false, or its default), but tensor "
                "'lm_head.weight' is missing: get the missing file, or set tie_word_embeddings to true if it is tied",
            )
        return dict(tensors)
    if not is_tied:
        return dict(tensors)
    if embedding is not None and not _same(head, embedding):
        _log.warning(
            "%s: tie_word_embeddings is true, but tensor 'lm_head.weight' differs from the embedding; "
            "the embedding is used",
            file,
        )
    return {name: tensor for name, tensor in tensors.items() if name != "output.weight"}


def _same(one: TensorRef, other: TensorRef) -> bool:
    if (one.tensor_type, one.shape) != (other.tensor_type, other.shape):
        return False
    starts = range(0, len(one.data), _COMPARE_BYTES)
    return all(_part(one.data, start) == _part(other.data, start) for start in starts)


def _part(data: npt.NDArray[np.uint8], start: int) -> bytes:
    return data[start : start + _COMPARE_BYTES].tobytes()


def _is_norm(name: str) -> bool:
    return name.endswith("_norm.weight")


def _plus_one(tensor: TensorRef) -> TensorRef:
    if tensor.tensor_type not in ("F32", "F16", "BF16") or len(tensor.shape) != 1:
        return tensor  # refused by whoever takes it
    weight = dequantise(tensor.tensor_type, tensor.data, tensor.shape) + np.float32(1)
    data = weight.view(np.uint8)
    data.flags.writeable = False
    return TensorRef(tensor.name, "F32", tensor.shape, data)
