"""Odd but sound files answer like the plain one, bit for bit; what cannot be right fails alone, and the next works.

Through the whole door: loader, tokenizer, kernels, engine. Letters and numbers are those of the cases in
tests/known_bugs.md.
"""

import logging
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.cases.make_malformed import GGUF_RECIPES, build_gguf, put, tensors
from tests.model.hf_builders import LLAMA, llama_weights, make_folder
from tests.model.test_gguf_split import write_parts
from tests.program.step_builders import make_step
from twostroke.cli import app
from twostroke.config import resolve
from twostroke.errors import ModelFileError, RequestError, TwostrokeError, UnsupportedModelError
from twostroke.llm import LLM
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.params import SamplingParams
from twostroke.program.native import NativeReader
from twostroke.program.quant import FloatArray
from twostroke.program.reader import KVSpec

BASE, OFFSETS = build_gguf()
IDS = [1, 260, 261, 262, 263, 100, 13, 40, 259]
ONE = SamplingParams(max_tokens=1, ignore_eos=True)
A, B = 260, 261  # the tokens "a" and "b"


def opened(folder: Path, data: bytes) -> LLM:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return LLM(path, kv="f32", threads=1, config=resolve({"TWOSTROKE_HOME": str(folder)}))


def logits(folder: Path, data: bytes) -> FloatArray:
    with opened(folder, data) as llm:
        return llm.logits(IDS)


def recipe(name: str) -> bytes:
    return GGUF_RECIPES[name](BASE, OFFSETS)


def same_bits(a: FloatArray, b: FloatArray) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize(
    "name",
    [
        "g08_no_end_pad",
        "g09_trailing",
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
        "g76_concat",
    ],
)
def test_an_odd_file_has_the_logits_of_the_plain_one(tmp_path: Path, name: str) -> None:
    assert same_bits(logits(tmp_path, recipe(name)), logits(tmp_path, BASE))


@pytest.mark.parametrize("num_bytes", [1, 17, 64])
def test_bytes_after_the_last_tensor_change_nothing(tmp_path: Path, num_bytes: int) -> None:
    """L8"""
    assert same_bits(logits(tmp_path, BASE + b"GGUF"[:num_bytes].ljust(num_bytes, b"\1")), logits(tmp_path, BASE))


def test_without_a_head_the_embedding_is_the_head(tmp_path: Path) -> None:
    """g70"""
    weights = tensors()
    weights[-1] = ("output.weight", *weights[0][1:])
    tied = logits(tmp_path, build_gguf(None, weights)[0])
    assert same_bits(logits(tmp_path, recipe("g70_no_output")), tied)
    assert not same_bits(tied, logits(tmp_path, BASE))


@pytest.mark.parametrize("name", ["g18_tcount_minus1", "g76_concat"])
def test_more_than_filler_after_the_tensors_is_warned_about(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="twostroke"), opened(tmp_path, recipe(name)) as llm:
        assert len(llm.generate(IDS, ONE)[0].token_ids) == 1
    assert ["bytes after the last tensor are ignored" in message for message in caplog.messages] == [True]


def test_a_split_model_has_the_logits_of_the_whole(tmp_path: Path) -> None:
    """L7"""
    config = resolve({"TWOSTROKE_HOME": str(tmp_path)})
    with LLM(write_parts(tmp_path)[0], kv="f32", threads=1, config=config) as llm:
        assert same_bits(llm.logits(IDS), logits(tmp_path, BASE))


# ---- vocabularies


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("g44_tok_dup", lambda llm: llm.tokenizer.encode("aab", add_bos=False)[-1] == 262),  # the lowest of two "ab"
        ("g45_tok_empty", lambda llm: llm.tokenizer.decode([A]) == "" and A not in llm.tokenizer.encode("a aa")),
        ("g46_tok_badutf8", lambda llm: llm.tokenizer.decode([B]) == "\ufffd"),
        ("g49_byte_tok_miss", lambda llm: llm.tokenizer.encode("\n")[-1] == 0),
        ("g43_types_missing", lambda llm: llm.tokenizer.control_ids >= {1, 2}),
        ("g51_eos_neg", lambda llm: llm.tokenizer.eos_id is None),
    ],
)
def test_odd_vocabularies_have_their_stated_rule(tmp_path: Path, name: str, check: Callable[[LLM], bool]) -> None:
    """T6 is g49."""
    with opened(tmp_path, recipe(name)) as llm:
        assert check(llm)
        text = "b ba ab b"
        if name != "g46_tok_badutf8":
            assert llm.tokenizer.decode(llm.tokenizer.encode(text)) == text
        assert len(llm.generate(text, ONE)[0].token_ids) == 1


# ---- weights that are no numbers


@pytest.mark.parametrize("name", ["g71_w_nan", "g72_w_inf"])
def test_a_bad_weight_fails_the_request_and_the_model_stays_able(tmp_path: Path, name: str) -> None:
    with opened(tmp_path, recipe(name)) as llm:
        for _ in range(2):
            with pytest.raises(RequestError, match=r"r\d+: .*(nan|NaN|finite)"):
                llm.generate(IDS, ONE)
        assert llm.snapshot().num_running == 0
        assert llm.snapshot().blocks_held == 0
    assert np.isfinite(logits(tmp_path, BASE)).all()


@pytest.mark.parametrize("name", ["g71_w_nan", "g72_w_inf"])
def test_show_check_names_the_tensor_with_a_bad_weight(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(recipe(name))
    assert app.main(["show", str(path)]) == 0
    assert app.main(["show", "--check", str(path)]) == 2
    assert "NaN or infinite in blk.0.attn_q.weight" in capsys.readouterr().err
    path.write_bytes(BASE)
    assert app.main(["show", "--check", str(path)]) == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_row_of_the_embedding_fails_only_who_uses_it(tmp_path: Path, value: float) -> None:
    """g71, g72: the neighbour in the batch and whoever gets the blocks next answer as if nothing had been."""
    with opened(tmp_path, BASE) as llm:
        wanted = llm.generate([B] * 20, ONE)[0].token_ids
    bad = put(BASE, OFFSETS["td:token_embd.weight"] + A * 16 * 4, struct.pack("<f", value))
    with opened(tmp_path, bad) as llm:
        handles = [llm.submit(prompt, ONE) for prompt in ([B] * 20, [A] * 20, [B] * 20)]
        results = [handle.result() for handle in handles]
        assert [result.error is None for result in results] == [True, False, True]
        assert results[0].token_ids == results[2].token_ids == wanted
        assert llm.generate([B] * 20, ONE)[0].token_ids == wanted


# ---- refusals


REFUSED_BY_NAME = {
    "g25_type_wrong": "llama.block_count",
    "g27_bc_zero": "llama.block_count",
    "g28_bc_huge": "llama.block_count",
    "g55_dim_neg": "token_embd.weight",
    "g56_dim_wrap": "token_embd.weight",
    "g54_dim_zero": "token_embd.weight",
    "g41_scores_u8": "tokenizer.ggml.scores",
    "g13_big_endian": "big-endian",
}


@pytest.mark.parametrize("name", REFUSED_BY_NAME)
def test_a_refused_model_leaves_the_program_able_to_load_a_good_one(tmp_path: Path, name: str) -> None:
    """L1, L3, L4, L5, L6"""
    with pytest.raises(TwostrokeError, match=REFUSED_BY_NAME[name]):
        opened(tmp_path, recipe(name))
    with opened(tmp_path, BASE) as llm:
        assert len(llm.generate(IDS, ONE)[0].token_ids) == 1


@pytest.mark.parametrize("name", sorted(GGUF_RECIPES))
def test_show_ends_every_recipe_with_its_list_or_with_one_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """L1, L3, L15"""
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(recipe(name))
    code = app.main(["show", str(path)])
    said = capsys.readouterr()
    if code == 0:
        assert "logits" in said.out
    else:
        assert (code, said.out, said.err.count("\n")) == (2, "", 1)
        assert path.name in said.err


def test_no_recipe_costs_memory(tmp_path: Path) -> None:
    """L16, through the families too: block counts, head counts and lengths beyond all bounds."""
    tracemalloc.start()
    try:
        for name in GGUF_RECIPES:
            path = tmp_path / f"{name}.gguf"
            path.write_bytes(recipe(name))
            with suppress(TwostrokeError):
                build_program(open_model(path))
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


# ---- folders


def folder_logits(folder: Path) -> FloatArray:
    source = open_model(folder)
    program = build_program(source)
    reader = NativeReader(program, source.tensors, kv=KVSpec("f32", 16, (1,)), threads=1, max_tokens=8, max_rows=1)
    return reader.run(make_step(program, [([3, 7, 1, 5], 0, [0])])).copy()


def test_a_tied_model_that_ships_another_head_computes_with_the_embedding(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """L10, L11"""
    weights = llama_weights()
    config = LLAMA | {"tie_word_embeddings": True}
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        other = folder_logits(make_folder(tmp_path / "other", config=config, weights=weights))
    assert len(caplog.records) == 1
    equal = weights | {"lm_head.weight": weights["model.embed_tokens.weight"]}
    untied = folder_logits(make_folder(tmp_path / "untied", weights=equal))
    del weights["lm_head.weight"]
    without = folder_logits(make_folder(tmp_path / "without", config=config, weights=weights))
    assert same_bits(other, without)
    assert same_bits(other, untied)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_show_prints_the_context_a_scaling_stretches_to(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """L12"""
    scaling = {key: "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    folder = make_folder(tmp_path, config=LLAMA | {"rope_scaling": scaling})
    assert app.main(["show", str(folder)]) == 0
    assert "context 512\n" in capsys.readouterr().out


def test_kv_memory_follows_an_explicit_head_dim(tmp_path: Path) -> None:
    """L13: width 64, 4 heads of 24 over 2 kv heads; 16 would be width / heads."""
    config = LLAMA | {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24}
    weights = llama_weights(width=64, q_width=96, kv_width=48)
    source = open_model(make_folder(tmp_path, config=config, weights=weights))
    program = build_program(source)
    kv = KVSpec("f32", 16, (2,))
    reader = NativeReader(program, source.tensors, kv=kv, threads=1, max_tokens=8, max_rows=1)
    assert reader.kv_bytes_per_block == (2 * 2 * 24 * 16 * 4,)  # k and v, kv heads, head_dim, slots, bytes
    assert reader.run(make_step(program, [([1, 2, 3], 0, [1])])).shape == (3, 11)


def test_a_scalar_where_a_norm_belongs_is_refused_with_both_shapes(tmp_path: Path) -> None:
    """s23"""
    weights = llama_weights() | {"model.norm.weight": np.ones((), np.float32)}
    source = open_model(make_folder(tmp_path, weights=weights))
    with pytest.raises(ModelFileError, match=r"output_norm.weight has shape \[\], the model needs \[16\]"):
        build_program(source)


def test_a_double_precision_norm_is_named_as_unsupported(tmp_path: Path) -> None:
    """s26"""
    weights = llama_weights() | {"model.norm.weight": np.ones(16, np.float32)}
    folder = make_folder(tmp_path, weights=weights)
    file = folder / "model.safetensors"
    data = file.read_bytes()
    start = data.index(b'"model.norm.weight": {"dtype": "F32", "shape": [16]')
    file.write_bytes(put(data, start, b'"model.norm.weight": {"dtype": "F64", "shape": [ 8]'))
    with pytest.raises(UnsupportedModelError, match=r"'output_norm.weight' has type F64, which is not supported"):
        build_program(open_model(folder))
