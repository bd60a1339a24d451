"""Bans and biases by hand: masks, end tokens that come too early, logit bias; what they hide and what they do not."""

from typing import Any

import numpy as np
import pytest

from tests.sample.sampling_builders import make_logits, make_request, mask_of
from twostroke import _native
from twostroke.core.step import SampledToken
from twostroke.sample.penalties import biased, without
from twostroke.sample.sampler import NO_TOKEN, Sampler, SamplingRow

ROW = [3.0, 2.0, 1.0, 0.0]


def sample(logits: list[float], *, allowed: list[int] | None = None, output: tuple[int, ...] = (), **wish: Any) -> Any:
    sampler = Sampler(len(logits))
    state = sampler.start(make_request(**wish))
    for token_id in output:
        state.append(token_id)
    if allowed is not None:
        state.allow(mask_of(allowed, len(logits)))
    (token,) = sampler.sample(make_logits(logits), [SamplingRow(0, state)])
    return token


@pytest.mark.parametrize(("allowed", "chosen"), [([0, 1, 2, 3], 0), ([2, 3], 2), ([3], 3)])
def test_only_allowed_tokens_are_drawn(allowed: list[int], chosen: int) -> None:
    assert sample(ROW, allowed=allowed).token_id == chosen
    for seed in range(20):
        assert sample(ROW, allowed=allowed, temperature=5.0, seed=seed).token_id in allowed


def test_a_mask_is_for_the_next_token_and_a_new_one_replaces_it() -> None:
    sampler = Sampler(4)
    state = sampler.start(make_request())
    for allowed in ([1], [2], [0, 3]):
        state.allow(mask_of(allowed, 4))
        (token,) = sampler.sample(make_logits(ROW), [SamplingRow(0, state)])
        assert token.token_id == allowed[0]
    state.allow(np.zeros(0, np.uint32))
    (token,) = sampler.sample(make_logits(ROW), [SamplingRow(0, state)])
    assert token.token_id == 0


def test_ids_past_the_words_of_a_mask_are_not_allowed() -> None:
    logits = [0.0] * 40
    logits[35] = 9.0
    assert sample(logits, allowed=[3]).token_id == 3
    sampler = Sampler(40)
    state = sampler.start(make_request())
    state.allow(np.array([8], np.uint32))
    (token,) = sampler.sample(make_logits(logits), [SamplingRow(0, state)])
    assert token.token_id == 3


def test_a_mask_of_nothing_is_an_error_of_its_row_alone() -> None:
    sampler = Sampler(4)
    barred, free = (sampler.start(make_request()) for _ in range(2))
    barred.allow(mask_of([], 4))
    tokens = sampler.sample(make_logits(ROW, ROW), [SamplingRow(1, barred), SamplingRow(2, free)])
    assert [token.token_id for token in tokens] == [NO_TOKEN, 0]
    assert tokens[0].error is not None
    assert "no token may be drawn" in tokens[0].error


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_ban_does_not_hide_what_is_broken(broken: float) -> None:
    token: SampledToken = sample([broken, 1.0, 2.0], allowed=[1, 2])
    assert token.token_id == NO_TOKEN


def test_logprobs_are_those_before_mask_and_bias() -> None:
    free = sample(ROW, logprobs=4)
    held = sample(ROW, logprobs=4, allowed=[3], logit_bias=((2, 50.0),))
    assert held.token_id == 3
    assert held.top_logprobs == free.top_logprobs
    assert held.logprob == free.top_logprobs[3].logprob


@pytest.mark.parametrize(("bias", "chosen"), [({3: 100}, 3), ({0: -100}, 1), ({0: -1.5}, 1), ({0: -1}, 0), ({}, 0)])
def test_a_bias_is_added_to_the_logit(bias: dict[int, float], chosen: int) -> None:
    assert sample(ROW, logit_bias=tuple(bias.items())).token_id == chosen


def test_a_bias_revives_nothing_impossible_and_ignores_what_the_row_does_not_have() -> None:
    assert sample([-np.inf, 1.0], logit_bias=((0, 100.0), (700, 100.0))).token_id == 1
    assert biased(make_logits([-np.inf, 1.0])[0], ((0, 100.0), (9, 1.0))).tolist() == [-np.inf, 1.0]


def test_a_bias_comes_before_penalties() -> None:
    wish: dict[str, Any] = {"repetition_penalty": 2.0, "prompt": [0]}
    assert sample([2.0, 1.5], logit_bias=((0, 1.0),), **wish).token_id == 0  # (2 + 1) / 2 ties with 1.5
    assert sample([2.0, 1.75], logit_bias=((0, 1.0),), **wish).token_id == 1


def test_end_tokens_are_not_drawn_before_the_fewest_tokens_and_are_after() -> None:
    for output, chosen in (((), 2), ((1,), 2), ((1, 1), 0)):
        assert sample(ROW, output=output, min_tokens=2, end_ids=[0, 1]).token_id == chosen


def test_no_fewest_tokens_ban_nothing() -> None:
    assert sample(ROW, end_ids=[0]).token_id == 0


def test_without_leaves_the_row_and_ids_beyond_it() -> None:
    row = make_logits(ROW)[0]
    assert without(row, np.array([1, 9])).tolist() == [3.0, -np.inf, 1.0, 0.0]
    assert without(row, None).tolist() == ROW
    assert row.tolist() == ROW


@pytest.mark.parametrize("isa", _native.usable_isas())
@pytest.mark.parametrize("size", [31, 32, 33, 63, 64, 65, 200])
def test_every_single_id_can_be_the_only_one_allowed(isa: str, size: int) -> None:
    sampler = Sampler(size, isa=isa)
    states = [sampler.start(make_request(temperature=1.0)) for _ in range(size)]
    for token_id, state in enumerate(states):
        state.allow(mask_of([token_id], size))
    rows = [SamplingRow(index, state) for index, state in enumerate(states)]
    tokens = sampler.sample(np.zeros((size, size), np.float32), rows)
    assert [token.token_id for token in tokens] == list(range(size))


def test_words_of_another_kind_are_a_type_error() -> None:
    state = Sampler(4).start(make_request())
    wrong: list[Any] = [np.zeros(1, np.int64), np.zeros((1, 1), np.uint32), [1], None]
    for words in wrong:
        with pytest.raises(TypeError):
            state.allow(words)
