import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from tests.sample import published
from tests.sample.sampling_builders import softmax
from twostroke.sample.arithmetic import Floats as Scores
from twostroke.sample.filters import (
    exclude_top_choices,
    keep_expected,
    keep_min_p,
    keep_top_k,
    keep_top_n_sigma,
    keep_top_p,
    keep_typical,
)


def make_scores(values: object) -> Scores:
    """In the order of the ranking."""
    logits = np.sort(np.array(values, dtype=np.float32))[::-1]
    return np.asarray(logits - logits[0], dtype=np.float32)


# A coarse grid makes ties common; -inf is a banned token.
score_lists = st.lists(
    st.one_of(st.integers(-20, 20).map(lambda x: x / 2), st.floats(-40, 40, width=32), st.just(-math.inf)),
    min_size=1,
    max_size=60,
).filter(lambda values: max(values) > -math.inf)


@given(score_lists, st.integers(1, 70))
def test_top_k_keeps_exactly_the_first_k_of_the_ranking(values: list[float], k: int) -> None:
    assert keep_top_k(make_scores(values), k).tolist() == list(range(min(k, len(values))))


@given(score_lists, st.floats(1e-9, 0.999))
def test_top_p_keeps_the_shortest_prefix_of_the_ranking_with_enough_mass(values: list[float], top_p: float) -> None:
    scores = make_scores(values)
    kept = keep_top_p(scores, top_p).tolist()
    assert kept == list(range(len(kept)))
    mass = np.cumsum(softmax(list(scores)))
    assert mass[len(kept) - 1] >= top_p - 1e-6
    assert len(kept) == 1 or mass[len(kept) - 2] < top_p + 1e-6


@given(score_lists, st.floats(1e-6, 0.999))
def test_min_p_keeps_what_is_likely_enough_beside_the_best(values: list[float], min_p: float) -> None:
    scores = make_scores(values)
    kept = set(keep_min_p(scores, min_p).tolist())
    for index, score in enumerate(scores.tolist()):
        ratio = math.exp(score)
        if abs(ratio - min_p) > 1e-6 * min_p:
            assert (index in kept) == (ratio > min_p)


def test_filters_at_their_tightest_keep_the_best_alone() -> None:
    scores = make_scores([3, 3, 3, 1])
    assert keep_top_k(scores, 1).tolist() == [0]
    assert keep_top_p(scores, 1e-9).tolist() == [0]
    assert keep_min_p(scores, 1.0).tolist() == [0]


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0, 30.0])
def test_top_p_counts_mass_exactly_on_a_real_size_of_vocabulary(spread: float) -> None:
    scores = make_scores(np.random.default_rng(0).normal(0, spread, 50_000))
    mass = np.cumsum(softmax(scores.tolist()))
    for top_p in (0.1, 0.9, 0.99):
        num_kept = len(keep_top_p(scores, top_p))
        assert mass[num_kept - 1] >= top_p - 1e-6
        assert num_kept == 1 or mass[num_kept - 2] < top_p + 1e-6


def test_a_filter_leaves_its_input_alone() -> None:
    scores = make_scores([1, 2, 3, 2, 1])
    before = scores.copy()
    keep_top_k(scores, 2), keep_top_p(scores, 0.5), keep_min_p(scores, 0.1)
    assert (scores == before).all()


@pytest.mark.parametrize("seed", range(20))
def test_other_filters_keep_what_their_publications_say(seed: int) -> None:
    scores = random_scores(seed)
    exact = scores.astype(np.float64)
    ids = np.arange(len(scores))
    for mass in (0.05, 0.37, 0.61, 0.93):
        assert set(keep_typical(scores, mass).tolist()) == published.typical(exact, mass)
    for num_sigmas in (0.33, 1.0, 2.2):
        assert set(keep_top_n_sigma(scores, ids, num_sigmas).tolist()) == published.top_n_sigma(exact, num_sigmas)
    for threshold in (0.013, 0.05, 0.21, 0.6):
        kept = [place for place in exclude_top_choices(scores, threshold) if scores[place] > -np.inf]
        assert set(kept) == published.xtc(exact, threshold)
    for limit in (0.2, 1.7, 5.3):
        assert set(keep_expected(scores, limit).tolist()) == published.mirostat(exact, limit)


def transformers_mask(name: str, value: float, scores: Scores) -> NDArray[np.bool_]:
    torch = pytest.importorskip("torch")
    logits_process = pytest.importorskip("transformers.generation.logits_process")
    warper = getattr(logits_process, name)(value)
    kept = warper(None, torch.tensor(scores)[None])[0]
    return np.asarray(torch.isfinite(kept).numpy())


def random_scores(seed: int) -> Scores:
    rng = np.random.default_rng(seed)
    values = np.round(rng.normal(0, 3, 200), 1)  # many ties
    values[rng.integers(0, 200, 20)] = -np.inf
    return make_scores(values)  # sorted: transformers' masks are compared place by place


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(20))
def test_top_k_masks_equal_transformers_except_ties_for_the_last_place(seed: int) -> None:
    scores = random_scores(seed)
    for k in (1, 2, 17, 199):
        ours = np.isin(np.arange(200), keep_top_k(scores, k)) & np.isfinite(scores)
        theirs = transformers_mask("TopKLogitsWarper", k, scores)
        border = scores[k - 1]
        assert (ours == theirs)[scores != border].all()
        assert not (ours & ~theirs).any()


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(20))
def test_top_p_masks_equal_transformers_except_ties_for_the_last_place(seed: int) -> None:
    scores = random_scores(seed)
    for top_p in (0.01, 0.3, 0.777, 0.95, 0.999):
        kept = keep_top_p(scores, top_p)
        ours = np.isin(np.arange(200), kept) & np.isfinite(scores)
        theirs = transformers_mask("TopPLogitsWarper", top_p, scores)
        border = scores[kept].min()
        assert (ours == theirs)[scores != border].all()
        assert ours.sum() == theirs.sum()


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(20))
def test_min_p_masks_equal_transformers(seed: int) -> None:
    scores = random_scores(seed)
    for min_p in (0.003, 0.05, 0.21, 0.77):
        ours = np.isin(np.arange(200), keep_min_p(scores, min_p))
        assert (ours == transformers_mask("MinPLogitsWarper", min_p, scores)).all()
