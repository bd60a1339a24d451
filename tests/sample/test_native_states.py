"""States and samplers by their native doors: what they refuse, what they keep, and draws at the ends of every range."""

from typing import Any

import numpy as np
import pytest

from twostroke import _native
from twostroke.params import SamplingParams
from twostroke.sample.random import NoiseKey
from twostroke.sample.reference import choose_token

ISAS = _native.usable_isas()
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)
GREEDY: dict[str, Any] = {
    "seed": 0,
    "choice_index": 0,
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "num_logprobs": None,
}


def make_state(*prompt: int, **changed: Any) -> _native.SamplingState:
    return _native.SamplingState(list(prompt), **GREEDY | changed)


def make_sampler(vocab_size: int, *, isa: str = "portable") -> _native.Sampler:
    return _native.Sampler(vocab_size, isa=isa, pool=None)


def as_rows(*rows: list[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array(rows, np.float32)


@pytest.mark.parametrize("vocab_size", [0, -1, -(2**31), 2**31 - 1])
def test_a_vocabulary_of_no_or_too_many_tokens_is_refused_with_the_range(vocab_size: int) -> None:
    with pytest.raises(ValueError, match=rf"^vocab_size is {vocab_size}: it must be from 1 to \d+$"):
        make_sampler(vocab_size)


def test_an_unknown_isa_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no kernels for ISA 'mmx'"):
        make_sampler(4, isa="mmx")


@pytest.mark.parametrize("num_logprobs", [-1, -(2**31)])
def test_a_negative_number_of_logprobs_is_refused(num_logprobs: int) -> None:
    with pytest.raises(ValueError, match="num_logprobs must not be negative"):
        make_state(num_logprobs=num_logprobs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("seed", 2**64),
        ("choice_index", -1),
        ("choice_index", 2**32),
        ("top_k", 2**31),
        ("top_k", 0.5),
        ("temperature", "1"),
        ("top_p", None),
    ],
)
def test_wishes_no_machine_number_holds_are_type_errors(name: str, value: object) -> None:
    with pytest.raises(TypeError):
        make_state(**{name: value})


@pytest.mark.parametrize(
    "logits",
    [
        np.zeros((1, 3), np.float32),
        np.zeros((2, 4), np.float32),
        np.zeros((0, 4), np.float32),
        np.zeros((4, 1), np.float32).T[:, ::1].repeat(2, axis=1)[:, ::2],
    ],
    ids=["too narrow", "too many rows", "no row", "not contiguous"],
)
def test_logits_of_another_shape_are_refused_and_the_next_call_works(logits: Any) -> None:
    sampler, state = make_sampler(4), make_state(1)
    with pytest.raises(ValueError, match="a row per state, each contiguous and as long as the vocabulary"):
        sampler.sample(logits, [state])
    assert sampler.sample(as_rows([0, 1, 3, 2]), [state]) == ([2], [], [])
    assert state.position == 1


@pytest.mark.parametrize(
    "logits", [np.zeros((1, 4)), np.zeros((1, 4), np.float16), np.zeros(4, np.float32), [[0.0] * 4]], ids=type
)
def test_logits_of_another_kind_are_type_errors(logits: Any) -> None:
    with pytest.raises(TypeError):
        make_sampler(4).sample(logits, [make_state()])


def test_states_of_another_kind_are_refused_and_the_next_call_works() -> None:
    sampler, state = make_sampler(4), make_state()
    for stranger in (3, "state", object(), None):
        with pytest.raises(TypeError, match="state 1 is no SamplingState"):
            sampler.sample(as_rows([0, 1, 0, 0], [0, 1, 0, 0]), [state, stranger])  # type: ignore[list-item]
    assert sampler.sample(as_rows([0, 1, 0, 0]), [state])[0] == [1]


def test_a_state_counts_its_position_and_can_be_told_another() -> None:
    state = make_state(5, 6, 7)
    assert state.position == 3
    state.append(1)
    state.append(1)
    assert state.position == 5
    state.position = 2**32 - 1
    assert state.position == 2**32 - 1
    state.append(0)
    assert state.position == 0
    with pytest.raises(TypeError):
        state.position = -1


def test_sampling_changes_no_state() -> None:
    sampler = make_sampler(64)
    wishes = {"temperature": 1.0, "repetition_penalty": 1.5, "frequency_penalty": 0.5, "num_logprobs": 2}
    state, logits = make_state(1, 2, seed=3, **wishes), np.zeros((1, 64), np.float32)
    first = sampler.sample(logits, [state])
    assert all(sampler.sample(logits, [state]) == first for _ in range(5))
    assert state.position == 2
    assert not logits.any()


def test_one_state_may_stand_in_several_rows() -> None:
    sampler, state = make_sampler(50), make_state(1, temperature=1.0)
    token_ids, broken, _ = sampler.sample(np.zeros((3, 50), np.float32), [state] * 3)
    assert len(set(token_ids)) == 1
    assert not broken


@EVERY_ISA
@pytest.mark.parametrize("place", [0, 1, 15, 16, 63, 64, 127, 128, 199])
def test_the_only_token_that_is_not_banned_is_drawn_under_every_wish(isa: str, place: int) -> None:
    logits = np.full((1, 200), -np.inf, np.float32)
    logits[0, place] = -3e38
    sampler = make_sampler(200, isa=isa)
    for temperature in (0.0, 1e-300, 1.0, 1e300):
        for changed in ({}, {"top_k": 1}, {"top_p": 1e-300}, {"min_p": 1.0}, {"repetition_penalty": 1e300}):
            state = make_state(place, temperature=temperature, num_logprobs=3, **changed)
            state.append(place)
            token_ids, broken, reports = sampler.sample(logits, [state])
            assert (token_ids, broken) == ([place], [])
            assert reports == [(0, 0.0, [(place, 0.0)])]


@EVERY_ISA
@pytest.mark.parametrize("place", [0, 15, 16, 64, 130, 199])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("changed", [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 5, "num_logprobs": 4}])
def test_a_poisoned_logit_anywhere_breaks_its_row_alone(
    isa: str, place: int, poison: float, changed: dict[str, Any]
) -> None:
    logits = np.random.default_rng(place).normal(0, 1, (3, 200)).astype(np.float32)
    sampler = make_sampler(200, isa=isa)
    states = [make_state(1, seed=seed, **changed) for seed in range(3)]
    clean = sampler.sample(logits, states)[0]
    logits[1, place] = poison
    token_ids, broken, reports = sampler.sample(logits, states)
    assert (token_ids[0], token_ids[2]) == (clean[0], clean[2])
    ((row, value),) = broken
    assert row == 1
    assert np.isnan(value) if np.isnan(poison) else value == np.inf
    assert [report[0] for report in reports] == ([0, 2] if "num_logprobs" in changed else [])


@EVERY_ISA
@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 5e-324},
        {"temperature": 1.7e308},
        {"temperature": 1e-30},
        {"temperature": 1e30},
        {"top_p": 5e-324},
        {"top_p": 1 - 2**-53},
        {"min_p": 5e-324},
        {"min_p": 1 - 2**-53},
        {"top_k": 2**31 - 1},
        {"frequency_penalty": 2.0},
        {"frequency_penalty": -2.0},
        {"presence_penalty": 2.0, "frequency_penalty": -2.0},
        {"repetition_penalty": 1.7e308},
        {"repetition_penalty": 5e-324},
    ],
    ids=str,
)
def test_wishes_at_the_ends_of_double_draw_the_defined_token(isa: str, changed: dict[str, Any]) -> None:
    params = {"temperature": 0.9, **changed}
    sampler = make_sampler(300, isa=isa)
    for seed in (0, 1, 2**32, 2**64 - 1):
        logits = np.random.default_rng(seed).normal(0, 2, 300).astype(np.float32)
        state = make_state(1, 2, 3, seed=seed, choice_index=2**32 - 1, **params)
        output = [4, 4, 5]
        for token_id in output:
            state.append(token_id)
        key = NoiseKey(seed, 2**32 - 1, 6)
        wanted = choose_token(logits, [1, 2, 3], output, params=SamplingParams(**params), key=key)
        assert sampler.sample(logits[np.newaxis], [state])[0] == [wanted]


@EVERY_ISA
def test_a_list_of_logprobs_longer_than_the_vocabulary_holds_all_of_it(isa: str) -> None:
    logits = as_rows([0.0, -np.inf, 2.0, 1.0, 2.0])
    ((row, logprob, best),) = make_sampler(5, isa=isa).sample(logits, [make_state(num_logprobs=100)])[2]
    assert row == 0
    assert [token_id for token_id, _ in best] == [2, 4, 3, 0]
    assert logprob == best[0][1] == best[1][1]
    assert sum(np.exp(value) for _, value in best) == pytest.approx(1, abs=1e-6)


@EVERY_ISA
@pytest.mark.parametrize("token_id", [-1, -(2**31), 5, 2**31 - 1])
def test_tokens_outside_the_vocabulary_are_kept_and_touch_no_logit(isa: str, token_id: int) -> None:
    state = make_state(token_id, repetition_penalty=2.0, presence_penalty=2.0)
    state.append(token_id)
    logits = as_rows([1, 2, 3, 4, 5])
    assert make_sampler(5, isa=isa).sample(logits, [state])[0] == [4]
    assert logits.tolist() == [[1, 2, 3, 4, 5]]


@EVERY_ISA
def test_a_long_penalised_history_stays_exact(isa: str) -> None:
    """Each token was there once more than the next: with a penalty per time the order turns around."""
    state = make_state(frequency_penalty=1.0)
    for token_id in range(40):
        for _ in range(40 - token_id):
            state.append(token_id)
    logits = np.arange(40, 0, -1, dtype=np.float32)[np.newaxis] * np.float32(0.5)
    assert make_sampler(40, isa=isa).sample(logits, [state])[0] == [39]
    assert state.position == 40 * 41 // 2
