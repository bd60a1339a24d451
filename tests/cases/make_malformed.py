"""Tiny well-formed GGUF and safetensors files, and named byte-level mutations of them.

Standard library only, so that a recipe stays readable without the package it tests. A recipe maps the
pristine bytes and a map of interesting offsets to new bytes. `python make_malformed.py FOLDER` writes all.
"""

import json
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

T_U8, T_I8, T_U16, T_I16, T_U32, T_I32, T_F32, T_BOOL, T_STR, T_ARR, T_U64, T_I64, T_F64 = range(13)
ALIGNMENT = 32
_FORMATS = {T_U8: "B", T_I8: "b", T_U16: "H", T_I16: "h", T_U32: "I", T_I32: "i", T_F32: "f"} | {
    T_BOOL: "?",
    T_U64: "Q",
    T_I64: "q",
    T_F64: "d",
}

KeyValue = tuple[str | bytes, int, Any]  # key, value type, value; an array's value is (element type, list)
Tensor = tuple[str, tuple[int, ...], int, bytes]  # name, dimensions innermost first, type, data
Offsets = dict[str, int]
GgufRecipe = Callable[[bytes, Offsets], bytes]
SafetensorsRecipe = Callable[[bytes], bytes]


# ---- GGUF: the base file


def vocab() -> list[tuple[str, float, int]]:
    """264 tokens of text, score and type: three specials, 256 bytes, five pieces."""
    tokens = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    tokens += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    return [*tokens, ("\u2581", -1.0, 1), ("a", -2.0, 1), ("b", -3.0, 1), ("\u2581ab", -4.0, 1), ("ab", -5.0, 1)]


def key_values(*, width: int = 16, ffn_width: int = 24, num_heads: int = 2) -> list[KeyValue]:
    tokens = vocab()
    return [
        ("general.architecture", T_STR, "llama"),
        ("general.alignment", T_U32, ALIGNMENT),
        ("llama.block_count", T_U32, 1),
        ("llama.context_length", T_U32, 128),
        ("llama.embedding_length", T_U32, width),
        ("llama.feed_forward_length", T_U32, ffn_width),
        ("llama.attention.head_count", T_U32, num_heads),
        ("llama.attention.head_count_kv", T_U32, num_heads),
        ("llama.rope.dimension_count", T_U32, width // num_heads),
        ("llama.attention.layer_norm_rms_epsilon", T_F32, 1e-5),
        ("tokenizer.ggml.model", T_STR, "llama"),
        ("tokenizer.ggml.tokens", T_ARR, (T_STR, [token[0] for token in tokens])),
        ("tokenizer.ggml.scores", T_ARR, (T_F32, [token[1] for token in tokens])),
        ("tokenizer.ggml.token_type", T_ARR, (T_I32, [token[2] for token in tokens])),
        ("tokenizer.ggml.bos_token_id", T_U32, 1),
        ("tokenizer.ggml.eos_token_id", T_U32, 2),
        ("tokenizer.ggml.unknown_token_id", T_U32, 0),
    ]


def tensors(*, width: int = 16, ffn_width: int = 24) -> list[Tensor]:
    vocab_size = len(vocab())
    shapes = {
        "token_embd.weight": (width, vocab_size),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.attn_q.weight": (width, width),
        "blk.0.attn_k.weight": (width, width),
        "blk.0.attn_v.weight": (width, width),
        "blk.0.attn_output.weight": (width, width),
        "blk.0.ffn_norm.weight": (width,),
        "blk.0.ffn_gate.weight": (width, ffn_width),
        "blk.0.ffn_up.weight": (width, ffn_width),
        "blk.0.ffn_down.weight": (ffn_width, width),
        "output_norm.weight": (width,),
        "output.weight": (width, vocab_size),
    }
    made: list[Tensor] = []
    for index, (name, shape) in enumerate(shapes.items()):
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = [1.0] * count if "norm" in name else [((i * 37 + index * 11) % 101 - 50) / 500 for i in range(count)]
        made.append((name, shape, 0, struct.pack(f"<{count}f", *values)))
    return made


def encode_string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def encode_value(kind: int, value: Any) -> bytes:
    if kind == T_STR:
        return encode_string(value)
    if kind == T_ARR:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(encode_value(element, item) for item in items)
    return struct.pack("<" + _FORMATS[kind], value)


def build_gguf(
    keys: Sequence[KeyValue] | None = None, weights: Sequence[Tensor] | None = None, *, pad_end: bool = True
) -> tuple[bytes, Offsets]:
    """The file, and where its parts start: kv:, kvtype:, kvval: KEY; ti:, nd:, dim:, type:, off:, td: TENSOR; data."""
    keys = key_values() if keys is None else keys
    weights = tensors() if weights is None else weights
    at: Offsets = {}
    file = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(keys)))
    for key, kind, value in keys:
        name = key if isinstance(key, str) else repr(key)
        at["kv:" + name] = len(file)
        file += encode_string(key)
        at["kvtype:" + name] = len(file)
        file += struct.pack("<I", kind)
        at["kvval:" + name] = len(file)
        file += encode_value(kind, value)
    offset = 0
    for name, shape, kind, data in weights:
        at["ti:" + name] = len(file)
        file += encode_string(name)
        at["nd:" + name] = len(file)
        file += struct.pack("<I", len(shape))
        at["dim:" + name] = len(file)
        file += struct.pack(f"<{len(shape)}Q", *shape)
        at["type:" + name] = len(file)
        file += struct.pack("<I", kind)
        at["off:" + name] = len(file)
        file += struct.pack("<Q", offset)
        offset += -(-len(data) // ALIGNMENT) * ALIGNMENT
    file += b"\0" * (-len(file) % ALIGNMENT)
    at["data"] = len(file)
    for index, (name, _, _, data) in enumerate(weights):
        at["td:" + name] = len(file)
        file += data
        if pad_end or index + 1 < len(weights):
            file += b"\0" * (-len(file) % ALIGNMENT)
    return bytes(file), at


# ---- GGUF: tools of the recipes


def put(file: bytes, at: int, raw: bytes) -> bytes:
    return file[:at] + raw + file[at + len(raw) :]


def u32(value: int) -> bytes:
    return struct.pack("<I", value & 0xFFFFFFFF)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value & (2**64 - 1))


def with_keys(changes: Mapping[str, tuple[int, Any] | None]) -> bytes:
    """Rebuild with changed, removed (None) or added key-values."""
    kept = [(key, *(changes.get(str(key)) or (kind, value))) for key, kind, value in key_values()]
    kept = [entry for entry in kept if not (entry[0] in changes and changes[str(entry[0])] is None)]
    present = {key for key, _, _ in key_values()}
    kept += [(key, *change) for key, change in changes.items() if change is not None and key not in present]
    return build_gguf(kept)[0]


def with_key(key: str, kind: int, value: Any) -> GgufRecipe:
    return lambda file, at: with_keys({key: (kind, value)})


def without_key(key: str) -> GgufRecipe:
    return lambda file, at: with_keys({key: None})


def without_tensor(name: str) -> GgufRecipe:
    return lambda file, at: build_gguf(None, [tensor for tensor in tensors() if tensor[0] != name])[0]


def with_tensor(name: str) -> GgufRecipe:
    return lambda file, at: build_gguf(None, [*tensors(), (name, (4,), 0, b"\0" * 16)])[0]


def with_token(token_id: int, text: str | bytes) -> GgufRecipe:
    texts: list[str | bytes] = [token[0] for token in vocab()]
    texts[token_id] = text
    return with_key(_TOKENS, T_ARR, (T_STR, texts))


def overwrite(mark: str, raw: bytes, *, plus: int = 0) -> GgufRecipe:
    return lambda file, at: put(file, at[mark] + plus, raw)


def write_at(position: int, raw: bytes) -> GgufRecipe:
    return lambda file, at: put(file, position, raw)


def swap_byte_order(file: bytes, at: Offsets) -> bytes:
    return file[:4] + file[4:8][::-1] + file[8:16][::-1] + file[16:24][::-1] + file[24:]


def name_twice(file: bytes, at: Offsets) -> bytes:
    weights = tensors()
    weights[3] = (weights[2][0], *weights[3][1:])
    return build_gguf(None, weights)[0]


_TOKENS, _SCORES, _TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"
_EMBED, _Q = "token_embd.weight", "blk.0.attn_q.weight"
_HEADS, _KV_HEADS = "llama.attention.head_count", "llama.attention.head_count_kv"
_EPSILON = "llama.attention.layer_norm_rms_epsilon"

GGUF_RECIPES: dict[str, GgufRecipe] = {
    "g01_empty": lambda file, at: b"",
    "g02_magic_only": lambda file, at: file[:4],
    "g03_cut_header": lambda file, at: file[:20],
    "g04_cut_in_kv": lambda file, at: file[: at["kvval:" + _TOKENS] + 900],
    "g05_cut_in_tinfo": lambda file, at: file[: at["type:" + _Q] - 3],
    "g06_cut_data": lambda file, at: file[:-64],
    "g07_cut_1": lambda file, at: build_gguf(pad_end=False)[0][:-1],
    "g08_no_end_pad": lambda file, at: build_gguf(pad_end=False)[0],
    "g09_trailing": lambda file, at: file + b"\0" * 17,
    "g10_bad_magic": write_at(0, b"GGML"),
    "g11_version0": write_at(4, u32(0)),
    "g12_version99": write_at(4, u32(99)),
    "g13_big_endian": swap_byte_order,
    "g14_tcount_huge": write_at(8, u64(2**61)),
    "g15_tcount_neg": write_at(8, u64(-1)),
    "g16_kvcount_huge": write_at(16, u64(2**60)),
    "g17_kvcount_plus1": write_at(16, u64(len(key_values()) + 1)),
    "g18_tcount_minus1": write_at(8, u64(len(tensors()) - 1)),
    "g19_keylen_huge": overwrite("kv:general.architecture", u64(2**63)),
    "g20_key_empty": with_key("", T_U32, 1),
    "g21_key_nul": lambda file, at: build_gguf([(b"gen\x00\xff\xfe.x", T_U32, 1), *key_values()])[0],
    "g23_strlen_huge": overwrite("kvval:general.architecture", u64(2**40)),
    "g24_type_unknown": overwrite("kvtype:llama.block_count", u32(255)),
    "g25_type_wrong": with_key("llama.block_count", T_STR, "1"),
    "g26_type_wide": with_key("llama.block_count", T_U64, 1),
    "g27_bc_zero": with_key("llama.block_count", T_U32, 0),
    "g28_bc_huge": with_key("llama.block_count", T_U32, 2**31),
    "g29_heads_zero": with_key(_HEADS, T_U32, 0),
    "g30_heads_nodiv": with_key(_HEADS, T_U32, 3),
    "g31_kvheads_gt": with_key(_KV_HEADS, T_U32, 4),
    "g32_ctx_zero": with_key("llama.context_length", T_U32, 0),
    "g33_rope_odd": with_key("llama.rope.dimension_count", T_U32, 7),
    "g34_eps_nan": with_key(_EPSILON, T_F32, float("nan")),
    "g35_align0": with_key("general.alignment", T_U32, 0),
    "g36_align_odd": with_key("general.alignment", T_U32, 33),
    "g37_align_big": with_key("general.alignment", T_U32, 2**31),
    "g38_align_i32": with_key("general.alignment", T_I32, 32),
    "g39_arr_cnt_huge": overwrite("kvval:" + _TOKENS, u64(2**58), plus=4),
    "g41_scores_u8": with_key(_SCORES, T_ARR, (T_U8, [0] * len(vocab()))),
    "g42_scores_short": with_key(_SCORES, T_ARR, (T_F32, [0.0] * (len(vocab()) - 1))),
    "g43_types_missing": without_key(_TYPES),
    "g44_tok_dup": with_token(262, "ab"),
    "g45_tok_empty": with_token(260, ""),
    "g46_tok_badutf8": with_token(261, b"\xe6\x97"),
    "g49_byte_tok_miss": with_token(3 + 10, "zz"),
    "g50_bos_range": with_key("tokenizer.ggml.bos_token_id", T_U32, 100000),
    "g51_eos_neg": with_key("tokenizer.ggml.eos_token_id", T_I32, -1),
    "g52_ndims0": overwrite("nd:" + _EMBED, u32(0)),
    "g53_ndims_huge": overwrite("nd:" + _EMBED, u32(2**31)),
    "g54_dim_zero": overwrite("dim:" + _EMBED, u64(0), plus=8),
    "g55_dim_neg": overwrite("dim:" + _EMBED, u64(-1)),
    "g56_dim_wrap": overwrite("dim:" + _EMBED, u64(2**58), plus=8),
    "g58_dim_swap": overwrite("dim:" + _EMBED, struct.pack("<QQ", 264, 16)),
    "g59_dtype_unknown": overwrite("type:" + _Q, u32(200)),
    "g60_dtype_removed": overwrite("type:" + _Q, u32(4)),
    "g61_dtype_block": overwrite("type:" + _Q, u32(12)),
    "g62_off_past_end": lambda file, at: put(file, at["off:" + _Q], u64(len(file))),
    "g64_off_unaligned": overwrite("off:" + _Q, u64(3)),
    "g65_off_overlap": overwrite("off:" + _Q, u64(0)),
    "g66_name_dup": name_twice,
    "g67_name_long": with_tensor("x" * 10000),
    "g68_missing_tensor": without_tensor("blk.0.attn_k.weight"),
    "g69_extra_tensor": with_tensor("foo.bar"),
    "g70_no_output": without_tensor("output.weight"),
    "g71_w_nan": overwrite("td:" + _Q, struct.pack("<f", float("nan"))),
    "g72_w_inf": overwrite("td:" + _Q, struct.pack("<f", float("inf"))),
    "g73_arch_unknown": with_key("general.architecture", T_STR, "frobnicator"),
    "g74_no_arch": without_key("general.architecture"),
    "g75_split_keys": lambda file, at: with_keys(
        {"split.no": (T_U16, 1), "split.count": (T_U16, 3), "split.tensors.count": (T_I32, 36)}
    ),
    "g76_concat": lambda file, at: file + file,
}


# ---- safetensors

EMBED, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def safetensors_tensors() -> list[tuple[str, str, list[int], bytes]]:
    """Name, dtype, shape and data of the three tensors of the base file."""

    def values(count: int, seed: int) -> bytes:
        return struct.pack(f"<{count}f", *[((i * 29 + seed * 7) % 97 - 48) / 400 for i in range(count)])

    return [
        (EMBED, "F32", [264, 16], values(264 * 16, 1)),
        (NORM, "F32", [16], values(16, 2)),
        (HEAD, "F32", [264, 16], values(264 * 16, 3)),
    ]


def safetensors_header() -> dict[str, Any]:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, dtype, shape, data in safetensors_tensors():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    return header


def pack_safetensors(header: dict[str, Any] | bytes, data: bytes | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if data is None:
        data = b"".join(tensor[3] for tensor in safetensors_tensors())
    return struct.pack("<Q", len(text)) + text + data


def build_safetensors() -> bytes:
    return pack_safetensors(safetensors_header())


def edit_header(change: Callable[[dict[str, Any]], object]) -> SafetensorsRecipe:
    def recipe(file: bytes) -> bytes:
        header = safetensors_header()
        change(header)
        return pack_safetensors(header)

    return recipe


def set_field(name: str, field: str, value: Any) -> SafetensorsRecipe:
    return edit_header(lambda header: header[name].__setitem__(field, value))


def shift_header_length(change: int) -> SafetensorsRecipe:
    return lambda file: struct.pack("<Q", struct.unpack("<Q", file[:8])[0] + change) + file[8:]


def norm_twice(file: bytes) -> bytes:
    header = safetensors_header()
    again = json.dumps(header[NORM])
    return pack_safetensors(json.dumps(header).encode()[:-1] + f',"{NORM}":{again}}}'.encode())


def without_head(file: bytes) -> bytes:
    header = {name: entry for name, entry in safetensors_header().items() if name != HEAD}
    return pack_safetensors(header, b"".join(tensor[3] for tensor in safetensors_tensors()[:2]))


_EMBED_BYTES = 264 * 16 * 4
_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123\n"

SAFETENSORS_RECIPES: dict[str, SafetensorsRecipe] = {
    "s01_empty": lambda file: b"",
    "s02_7bytes": lambda file: file[:7],
    "s03_hlen_zero": lambda file: struct.pack("<Q", 0) + file[8:],
    "s04_hlen_gt_file": lambda file: struct.pack("<Q", len(file)) + file[8:],
    "s05_hlen_max": lambda file: struct.pack("<Q", 2**64 - 1) + file[8:],
    "s06_hlen_minus1": shift_header_length(-12),
    "s07_cut_data": lambda file: file[:-1],
    "s08_trailing": lambda file: file + b"\0" * 16,
    "s09_not_json": lambda file: struct.pack("<Q", 8) + b"\xff" * 8,
    "s10_json_array": lambda file: pack_safetensors(b"[]      ", b""),
    "s11_bom": lambda file: pack_safetensors(b"\xef\xbb\xbf" + json.dumps(safetensors_header()).encode()),
    "s12_dup_key": norm_twice,
    "s13_begin_gt_end": set_field(NORM, "data_offsets", [64, 0]),
    "s14_neg_offset": set_field(NORM, "data_offsets", [-64, 0]),
    "s15_off_huge": set_field(NORM, "data_offsets", [0, 2**63]),
    "s16_off_float": set_field(NORM, "data_offsets", [0.0, 64.0]),
    "s17_hole": set_field(NORM, "data_offsets", [_EMBED_BYTES + 64, _EMBED_BYTES + 128]),
    "s18_overlap": set_field(NORM, "data_offsets", [0, 64]),
    "s19_shape_size": set_field(NORM, "shape", [17]),
    "s20_shape_wrap": set_field(NORM, "shape", [2**33, 2**31]),
    "s22_shape_neg": set_field(NORM, "shape", [-16]),
    "s23_shape_scalar": lambda file: pack_safetensors(
        {"x": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}, b"\0" * 4
    ),
    "s24_dtype_unknown": set_field(NORM, "dtype", "F33"),
    "s25_dtype_case": set_field(NORM, "dtype", "f32"),
    "s26_dtype_f64": edit_header(lambda header: header[NORM].update(dtype="F64", shape=[8])),
    "s27_meta_nonstr": set_field("__metadata__", "format", 1),
    "s28_meta_only": lambda file: pack_safetensors({"__metadata__": {"format": "pt"}}, b""),
    "s29_extra_field": set_field(NORM, "sha", "x"),
    "s30_missing_field": edit_header(lambda header: header[NORM].pop("dtype")),
    "s31_name_escape": lambda file: pack_safetensors(
        json.dumps(safetensors_header()).encode().replace(b"model.norm", b"model.\\u006eorm")
    ),
    "s32_name_path": edit_header(lambda header: header.__setitem__("../../etc/x", header.pop(NORM))),
    "s34_tied_conflict": without_head,
    "s39_lfs_pointer": lambda file: _POINTER,
    "s40_html": lambda file: b"<!DOCTYPE html><html><body>404</body></html>",
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file, at = build_gguf()
    (folder / "base.gguf").write_bytes(file)
    for name, recipe in GGUF_RECIPES.items():
        (folder / f"{name}.gguf").write_bytes(recipe(file, at))
    (folder / "base.safetensors").write_bytes(build_safetensors())
    for name, change in SAFETENSORS_RECIPES.items():
        (folder / f"{name}.safetensors").write_bytes(change(build_safetensors()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
