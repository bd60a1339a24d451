"""Vectors of texts: the same bits alone, in a batch, in chunks, after a hit in the cache, on any number of threads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.builders_gguf import write_gemma3, write_llama, write_model
from tests.builders_llm import config_of
from tests.cases.make_malformed import T_U32
from twostroke.core.pooling import PoolingKind
from twostroke.llm import LLM
from twostroke.load import MAX_STEP_TOKENS
from twostroke.model.pooling import KINDS

NUMBERS = {kind: number for number, kind in KINDS.items()}


def write_pooled(path: Path, kind: PoolingKind, *, architecture: str = "llama", tensor_type: str = "Q8_0") -> Path:
    keys = [(f"{architecture}.pooling_type", T_U32, NUMBERS[kind])]
    if architecture == "gemma3":
        return write_gemma3(path, tensor_type=tensor_type, more_keys=keys)
    return write_model(path, architecture, tensor_type=tensor_type, keys=keys)


def open_pooled(path: Path, **options: Any) -> LLM:
    return LLM(path, config=config_of(path.parent), **options)


def texts(*lengths: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(3, 200, length).tolist() for length in lengths]


def bits(vectors: npt.NDArray[np.float32]) -> list[bytes]:
    return [vector.tobytes() for vector in vectors]


@pytest.mark.parametrize("kind", PoolingKind)
@pytest.mark.parametrize("tensor_type", ["Q8_0", "F32", "BF16"])
def test_a_text_alone_in_a_batch_and_with_more_threads(tmp_path: Path, kind: PoolingKind, tensor_type: str) -> None:
    path = write_pooled(tmp_path / "pooled.gguf", kind, tensor_type=tensor_type)
    given = texts(1, 2, 17, 33, 5)
    with open_pooled(path) as llm:
        together = bits(llm.embed(given))
        assert [bits(llm.embed(text))[0] for text in given] == together
        assert len(set(together)) == len(given)
    with open_pooled(path, threads=3) as llm:
        assert bits(llm.embed(given)) == together


@pytest.mark.parametrize("kind", PoolingKind)
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_texts_longer_than_a_step_are_the_same_beside_others(
    tmp_path: Path, kind: PoolingKind, architecture: str
) -> None:
    pooled = write_pooled(tmp_path / "pooled.gguf", kind, architecture=architecture)
    given = texts(MAX_STEP_TOKENS + 100, 700, 40)
    with open_pooled(pooled) as llm:
        together = bits(llm.embed(given))
        assert [bits(llm.embed(text))[0] for text in given] == together


def test_an_instruction_that_is_in_the_cache_changes_no_bit_of_the_last_tokens_state(tmp_path: Path) -> None:
    path = write_pooled(tmp_path / "pooled.gguf", PoolingKind.LAST)
    (instruction, *questions) = texts(64, 9, 9)
    with open_pooled(path) as llm:
        results = [llm.embed([*instruction, *question]) for question in questions]
        assert llm.snapshot().prefix_hits >= 48
    with open_pooled(path) as llm:
        assert bits(llm.embed([*instruction, *questions[1]])) == bits(results[1])


@pytest.mark.parametrize("kind", [PoolingKind.MEAN, PoolingKind.CLS])
def test_a_text_that_was_there_before_is_read_again_where_every_state_counts(tmp_path: Path, kind: PoolingKind) -> None:
    path = write_pooled(tmp_path / "pooled.gguf", kind)
    (text,) = texts(100)
    with open_pooled(path) as llm:
        assert bits(llm.embed(text)) == bits(llm.embed(text))
        assert llm.snapshot().prefix_hits == 0


def test_texts_that_wait_for_memory_are_those_that_had_it(tmp_path: Path) -> None:
    path = write_pooled(tmp_path / "pooled.gguf", PoolingKind.MEAN)
    given = texts(*[1000] * 5)
    with open_pooled(path) as llm:
        expected = bits(llm.embed(given))
    with open_pooled(path, memory_bytes=4_500_000) as llm:
        assert llm.snapshot().blocks_total < 3 * 1024 // 16  # room for two of five
        assert bits(llm.embed(given)) == expected


def test_the_first_of_many_tokens_is_the_last_of_one(tmp_path: Path) -> None:
    (text,) = texts(12)
    with open_pooled(write_pooled(tmp_path / "last.gguf", PoolingKind.LAST, tensor_type="F32"), kv="f32") as llm:
        last = llm.embed(text[:1])
    with open_pooled(write_pooled(tmp_path / "cls.gguf", PoolingKind.CLS, tensor_type="F32"), kv="f32") as llm:
        assert bits(llm.embed(text)) == bits(last)


def cosines(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> Sequence[float]:
    values: list[float] = np.sum(one * other, axis=1).tolist()
    return values


def test_vectors_are_of_unit_length_and_texts_that_are_alike_are_near(tmp_path: Path) -> None:
    (text, other) = texts(60, 60)
    with open_pooled(write_pooled(tmp_path / "pooled.gguf", PoolingKind.MEAN)) as llm:
        vectors = llm.embed([text, [*text[:-1], 7], other])
    assert cosines(vectors, vectors) == pytest.approx([1.0] * 3, abs=1e-6)
    assert cosines(vectors[:1], vectors[1:2])[0] > cosines(vectors[:1], vectors[2:])[0]


def test_a_model_that_writes_has_the_same_bits_as_before(tmp_path: Path) -> None:
    """The head and what leads to it do not know that a model may have none."""
    (text,) = texts(20)
    with open_pooled(write_llama(tmp_path / "plain.gguf", tensor_type="Q8_0")) as llm:
        assert llm.logits(text, last=1).shape == (1, llm.program.vocab_size)
        assert llm.pooling is None
