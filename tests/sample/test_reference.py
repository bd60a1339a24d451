"""Native draws equal the definition token for token, logprobs bit for bit, on every ISA of this machine."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from tests.examples import examples
from tests.sample.sampling_builders import make_request, mask_of
from twostroke import _native
from twostroke.core.step import SampledToken
from twostroke.params import SamplingParams
from twostroke.sample.arithmetic import units_of
from twostroke.sample.random import NoiseKey, gumbel, words_of
from twostroke.sample.reference import choose_token, report, scores_of, survivors
from twostroke.sample.sampler import NO_TOKEN, Sampler, SamplingRow

ISAS = _native.usable_isas()
SIZES = [1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 1000, 4097]  # around lanes and blocks of the kernels
SPREADS = [0.0, 1e-40, 1e-3, 1.0, 3.0, 30.0, 1e30]

params_space: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 1e-300, 1e-3, 0.8, 1.0, 2.0, 50.0, 1e300]),
        "top_k": st.sampled_from([None, 0, 1, 2, 40, 64, 900, 10**12]),
        "top_p": st.sampled_from([1.0, 1e-9, 0.5, 0.95, 0.999, 1 - 1e-9]),
        "min_p": st.sampled_from([0.0, 1e-300, 1e-6, 0.05, 0.999, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.1, 0.5, 1e300, 5e-324]),
        "presence_penalty": st.sampled_from([0.0, 0.5, -2.0]),
        "frequency_penalty": st.sampled_from([0.0, 0.25, -1.0]),
        "logprobs": st.sampled_from([None, 0, 5, 20]),
    }
)


@st.composite
def logit_rows(draw: st.DrawFn) -> NDArray[np.float32]:
    """Random rows with what is hard: ties, bans, infinities, NaN, denormals, a large offset."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from(SIZES))
    logits = (rng.normal(0, 1, size) * draw(st.sampled_from(SPREADS))).astype(np.float32)
    if draw(st.booleans()):
        logits = np.round(logits, 1)
    logits[rng.random(size) < draw(st.sampled_from([0.0, 0.0, 0.01, 0.5, 0.99]))] = -np.inf
    logits += np.float32(draw(st.sampled_from([0.0, 0.0, 100.0, 1e5, -1e4])))
    odd = draw(st.sampled_from([0.0] * 8 + [-0.0, math.nan, math.inf]))
    logits[rng.integers(size)] = odd
    return logits


def draw_natively(
    logits: NDArray[np.float32],
    prompt: list[int],
    output: list[int],
    *,
    key: NoiseKey,
    isa: str,
    allowed: list[int] | None = None,
    end_ids: list[int] | None = None,
    **params: Any,
) -> SampledToken:
    sampler = Sampler(len(logits), isa=isa)
    request = make_request(prompt=prompt, seed=key.seed, end_ids=end_ids or (), **params)
    state = sampler.start(request, choice_index=key.choice_index)
    if allowed is not None:
        state.allow(mask_of(allowed, len(logits)))
    for token_id in output:
        state.append(token_id)
    assert state.position == key.position
    (token,) = sampler.sample(logits[np.newaxis], [SamplingRow(0, state)])
    return token


def hold_to_the_definition(
    logits: NDArray[np.float32],
    prompt: list[int],
    output: list[int],
    *,
    key: NoiseKey,
    allowed: list[int] | None = None,
    end_ids: list[int] | None = None,
    **params: Any,
) -> None:
    """What every instruction set draws is the one token that the definition says."""
    banned = set(range(len(logits))) - set(allowed) if allowed is not None else set()
    if len(output) < params.get("min_tokens", 0):
        banned |= set(end_ids or ())
    places = np.array(sorted(banned), np.intp)
    expected = choose_token(logits, prompt, output, params=SamplingParams(**params), key=key, banned=places)
    told = None
    if expected is not None and params.get("logprobs") is not None:
        told = report(logits, expected, num_best=params["logprobs"])
    for isa in ISAS:
        token = draw_natively(logits, prompt, output, key=key, isa=isa, allowed=allowed, end_ids=end_ids, **params)
        assert token.token_id == (NO_TOKEN if expected is None else expected), isa
        if told is not None:
            assert (token.logprob, token.top_logprobs) == told, isa


@given(
    logits=logit_rows(),
    params=params_space,
    seed=st.integers(0, 2**64 - 1),
    choice_index=st.integers(0, 3),
    data=st.data(),
)
@examples(250)
def test_every_row_under_all_parameters_gives_the_defined_token(
    logits: NDArray[np.float32], params: dict[str, Any], seed: int, choice_index: int, data: st.DataObject
) -> None:
    prompt = data.draw(st.lists(st.integers(0, len(logits) + 2), min_size=1, max_size=20))
    output = data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=20))
    key = NoiseKey(seed, choice_index, len(prompt) + len(output))
    hold_to_the_definition(logits, prompt, output, key=key, **params)


@given(logits=logit_rows(), params=params_space, seed=st.integers(0, 2**64 - 1), data=st.data())
@examples(250)
def test_every_row_under_bans_and_biases_gives_the_defined_token(
    logits: NDArray[np.float32], params: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    ids = st.integers(0, len(logits) + 2)
    some = st.lists(st.integers(0, len(logits) - 1), max_size=12, unique=True)
    output = data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=3))
    bias = st.sampled_from([-100.0, -0.1, 0.0, 1e-30, 0.3, 100.0])
    hold_to_the_definition(
        logits,
        [1],
        output,
        key=NoiseKey(seed, 0, 1 + len(output)),
        allowed=data.draw(st.none() | some),
        end_ids=data.draw(st.lists(ids, max_size=3)),
        min_tokens=data.draw(st.integers(0, 4)),
        logit_bias=tuple(data.draw(st.dictionaries(ids, bias, max_size=70)).items()),
        **params,
    )


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0},
        {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "repetition_penalty": 1.1},
        {"temperature": 0.8, "top_k": 3000},
        {"temperature": 0.8, "top_p": 0.95, "logprobs": 20},
        {"temperature": 2.0, "top_p": 0.99, "min_p": 0.01},
        {"temperature": 0.8, "min_p": 0.01},
        {"temperature": 1.0, "logit_bias": ((49_151, 2.0), (0, -100.0)), "allowed": list(range(0, 49_152, 3))},
    ],
)
def test_a_vocabulary_of_real_size_gives_the_defined_tokens(spread: float, params: dict[str, Any]) -> None:
    """From all tokens alike, where everything survives, to a distribution with a peak."""
    rng = np.random.default_rng(6)
    for position in range(2, 6):
        logits = np.round(rng.normal(0, spread, 49_152), 2).astype(np.float32)
        hold_to_the_definition(logits, [7, 9], [11] * (position - 2), key=NoiseKey(3, 0, position), **params)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    "wish", [{"top_p": 0.3}, {"top_p": 0.77}, {"top_p": 0.9}, {"top_k": 33}, {"top_k": 20, "top_p": 0.5}]
)
def test_the_border_of_the_kept_is_exact(tied: bool, wish: dict[str, Any]) -> None:
    """Under seeds that give the last token kept, or the first one not kept, more noise than any other token has."""
    spread = 0.0 if tied else 1e-3
    logits = (np.random.default_rng(8).normal(0, 1, 130) * spread).astype(np.float32)
    params = {"temperature": 1.0, **wish}
    ranking, _ = survivors(logits, params=SamplingParams(temperature=1.0))
    kept, _ = survivors(logits, params=SamplingParams(**params))
    for token_id in (ranking[len(kept) - 1], ranking[len(kept)]):
        key = next(
            key
            for key in (NoiseKey(seed, 0, 1) for seed in range(10_000))
            if int((scores_of(logits, temperature=1.0) + gumbel(words_of(key, len(logits)))).argmax()) == token_id
        )
        drawn = choose_token(logits, [1], [], params=SamplingParams(**params), key=key)
        assert (drawn == token_id) == (token_id in kept)
        for isa in ISAS:
            assert draw_natively(logits, [1], [], key=key, isa=isa, **params).token_id == drawn, isa


@pytest.mark.parametrize("spread", [0.0, 1e-3, 0.5])
def test_the_border_of_top_p_is_exact_among_too_many_to_list(spread: float) -> None:
    """The token with the most noise is put on either side of the border."""
    logits = (np.random.default_rng(9).normal(0, 1, 3_000) * spread).astype(np.float32)
    ranking, scores = survivors(logits, params=SamplingParams(temperature=1.0))
    units = units_of(scores)
    mass = np.cumsum(units)
    for seed in range(12):
        key = NoiseKey(seed, 0, 1)
        place = int((scores + gumbel(words_of(key, len(logits)))[ranking]).argmax())
        for num_kept in (place, place + 1):
            top_p = float((mass[num_kept - 1] - units[num_kept - 1] // 2) / mass[-1])
            params = SamplingParams(temperature=1.0, top_p=top_p)
            assert len(survivors(logits, params=params)[0]) == num_kept
            drawn = choose_token(logits, [1], [], params=params, key=key)
            assert (drawn == ranking[place]) == (num_kept > place)
            for isa in ISAS:
                token = draw_natively(logits, [1], [], key=key, isa=isa, temperature=1.0, top_p=top_p)
                assert token.token_id == drawn, isa


def test_scores_are_logits_less_their_maximum_over_the_temperature() -> None:
    scores = scores_of(np.array([1.0, 3.0, -np.inf], dtype=np.float32), temperature=0.5)
    assert scores.dtype == np.float32
    assert scores.tolist() == [-4.0, 0.0, -np.inf]


def test_equal_logits_rank_by_id() -> None:
    ranking, _ = survivors(np.array([0, 3, 1, 3, 3, 1], dtype=np.float32), params=SamplingParams(temperature=1.0))
    assert ranking.tolist() == [1, 3, 4, 2, 5, 0]
