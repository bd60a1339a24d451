"""Files to measure speed on, made from SmolLM2-135M-Instruct's own GGUF file.

    python bench/make_models.py SOURCE.gguf FOLDER [NAME ...]

`smollm2-q4_0`, `smollm2-q8_0`: the source requantised by llama.cpp. The others have the shapes of well-known models
and random weights, which take as long as trained ones: blocks drawn from a pool that llama.cpp quantised, mixed as it
mixes "Q4_K_M". Their vocabulary is the source's, filled up with unused tokens to the size of the model they stand for.
One tensor at a time is in memory. Needs the extra `bench`.
"""

import argparse
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

try:
    import gguf
    import llama_cpp
    from gguf import GGMLQuantizationType as Type, TokenType
    from llama_cpp._ggml import libggml
except ImportError as error:
    raise SystemExit(f"{__doc__}\n{error.name} is missing: pip install '.[bench]'") from None

POOL_BLOCKS = 1 << 15  # no two rows alike, and quantised in a second
DEVIATION = 0.02  # of weights, as models are initialised: activations stay in range through all layers
FILE_TYPES = {"smollm2-q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "smollm2-q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0}


@dataclass(frozen=True)
class Shape:
    """A model of the llama family; `is_mixed` is Q4_K_M, otherwise all of it is Q4_0 but the head."""

    layers: int
    width: int
    feed: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    is_tied: bool
    is_mixed: bool
    rope_base: float = 500_000.0
    context: int = 8192


SHAPES = {
    "llama-1b-q4_0": Shape(16, 2048, 8192, 32, 8, 64, 128_256, is_tied=True, is_mixed=False),
    "llama-1b-q4_k_m": Shape(16, 2048, 8192, 32, 8, 64, 128_256, is_tied=True, is_mixed=True),
    "llama-8b-q4_k_m": Shape(32, 4096, 14_336, 32, 8, 128, 128_256, is_tied=False, is_mixed=True),
    # a small model under a large head: what sampling costs shows most here
    "large-vocabulary": Shape(16, 1024, 2816, 16, 4, 64, 151_936, is_tied=True, is_mixed=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the files that speed is measured on.")
    parser.add_argument("source", type=Path, help="SmolLM2-135M-Instruct as GGUF")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*FILE_TYPES, *SHAPES, []], metavar="NAME", help="all by default")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or [*FILE_TYPES, *SHAPES]:
        path = options.folder / f"{name}.gguf"
        if name in FILE_TYPES:
            requantise(options.source, path, file_type=FILE_TYPES[name])
        else:
            write_random(options.source, path, SHAPES[name])
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


def requantise(source: Path, path: Path, *, file_type: int) -> None:
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    params.allow_requantize = True
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), params)
    if status != 0:
        raise SystemExit(f"llama.cpp cannot requantise {source}: status {status}")


def write_random(source: Path, path: Path, shape: Shape) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    add_shape(writer, shape)
    add_vocabulary(writer, gguf.GGUFReader(source), size=shape.vocab_size)
    tensors = list(tensors_of(shape))
    for name, rows, cols, kind in tensors:
        block_values, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        byte_shape = (rows, cols // block_values * block_bytes) if rows else (4 * cols,)
        writer.add_tensor_info(name, byte_shape, np.dtype(np.uint8), int(np.prod(byte_shape)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    draw = block_source()
    for _, rows, cols, kind in tensors:
        writer.write_tensor_data(draw(rows, cols, kind) if rows else np.ones(cols, np.float32).view(np.uint8))
    writer.close()


def add_shape(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M if shape.is_mixed else gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def add_vocabulary(writer: gguf.GGUFWriter, source: gguf.GGUFReader, *, size: int) -> None:
    def read(name: str) -> object:
        return source.fields[f"tokenizer.{name}"].contents()

    tokens, types = list(read("ggml.tokens")), list(read("ggml.token_type"))
    spare = size - len(tokens)
    writer.add_tokenizer_model(read("ggml.model"))
    writer.add_tokenizer_pre(read("ggml.pre"))
    writer.add_token_list(tokens + [f"<|unused_{number}|>" for number in range(spare)])
    writer.add_token_types(types + [TokenType.UNUSED] * spare)
    writer.add_token_merges(read("ggml.merges"))
    writer.add_bos_token_id(read("ggml.bos_token_id"))
    writer.add_eos_token_id(read("ggml.eos_token_id"))
    writer.add_unk_token_id(read("ggml.unknown_token_id"))
    writer.add_pad_token_id(read("ggml.padding_token_id"))
    writer.add_add_bos_token(read("ggml.add_bos_token"))
    writer.add_add_space_prefix(read("ggml.add_space_prefix"))
    writer.add_chat_template(read("chat_template"))


def tensors_of(shape: Shape) -> Iterator[tuple[str, int, int, Type]]:
    """Name, rows (0: a vector of ones), columns, type."""
    usual = Type.Q4_K if shape.is_mixed else Type.Q4_0
    q_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "token_embd.weight", shape.vocab_size, shape.width, Type.Q6_K if shape.is_tied else usual
    for layer in range(shape.layers):
        finer = Type.Q6_K if shape.is_mixed and takes_more_bits(layer, shape.layers) else usual
        block = f"blk.{layer}."
        yield f"{block}attn_norm.weight", 0, shape.width, Type.F32
        yield f"{block}attn_q.weight", q_width, shape.width, usual
        yield f"{block}attn_k.weight", kv_width, shape.width, usual
        yield f"{block}attn_v.weight", kv_width, shape.width, finer
        yield f"{block}attn_output.weight", shape.width, q_width, usual
        yield f"{block}ffn_norm.weight", 0, shape.width, Type.F32
        yield f"{block}ffn_gate.weight", shape.feed, shape.width, usual
        yield f"{block}ffn_up.weight", shape.feed, shape.width, usual
        yield f"{block}ffn_down.weight", shape.width, shape.feed, finer
    yield "output_norm.weight", 0, shape.width, Type.F32
    if not shape.is_tied:
        yield "output.weight", shape.vocab_size, shape.width, Type.Q6_K


def takes_more_bits(layer: int, layers: int) -> bool:
    """llama.cpp's rule for values and down projections of Q4_K_M: the first and last eighth, every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def block_source() -> Callable[[int, int, Type], npt.NDArray[np.uint8]]:
    """Draws a matrix as rows of bytes; the pool of a type is quantised when it is first asked for."""
    rng = np.random.default_rng(0)
    pools: dict[Type, npt.NDArray[np.uint8]] = {}

    def draw(rows: int, cols: int, kind: Type) -> npt.NDArray[np.uint8]:
        block_values, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if kind not in pools:
            pools[kind] = quantised(rng.standard_normal((POOL_BLOCKS, block_values), np.float32) * DEVIATION, kind)
        chosen = rng.integers(POOL_BLOCKS, size=rows * cols // block_values, dtype=np.uint16)
        return pools[kind][chosen].reshape(rows, cols // block_values * block_bytes)

    return draw


def quantised(values: npt.NDArray[np.float32], kind: Type) -> npt.NDArray[np.uint8]:
    """Rows of one block each, as llama.cpp quantises them."""
    values = np.ascontiguousarray(values, np.float32)
    blocks = np.empty((len(values), gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
    quantise = libggml.ggml_quantize_chunk
    quantise.restype = ctypes.c_size_t
    quantise.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    written = quantise(kind, values.ctypes.data, blocks.ctypes.data, 0, *values.shape, None)
    assert written == blocks.nbytes, (written, blocks.nbytes)
    return blocks


if __name__ == "__main__":
    main()
