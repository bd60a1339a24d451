"""Whole models of every tensor type: kernels judged by the reference reader, and their own bits however they are run.

An activation that lies on the border of two roundings may fall either way when a sum differs in its last
place; one such fall moves a logit by parts in a thousand and, through attention, those of later tokens
too. So tokens that cannot see each other are judged by quartile, to the last places, and tokens in one
sequence by medians, against the error that rounding the activations costs anyway.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.builders_gguf import TYPE_IDS, write_gemma3, write_llama, write_model
from tests.cases.make_malformed import T_U32
from tests.program.step_builders import make_step
from twostroke import _native
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.model.source import ModelSource
from twostroke.program.fuse import unfused
from twostroke.program.native import NativeReader
from twostroke.program.program import Program
from twostroke.program.quant import TENSOR_TYPES, Arithmetic, FloatArray
from twostroke.program.reader import KVSpec, Precision, Reader
from twostroke.program.reference import ReferenceReader

ISAS = _native.usable_isas()
WRITERS: Mapping[str, Any] = {"llama": write_llama, "gemma3": write_gemma3}
NUM_PREFILL, NUM_DECODE = 40, 4  # past the windows of 24 and three blocks of 16
IDS = np.random.default_rng(1).integers(3, 264, NUM_PREFILL + NUM_DECODE).tolist()
BLOCKS = [2, 0, 3, 1]
LAST_PLACES = 3e-6  # of a logit vector's length; measured up to 8e-7
# What an exact evaluation of the stored weights is away from, by how activations are rounded: measured up to
# 0.02 (int8 per 32), 0.013 (bf16, with a bf16 cache) and 0.0024 (nothing but a bf16 cache).
FIDELITY = {Arithmetic.INT8: 0.03, Arithmetic.BF16: 0.02, Arithmetic.FP32: 0.004}
# Random bits make harder models of the types with many levels: the reference with rounded inputs is itself 0.023
# (Q5_K) and 0.035 (Q6_K) away.
HARD_FIDELITY = {"Q5_K": 0.04, "Q6_K": 0.045}
# Rounding K and V to 16 bits has borders too, whatever the arithmetic.
FLOOR: Mapping[Precision, float] = {"f32": 1e-5, "f16": 2e-4, "bf16": 1e-3, "int8": 4e-3}
Doubles = npt.NDArray[np.floating[Any]]


def fidelity(tensor_type: str) -> float:
    return HARD_FIDELITY.get(tensor_type, FIDELITY[TENSOR_TYPES[tensor_type].arithmetic])


def opened(architecture: str, tensor_type: str, folder: Path) -> ModelSource:
    path = folder / "model.gguf"
    WRITERS[architecture](path, tensor_type=tensor_type, head_type=tensor_type)
    return open_model(path)


def native(program: Program, source: ModelSource, kv: KVSpec, **options: Any) -> NativeReader:
    return NativeReader(program, source.tensors, kv=kv, **{"threads": 1, "max_tokens": 64, "max_rows": 64, **options})


def kv_of(program: Program, precision: Precision, *, block_size: int = 16, num_blocks: int = 4) -> KVSpec:
    return KVSpec(precision, block_size, (num_blocks,) * len(program.kv_groups))


def prefill_and_decode(program: Program, reader: Reader, *, blocks: list[int] = BLOCKS) -> FloatArray:
    parts = [reader.run(make_step(program, [(IDS[:NUM_PREFILL], 0, blocks)])).copy()]
    for pos in range(NUM_PREFILL, len(IDS)):
        parts.append(reader.run(make_step(program, [(IDS[pos : pos + 1], pos, blocks)])).copy())
    return np.concatenate(parts)


def distances(got: FloatArray, wanted: FloatArray) -> Doubles:
    """Per token: length of the difference over the length of what is wanted. A row of zeros must be zeros."""
    lengths = np.linalg.norm(wanted, axis=1)
    assert not got[lengths == 0].any()
    apart: Doubles = np.linalg.norm(got - wanted, axis=1) / np.where(lengths == 0, 1, lengths)
    return apart


@pytest.mark.parametrize("architecture", WRITERS)
@pytest.mark.parametrize("tensor_type", TYPE_IDS)
def test_tokens_alone_have_the_references_logits_to_the_last_places(
    architecture: str, tensor_type: str, tmp_path: Path
) -> None:
    """One block; sixty tokens that share nothing: three quarters meet no border."""
    keys = [("gemma3.attention.sliding_window", T_U32, 24)] if architecture == "gemma3" else []
    types: dict[str, Any] = {"tensor_type": tensor_type, "head_type": tensor_type}
    source = open_model(write_model(tmp_path / "one.gguf", architecture, layers=1, keys=keys, **types))
    program = build_program(source)
    kv = kv_of(program, "f32", num_blocks=60)
    step = make_step(program, [([token_id], 0, [block]) for block, token_id in enumerate(range(3, 63))])
    wanted = ReferenceReader(program, source.tensors, kv=kv, activations="a8").run(step)
    for isa in ISAS:
        apart = distances(native(program, source, kv, isa=isa).run(step), wanted)
        assert np.quantile(apart, 0.75) < LAST_PLACES, isa
        assert apart.max() < 2 * fidelity(tensor_type), isa


# The default precision for every type of one family, f32 for every type of the other, f16 for one of each arithmetic.
SEQUENCES: list[tuple[str, str, Precision]] = [
    *(("llama", name, "bf16") for name in TYPE_IDS),
    *(("gemma3", name, "f32") for name in TYPE_IDS),
    *(("llama", name, "f16") for name in ("F16", "Q4_1", "Q6_K")),
    *(("gemma3", name, "bf16") for name in ("F32", "Q4_0", "Q4_K")),
    *((architecture, name, "int8") for architecture in WRITERS for name in ("Q8_0", "Q4_1")),
]


@pytest.mark.parametrize(("architecture", "tensor_type", "precision"), SEQUENCES)
def test_prefill_and_decode_are_no_further_from_exact_than_their_rounding(
    architecture: str, tensor_type: str, precision: Precision, tmp_path: Path
) -> None:
    source = opened(architecture, tensor_type, tmp_path)
    program = build_program(source)
    kv = kv_of(program, precision)
    exact = prefill_and_decode(program, ReferenceReader(program, source.tensors, kv=kv, activations="f32"))
    twin = prefill_and_decode(program, ReferenceReader(program, source.tensors, kv=kv, activations="a8"))
    cost = distances(twin, exact)
    for isa in ISAS:
        got = prefill_and_decode(program, native(program, source, kv, isa=isa))
        for phase in (slice(0, NUM_PREFILL), slice(NUM_PREFILL, None)):
            expected = np.median(cost[phase])
            to_exact, to_twin = np.median(distances(got, exact)[phase]), np.median(distances(got, twin)[phase])
            assert to_exact < fidelity(tensor_type), (isa, phase)
            assert to_exact < 1.5 * expected + FLOOR[precision], (isa, phase)
            assert to_twin < 1.2 * expected + FLOOR[precision], (isa, phase)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tensor_type", TYPE_IDS)
def test_threads_blocks_and_fusion_change_no_bit_of_any_type(tensor_type: str, isa: str, tmp_path: Path) -> None:
    source = opened("llama", tensor_type, tmp_path)
    program = build_program(source)
    wanted = prefill_and_decode(program, native(program, source, kv_of(program, "bf16"), isa=isa))
    for options, block_size in (
        ({"threads": 2}, 16),
        ({"threads": 1}, 32),
        ({"threads": 2, "groups": unfused(program)}, 32),
    ):
        kv = kv_of(program, "bf16", block_size=block_size)
        got = prefill_and_decode(program, native(program, source, kv, isa=isa, **options))
        np.testing.assert_array_equal(got.view(np.uint32), wanted.view(np.uint32))
