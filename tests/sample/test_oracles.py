"""Filters beside llama.cpp's own sampler chain, called through llama-cpp-python's low-level names.

llama.cpp computes in float32 and sums in its own order, so rows are drawn such that no token lies on a border.
"""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders_gguf import write_llama
from twostroke.params import SamplingParams
from twostroke.sample.arithmetic import Floats
from twostroke.sample.filters import keep_expected, surprise_of
from twostroke.sample.random import NoiseKey
from twostroke.sample.reference import first_limit, next_limit, survivors
from twostroke.sample.repetition import dry_penalties, lessened

pytestmark = pytest.mark.oracle
SIZE = 60


def row_of(seed: int) -> Floats:
    row = np.random.default_rng(seed).normal(0, 3, SIZE).astype(np.float32)
    row[:4] = row[4]  # ties
    return row


class Chain:
    """One sampler of llama.cpp's."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.lib = pytest.importorskip("llama_cpp").llama_cpp
        self.sampler = getattr(self.lib, f"llama_sampler_init_{name}")(*arguments)

    def accept(self, token_ids: list[int]) -> None:
        for token_id in token_ids:
            self.lib.llama_sampler_accept(self.sampler, token_id)

    def apply(self, row: Floats) -> tuple[dict[int, float], int]:
        """What is left, id -> logit, and the id it chose, if it chooses."""
        data = (self.lib.llama_token_data * len(row))()
        for i, logit in enumerate(row):
            data[i].id, data[i].logit = i, float(logit)
        array = self.lib.llama_token_data_array(data, len(row), -1, False)
        self.lib.llama_sampler_apply(self.sampler, ctypes.byref(array))
        left = {array.data[i].id: array.data[i].logit for i in range(array.size)}
        chosen = array.data[array.selected].id if array.selected >= 0 else -1
        return {i: logit for i, logit in left.items() if np.isfinite(logit)}, chosen


def ours(row: Floats, **wish: Any) -> set[int]:
    params = SamplingParams(temperature=1.0, **wish)
    return set(survivors(row, params=params, key=NoiseKey(0, 0, 0))[0].tolist())


@pytest.mark.parametrize("seed", range(10))
def test_filters_keep_what_llama_cpp_keeps(seed: int) -> None:
    """As many of each logit: of tokens that tie on the border theirs keeps any, ours those of the lowest ids."""
    row = row_of(seed)

    def agree(theirs: Chain, **wish: Any) -> bool:
        return sorted(row[list(ours(row, **wish))]) == sorted(theirs.apply(row)[0].values())

    for p in (0.1, 0.5, 0.9):
        assert agree(Chain("typical", p, 1), typical_p=p)
        assert agree(Chain("top_p", p, 1), top_p=p)
        assert agree(Chain("min_p", p / 5, 1), min_p=p / 5)
    for n in (0.3, 1.0, 2.0):
        assert agree(Chain("top_n_sigma", n), top_n_sigma=n)
    for threshold in (0.02, 0.1, 0.3):
        assert agree(Chain("xtc", 1.0, threshold, 1, 1), xtc_probability=1.0, xtc_threshold=threshold)


@pytest.mark.parametrize("seed", range(10))
def test_the_dynamic_temperature_is_that_of_llama_cpp(seed: int) -> None:
    row = row_of(seed)
    for spread, exponent in ((0.5, 1.0), (0.9, 2.0), (3.0, 0.5)):
        params = SamplingParams(temperature=0.8, dynatemp_range=spread, dynatemp_exponent=exponent)
        ids, scores = survivors(row, params=params)
        theirs = Chain("temp_ext", 0.8, spread, exponent).apply(row)[0]
        expected = np.array([theirs[i] for i in ids.tolist()])
        np.testing.assert_allclose(scores, expected - expected.max(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("seed", range(5))
def test_mirostat_follows_llama_cpp_token_by_token(seed: int) -> None:
    """Theirs chooses; ours is told the same tokens and must have the same limit, seen in what it keeps."""
    params = SamplingParams(temperature=1.0, mirostat_tau=2.0, mirostat_eta=0.2)
    theirs = Chain("mirostat_v2", seed, 2.0, 0.2)
    limit = first_limit(params)
    for step in range(30):
        assert limit is not None
        row = row_of(1000 * seed + step)
        ids, scores = survivors(row, params=params)
        kept = keep_expected(scores, limit)
        left, chosen = theirs.apply(row)
        assert set(ids[kept].tolist()) == set(left)
        surprise = surprise_of(scores[ids == chosen], scores[kept])[0]
        limit = next_limit(limit, float(surprise), params=params)


def test_dry_takes_off_what_llama_cpp_does(tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    write_llama(tmp_path / "m.gguf", tensor_type="F32")
    model = llama_cpp.Llama(str(tmp_path / "m.gguf"), verbose=False)
    vocab = llama_cpp.llama_cpp.llama_model_get_vocab(model.model)
    none = (ctypes.c_char_p * 1)()
    rng = np.random.default_rng(0)
    row = np.zeros(SIZE, np.float32)
    for last_n in (1000, 5, 20):  # -1 is none to a chain without a context
        for _ in range(20):
            history = rng.integers(3, 6, 25).tolist()
            theirs = Chain("dry", vocab, 0.8, 1.75, 2, last_n, none, 0)
            theirs.accept(history)
            params = SamplingParams(dry_multiplier=0.8, dry_penalty_last_n=last_n)
            expected = lessened(row, dry_penalties(history, params=params))
            left = theirs.apply(row)[0]
            np.testing.assert_allclose(expected, [left[i] for i in range(SIZE)], rtol=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_typical_keeps_what_transformers_keeps(seed: int) -> None:
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    row = row_of(seed)
    row[5:15] = -np.inf
    for mass in (0.05, 0.3, 0.7, 0.95):
        theirs = process.TypicalLogitsWarper(mass)(None, torch.tensor(row)[None])[0]
        kept = set(np.flatnonzero(torch.isfinite(theirs).numpy()).tolist())
        missing = kept - ours(row, typical_p=mass)
        assert ours(row, typical_p=mass) <= kept
        assert missing <= {0, 1, 2, 3, 4}, "where the border lies within ties, theirs keeps them all"
