"""Every GGUF recipe from file to program: what the reader lets through, the families judge."""

import logging
from pathlib import Path

import pytest

from tests.cases.make_malformed import GGUF_RECIPES, T_U32, build_gguf, with_keys
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.program.program import Program

# Recipe -> what the message says, for files that are well-formed but no model.
REFUSED_BY_FAMILY = {
    "g25_type_wrong": "llama.block_count",
    "g27_bc_zero": "llama.block_count",
    "g28_bc_huge": "llama.block_count",
    "g29_heads_zero": "llama.attention.head_count",
    "g30_heads_nodiv": "llama.attention.head_count",
    "g31_kvheads_gt": "llama.attention.head_count_kv",
    "g32_ctx_zero": "llama.context_length",
    "g33_rope_odd": "llama.rope.dimension_count",
    "g34_eps_nan": "llama.attention.layer_norm_rms_epsilon",
    "g58_dim_swap": "token_embd.weight",
    "g59_dtype_unknown": "blk.0.attn_q.weight.*number 200",
    "g60_dtype_removed": "blk.0.attn_q.weight.*number 4",
    "g68_missing_tensor": "blk.0.attn_k.weight",
}
LOADED = [
    "g08_no_end_pad",
    "g09_trailing",
    "g18_tcount_minus1",  # as if tied
    "g26_type_wide",
    "g38_align_i32",
    "g43_types_missing",
    "g44_tok_dup",
    "g45_tok_empty",
    "g46_tok_badutf8",
    "g49_byte_tok_miss",
    "g51_eos_neg",
    "g67_name_long",
    "g69_extra_tensor",
    "g70_no_output",
    "g71_w_nan",
    "g72_w_inf",
    "g76_concat",
]


def load(folder: Path, name: str) -> Program:
    path = folder / f"{name}.gguf"
    path.write_bytes(GGUF_RECIPES[name](*build_gguf()))
    return build_program(open_model(path))


@pytest.mark.parametrize("name", sorted(GGUF_RECIPES.keys() - LOADED))
def test_malformed_file_never_becomes_a_program(tmp_path: Path, name: str) -> None:
    message = REFUSED_BY_FAMILY.get(name, r"\.gguf: ")
    with pytest.raises((ModelFileError, UnsupportedModelError), match=message) as caught:
        load(tmp_path, name)
    assert f"{name}.gguf" in str(caught.value)


@pytest.mark.parametrize("name", LOADED)
def test_fine_file_becomes_a_program(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, name).vocab_size == 264


def test_extra_tensor_gives_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        load(tmp_path, "g69_extra_tensor")
    assert ["foo.bar" in message for message in caplog.messages] == [True]


def test_second_block_without_tensors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.gguf"
    path.write_bytes(with_keys({"llama.block_count": (T_U32, 2)}))
    with pytest.raises(ModelFileError, match=r"llama.block_count' is 2: it must be 1"):
        build_program(open_model(path))


def test_more_blocks_than_tensors_is_refused_and_a_good_file_loads_next(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="block_count"):
        load(tmp_path, "g28_bc_huge")
    assert load(tmp_path, "g08_no_end_pad").kv_groups
