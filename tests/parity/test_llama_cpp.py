"""Logits of small F32 GGUF files equal llama.cpp's: what the metadata of each family means is judged from outside.

The file goes through our whole door (loader, program, kernels, engine); llama.cpp reads the same bytes.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.builders_gguf import HEAD_DIM, HEADS, KV_HEADS, write_gemma3, write_model
from tests.cases.make_malformed import T_F32, T_STR, T_U32, KeyValue
from twostroke.config import resolve
from twostroke.llm import LLM

pytestmark = pytest.mark.oracle

ORIGINAL_CONTEXT = 32  # before scaling
NUM_TOKENS = 3 * ORIGINAL_CONTEXT  # past the original context, the windows and several blocks
# Absolute, on logits with a standard deviation above 0.5. llama.cpp looks the GELU of Gemma up by its argument in
# float16: with that rounding put into our reference, one block is within 3e-6 of it at the first position.
TOLERANCE = {"llama": 1e-4, "qwen2": 1e-4, "qwen3": 1e-4, "gemma3": 4e-3}
F32 = 0  # llama.cpp's number of the type


@dataclass(frozen=True)
class Case:
    """A family and what its file says beyond the sizes."""

    architecture: str
    keys: tuple[KeyValue, ...] = ()
    rope_divisors: tuple[float, ...] = ()
    heads: tuple[int, int] = (HEADS, KV_HEADS)
    told: dict[str, float] = field(default_factory=dict)  # what llama.cpp must be told, since it skips the keys


def scaled(architecture: str, kind: str, *, told: dict[str, float] | None = None, **numbers: float) -> Case:
    keys: list[KeyValue] = [(f"{architecture}.rope.scaling.type", T_STR, kind)]
    keys += [(f"{architecture}.rope.scaling.{name}", T_F32, value) for name, value in numbers.items()]
    keys += [(f"{architecture}.rope.scaling.original_context_length", T_U32, ORIGINAL_CONTEXT)]
    return Case(architecture, tuple(keys), told=told or {})


# The divisors of a Llama 3 file: short waves as they are, long ones divided by 8, a slope between.
DIVISORS = tuple(np.interp(np.arange(HEAD_DIM // 2), [0, 10, 20, 31], [1, 1, 8, 8]).tolist())
BETAS = {"yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0}
CASES = {
    "llama": Case("llama"),
    "llama_base": Case("llama", (("llama.rope.freq_base", T_F32, 500_000.0),)),
    "llama_divisors": Case("llama", rope_divisors=DIVISORS),
    "llama_linear": scaled("llama", "linear", factor=4.0),
    "llama_linear_old_key": Case("llama", (("llama.rope.scale_linear", T_F32, 4.0),)),
    "llama_yarn": scaled("llama", "yarn", factor=4.0),
    "llama_yarn_attention": scaled("llama", "yarn", factor=4.0, attn_factor=0.9),
    "llama_yarn_betas": scaled("llama", "yarn", factor=4.0, **BETAS, told=BETAS),
    "llama_yarn_magnitude": scaled("llama", "yarn", factor=4.0, yarn_attn_factor=1.1386294),  # the usual one
    "llama_more_heads": Case("llama", heads=(6, 3)),  # heads x head_dim is not the width
    "qwen2": Case("qwen2"),
    "qwen2_yarn": scaled("qwen2", "yarn", factor=4.0),
    "qwen3": Case("qwen3"),
    "qwen3_linear": scaled("qwen3", "linear", factor=4.0),
    "gemma3": Case("gemma3"),
    "gemma3_linear": scaled("gemma3", "linear", factor=8.0),
    "gemma3_softcap": Case("gemma3", (("gemma3.final_logit_softcapping", T_F32, 3.0),)),
    "gemma3_local_base": Case("gemma3", (("gemma3.rope.freq_base_swa", T_F32, 5000.0),)),
    "gemma3_pattern": Case("gemma3", (("gemma3.attention.sliding_window_pattern", T_U32, 3),)),
}


def write(case: Case, path: Path) -> Path:
    options: dict[str, Any] = {"tensor_type": "F32", "head_type": "F32", "heads": case.heads}
    if case.architecture == "gemma3":
        return write_gemma3(path, more_keys=case.keys, **options)
    return write_model(path, case.architecture, keys=case.keys, rope_divisors=case.rope_divisors, **options)


def llama_cpp_logits(path: Path, token_ids: list[int], *, told: dict[str, float]) -> npt.NDArray[np.float32]:
    llama_cpp = pytest.importorskip("llama_cpp")
    judge = llama_cpp.Llama(
        str(path),
        n_ctx=256,
        n_batch=256,
        n_threads=1,
        n_threads_batch=1,
        logits_all=True,
        type_k=F32,
        type_v=F32,
        verbose=False,
        **told,
    )
    judge.eval(token_ids)
    logits = np.array(judge.scores[: len(token_ids)], np.float32)
    judge.close()
    return logits


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = write(case, tmp_path / f"{name}.gguf")
    token_ids = np.random.default_rng(3).integers(3, 264, NUM_TOKENS).tolist()
    wanted = llama_cpp_logits(path, token_ids, told=case.told)
    with LLM(path, kv="f32", threads=1, config=resolve({"TWOSTROKE_HOME": str(tmp_path)})) as llm:
        got = llm.logits(token_ids)
    assert wanted.std() > 0.5
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE[case.architecture])
