"""Logits of every tiny model equal those of the transformers library, whichever reader walks the program."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders_models import ORIGINAL_CONTEXT, VOCAB_SIZE, TinyModel, save_tiny_model, tiny_models
from twostroke import _native
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.model.source import ModelSource
from twostroke.program.native import NativeReader
from twostroke.program.program import BoundStep, Program
from twostroke.program.quant import FloatArray
from twostroke.program.reader import KVSpec, Reader
from twostroke.program.reference import ReferenceReader

pytestmark = pytest.mark.oracle

TOLERANCE = 1e-4  # absolute, on logits with a standard deviation above 0.4
NUM_TOKENS = 3 * ORIGINAL_CONTEXT  # past the original context, the windows and several blocks
BLOCK_SIZE = 16
NUM_BLOCKS = NUM_TOKENS // BLOCK_SIZE + 1


MakeReader = Callable[[Program, ModelSource, KVSpec], Reader]


def make_reference(program: Program, source: ModelSource, kv: KVSpec) -> Reader:
    return ReferenceReader(program, source.tensors, kv=kv)


def make_native(isa: str) -> MakeReader:
    def make(program: Program, source: ModelSource, kv: KVSpec) -> Reader:
        return NativeReader(program, source.tensors, kv=kv, threads=1, max_tokens=NUM_TOKENS, max_rows=1, isa=isa)

    return make


READERS: dict[str, MakeReader] = {
    "reference": make_reference,
    **{f"native_{isa}": make_native(isa) for isa in _native.usable_isas()},
}


@dataclass
class Case:
    """One saved model, its prompt and what transformers says of it."""

    source: ModelSource
    token_ids: list[int]
    logits: FloatArray  # [tokens, vocab]


@pytest.fixture(scope="module", params=tiny_models(), ids=lambda tiny: tiny.name)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    tiny: TinyModel = request.param
    folder: Path = tmp_path_factory.mktemp(tiny.name)
    model = save_tiny_model(tiny, folder)
    token_ids = np.random.default_rng(11).integers(3, VOCAB_SIZE, NUM_TOKENS).tolist()
    torch.set_num_threads(1)  # the models are tiny: threads would only wait for each other
    with torch.no_grad():
        logits: Any = model(torch.tensor([token_ids])).logits[0].numpy()
    return Case(open_model(folder), token_ids, logits)


def run_in_chunks(reader: Reader, program: Program, token_ids: list[int], cuts: list[int]) -> FloatArray:
    tables = (np.arange(NUM_BLOCKS, dtype=np.int32)[None],) * len(program.kv_groups)
    parts = []
    for start, end in zip([0, *cuts], [*cuts, len(token_ids)], strict=True):
        step = BoundStep(
            token_ids=np.array(token_ids[start:end], np.int32),
            row_starts=np.array([0, end - start], np.int32),
            row_positions=np.array([start], np.int32),
            block_tables=tables,
            selected=np.arange(end - start, dtype=np.int32),
        )
        parts.append(reader.run(step).copy())
    return np.concatenate(parts)


@pytest.mark.parametrize("cuts", [[], [1, 2, 40, 41]], ids=["whole", "chunked"])
@pytest.mark.parametrize("reader_name", READERS)
def test_logits_equal_those_of_transformers(case: Case, reader_name: str, cuts: list[int]) -> None:
    program = build_program(case.source)
    kv = KVSpec("f32", BLOCK_SIZE, (NUM_BLOCKS,) * len(program.kv_groups))
    reader = READERS[reader_name](program, case.source, kv)
    got = run_in_chunks(reader, program, case.token_ids, cuts)
    reader.close()
    assert case.logits.std() > 0.4
    np.testing.assert_allclose(got, case.logits, rtol=0, atol=TOLERANCE)
