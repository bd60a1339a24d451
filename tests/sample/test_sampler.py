import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.sample.sampling_builders import (
    FALSE_ALARM_Z,
    chi_square_z,
    draw,
    make_logits,
    make_row,
)
from twostroke import _native
from twostroke.sample.sampler import NO_TOKEN, Sampler, SamplingRow

LOGITS = [2.0, 1.5, 0.0, 1.5, -1.0, 0.5, -np.inf, 3.0, -4.0, 1.0]
NUM_DRAWS = 50_000


def test_choices_of_one_request_are_independent() -> None:
    logits = [0.0] * 256
    first = draw(logits, 2_000, temperature=1.0)
    second = draw(logits, 2_000, temperature=1.0, choice_index=1)
    assert (first == second).mean() < 0.02  # 1/256 expected; 8 standard deviations above it


@pytest.mark.parametrize("temperature", [1e-3, 1e-4, 1e-5, 1e-8, 1e-38, 5e-324, 0.0])
def test_tiny_temperatures_are_greedy(temperature: float) -> None:
    for seed in range(50):
        assert draw([2.9, 11.0, 2.8], 1, seed=seed, temperature=temperature).tolist() == [1]


@pytest.mark.parametrize("temperature", [1e30, 1e38, 1e300, 1.7e308])
def test_huge_temperatures_are_uniform(temperature: float) -> None:
    draws = draw([11.0, 2.9, 2.8], 3_000, temperature=temperature)
    assert chi_square_z(draws, [1 / 3] * 3) < FALSE_ALARM_Z


@pytest.mark.parametrize("top_k", [0, -1, None, 3, 4, 10**9])
def test_top_k_is_off_at_zero_minus_one_none_and_beyond_the_vocabulary(top_k: int | None) -> None:
    logits = np.log([0.5, 0.3, 0.2]).tolist()
    draws = draw(logits, 3_000, temperature=1.0, top_k=top_k)
    assert draws.tolist() == draw(logits, 3_000, temperature=1.0).tolist()
    assert chi_square_z(draws, [0.5, 0.3, 0.2]) < FALSE_ALARM_Z


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 1.0, "min_p": 1.0},
    ],
)
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_every_way_to_be_greedy_takes_the_lowest_of_tied_ids(params: dict[str, Any], batch: int) -> None:
    logits = [0.0] * 12
    logits[5] = logits[9] = 2.0
    for seed in range(20):
        assert draw(logits, batch, seed=seed, **params).tolist() == [5] * batch


MIXED: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "presence_penalty": 1.0},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 20},
    {"temperature": 1.2, "top_p": 0.9, "logprobs": 3},
    {"temperature": 1.0, "min_p": 0.1, "repetition_penalty": 1.2},
    {"temperature": 50.0, "top_k": 90},
    {"temperature": 1.0, "typical_p": 0.8, "xtc_probability": 0.5, "logprobs": 2},
    {"temperature": 0.9, "dynatemp_range": 0.5, "top_n_sigma": 1.0, "no_repeat_ngram_size": 2},
    {"temperature": 1.0, "mirostat_tau": 3.0, "dry_multiplier": 0.8, "penalty_last_n": 2, "presence_penalty": 1.0},
    {"temperature": 0.7, "top_p": 0.8, "sampler_order": ("top_p", "temperature")},
]


@given(st.permutations(range(len(MIXED))), st.integers(1, len(MIXED)))
def test_company_and_order_never_change_a_token(order: list[int], batch: int) -> None:
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 2, (len(MIXED), 100)).astype(np.float32)
    sampler = Sampler(100)

    def row_of(index: int) -> SamplingRow:
        row = make_row(sampler, sequence_id=index, seed=index, **MIXED[index])
        for token_id in (3, 5, 3):
            row.state.append(token_id)
        return row

    alone = [sampler.sample(logits[index : index + 1], [row_of(index)])[0] for index in range(len(MIXED))]
    chosen = order[:batch]
    together = sampler.sample(logits[chosen], [row_of(index) for index in chosen])
    assert together == [alone[index] for index in chosen]


def test_the_same_seed_repeats_and_another_does_not() -> None:
    first = draw([0.0] * 50, 100, seed=3, temperature=1.0).tolist()
    assert draw([0.0] * 50, 100, seed=3, temperature=1.0).tolist() == first
    assert draw([0.0] * 50, 100, seed=4, temperature=1.0).tolist() != first


@pytest.mark.parametrize(
    ("bad", "word"),
    [([0.0, np.nan, 1.0], "nan"), ([-np.inf] * 3, "-inf"), ([0.0, np.inf, 1.0], "inf")],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_broken_row_fails_alone(bad: list[float], word: str, temperature: float) -> None:
    sampler = Sampler(3)
    rows = [make_row(sampler, sequence_id=index, temperature=temperature, logprobs=2) for index in range(3)]
    good = [0.0, 50.0, 0.0]
    tokens = sampler.sample(make_logits(good, bad, good), rows)
    assert [token.token_id for token in tokens] == [1, NO_TOKEN, 1]
    assert tokens[0].error is None
    assert tokens[1].error is not None
    assert word in tokens[1].error
    assert "position 3" in tokens[1].error


def test_padding_of_the_head_is_never_chosen_nor_reported() -> None:
    sampler = Sampler(3)
    logits = make_logits([1.0, 2.0, 0.0, 99.0, np.nan])
    for temperature in (0.0, 1.0, 1e9):
        (token,) = sampler.sample(logits, [make_row(sampler, temperature=temperature, logprobs=20)])
        assert token.token_id < 3
        assert len(token.top_logprobs) == 3
        assert sum(math.exp(entry.logprob) for entry in token.top_logprobs) == pytest.approx(1.0)


def test_penalties_follow_the_sequence_as_it_grows() -> None:
    """A greedy loop a -> b -> a: every step's token from the formula."""
    sampler = Sampler(3)
    row = make_row(sampler, prompt=[0, 0, 0], temperature=0.0, presence_penalty=0.5, frequency_penalty=0.25)
    tokens = []
    for _ in range(6):
        (token,) = sampler.sample(make_logits([1.0, 0.6, -9.0]), [row])
        tokens.append(token.token_id)
        row.state.append(token.token_id)
    # scores of 0 and 1: 1/.6, .25/.6, .25/-.15, 0/-.15, -.25/-.15, -.25/-.4
    assert tokens == [0, 1, 0, 0, 1, 0]


def test_repetition_penalty_sees_the_prompt_too() -> None:
    sampler = Sampler(2)
    plain, penalised = (
        make_row(sampler, prompt=[0], temperature=0.0, repetition_penalty=penalty) for penalty in (1.0, 3.0)
    )
    tokens = sampler.sample(make_logits([2.0, 1.0], [2.0, 1.0]), [plain, penalised])
    assert [token.token_id for token in tokens] == [0, 1]


@pytest.mark.parametrize(
    "off",
    [
        {"typical_p": 1.0},
        {"top_n_sigma": 0.0},
        {"dynatemp_range": 0.0, "dynatemp_exponent": 3.0},
        {"xtc_probability": 0.0, "xtc_threshold": 0.0},
        {"xtc_probability": 1.0, "xtc_threshold": 1.0},
        {"dry_multiplier": 0.0, "dry_base": 9.0},
        {"dry_multiplier": 1.0, "dry_penalty_last_n": 0},
        {"repetition_penalty": 2.0, "penalty_last_n": 0},
        {"no_repeat_ngram_size": 0},
        {"bad_words": ()},
    ],
    ids=str,
)
def test_what_is_off_changes_no_token(off: dict[str, Any]) -> None:
    plain = draw(LOGITS, 200, temperature=1.0, prompt=[1, 2, 1, 2, 1]).tolist()
    assert draw(LOGITS, 200, temperature=1.0, prompt=[1, 2, 1, 2, 1], **off).tolist() == plain


def test_mirostat_learns_from_what_the_sequence_took_and_from_nothing_else() -> None:
    sampler = Sampler(len(LOGITS))
    row = make_row(sampler, temperature=1.0, mirostat_tau=1.0, mirostat_eta=0.5)
    logits = make_logits(LOGITS)
    assert row.state.surprise_limit == 2.0
    first = sampler.sample(logits, [row])
    assert sampler.sample(logits, [row]) == first
    assert row.state.surprise_limit == 2.0
    row.state.append(first[0].token_id)
    learned = row.state.surprise_limit
    assert learned != 2.0
    row.state.append(3)  # nobody drew it
    assert row.state.surprise_limit == learned


def test_mirostat_comes_to_the_surprise_it_aims_at() -> None:
    sampler = Sampler(1000)
    rng = np.random.default_rng(1)
    row = make_row(sampler, temperature=1.0, mirostat_tau=4.0, mirostat_eta=0.1)
    limits = []
    for _ in range(600):
        (token,) = sampler.sample(rng.normal(0, 2, (1, 1000)).astype(np.float32), [row])
        row.state.append(token.token_id)
        limits.append(row.state.surprise_limit)
    falls = -np.diff(limits[200:]) / 0.1 + 4.0  # the surprise of each token
    assert falls.mean() == pytest.approx(4.0, abs=0.1)


def test_no_rows_is_fine() -> None:
    assert Sampler(5).sample(np.zeros((0, 5), dtype=np.float32), []) == []


def test_one_surviving_token_needs_no_noise() -> None:
    assert draw([0.0, 30.0, 1.0], 5, temperature=1.0, top_p=0.5).tolist() == [1] * 5


def test_state_starts_after_the_prompt() -> None:
    state = make_row(Sampler(9), prompt=[1, 2, 3, 4]).state
    assert state.position == 4
    state.append(5)
    assert state.position == 5


def test_rows_must_fit_the_sampler() -> None:
    sampler = Sampler(5)
    row = make_row(sampler)
    for shape in [(1, 4), (2, 5)]:
        with pytest.raises(ValueError, match="a row per state"):
            sampler.sample(np.zeros(shape, dtype=np.float32), [row])
    with pytest.raises(ValueError, match="a row per state"):
        sampler.sample(np.zeros((5, 1), dtype=np.float32).T[:, ::-1], [row])
    with pytest.raises(ValueError, match="vocab_size is 0"):
        Sampler(0)
    with pytest.raises(ValueError, match="no kernels for ISA 'abacus'"):
        Sampler(5, isa="abacus")


def test_rows_draw_from_the_logits_named_for_them() -> None:
    sampler = Sampler(3)
    logits = make_logits([9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0], [np.nan, 0.0, 0.0])
    rows = [make_row(sampler, sequence_id=number, temperature=0.0) for number in range(3)]
    tokens = sampler.sample(logits, rows, at=[2, 2, 0])
    assert [(token.sequence_id, token.token_id) for token in tokens] == [(0, 2), (1, 2), (2, 0)]
    (broken,) = sampler.sample(logits, rows[:1], at=[3])
    assert broken.error is not None
    assert "a logit is nan" in broken.error


@pytest.mark.parametrize(("at", "error"), [([0], ValueError), ([0, 4], IndexError)])
def test_named_rows_must_be_there(at: list[int], error: type[Exception]) -> None:
    sampler = Sampler(3)
    with pytest.raises(error, match=r"a row per state|state 1 draws from row 4 of 4"):
        sampler.sample(np.zeros((4, 3), np.float32), [make_row(sampler), make_row(sampler)], at=at)


def test_a_closed_sampler_lets_go_of_its_threads() -> None:
    sampler = Sampler(5, pool=_native.Pool(2))
    sampler.close()
    sampler.close()
    with pytest.raises(AttributeError):
        sampler.sample(np.zeros((1, 5), dtype=np.float32), [make_row(sampler)])


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_threads_change_no_token(num_threads: int) -> None:
    rng = np.random.default_rng(3)
    wishes = 3 * MIXED  # enough work to be shared
    logits = rng.normal(0, 2, (len(wishes), 49_152)).astype(np.float32)
    alone, shared = Sampler(49_152), Sampler(49_152, pool=_native.Pool(num_threads))
    for seed in range(5):
        rows = [make_row(alone, sequence_id=index, seed=seed, **params) for index, params in enumerate(wishes)]
        assert shared.sample(logits, rows) == alone.sample(logits, rows)


def test_rows_may_lie_anywhere_in_memory() -> None:
    logits = np.random.default_rng(5).normal(0, 2, (3, 100)).astype(np.float32)
    sampler = Sampler(100)
    rows = [make_row(sampler, temperature=1.0, seed=index) for index in range(3)]
    wide = np.full((6, 131), 99.0, dtype=np.float32)
    wide[1::2, 7:107] = logits
    assert sampler.sample(wide[1::2, 7:107], rows) == sampler.sample(logits, rows)
