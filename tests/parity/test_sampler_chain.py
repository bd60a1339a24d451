"""Native draws with every sampler, in every order, equal the definition token for token and state for state."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from tests.sample.sampling_builders import make_request, mask_of
from tests.sample.test_reference import ISAS, logit_rows
from twostroke.params import SamplingParams
from twostroke.sample.random import NoiseKey
from twostroke.sample.reference import Spelled, choose, first_limit, next_limit, report
from twostroke.sample.sampler import NO_TOKEN, Sampler, SamplingRow
from twostroke.samplers import SAMPLERS

FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "top_k": st.sampled_from([1, 2, 40, 900]),
        "top_p": st.sampled_from([1e-9, 0.5, 0.95, 1 - 1e-9]),
        "min_p": st.sampled_from([1e-300, 0.05, 0.999, 1.0]),
        "typical_p": st.sampled_from([1e-9, 0.2, 0.5, 0.95, 1 - 1e-12]),
        "top_n_sigma": st.sampled_from([1e-9, 0.5, 1.0, 3.0, 1e300]),
        "xtc_probability": st.sampled_from([0.5, 1.0]),
    },
)
MIROSTAT = st.fixed_dictionaries(
    {"mirostat_tau": st.sampled_from([1e-3, 0.5, 3.0, 8.0, 1e300]), "mirostat_eta": st.sampled_from([0.01, 0.1, 1.0])}
)
OTHERS = st.fixed_dictionaries(
    {},
    optional={
        "xtc_threshold": st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
        "dynatemp_range": st.sampled_from([1e-300, 0.3, 0.8, 5.0, 1e300]),
        "dynatemp_exponent": st.sampled_from([0.0, 1e-3, 0.5, 1.0, 3.0, 1e300]),
        "repetition_penalty": st.sampled_from([1.3, 0.5]),
        "presence_penalty": st.sampled_from([0.5, -2.0]),
        "frequency_penalty": st.sampled_from([0.25, -1.0]),
        "penalty_last_n": st.sampled_from([-1, 0, 1, 3, 10**6]),
        "dry_multiplier": st.sampled_from([0.1, 0.8, 1e300]),
        "dry_base": st.sampled_from([1.0, 1.75, 1e200]),
        "dry_allowed_length": st.integers(1, 4),
        "dry_penalty_last_n": st.sampled_from([-1, 0, 1, 5, 10**6]),
        "no_repeat_ngram_size": st.integers(0, 4),
        "logprobs": st.sampled_from([0, 5]),
        "logit_bias": st.just(((0, 1.5), (1, -100.0))),
    },
)
TEMPERATURES = st.sampled_from([1e-300, 0.5, 1.0, 1.7, 1e300])


def run(
    rows: NDArray[np.float32],
    prompt: list[int],
    *,
    isa: str,
    allowed: list[int] | None,
    spelled: Spelled,
    **params: Any,
) -> None:
    """Draw a token of each row in turn, each from the state that the ones before left, both ways."""
    size = rows.shape[1]
    sampler = Sampler(size, isa=isa)
    request = make_request(prompt=prompt, bad_ids=spelled.bad_words, breakers=spelled.breakers, **params)
    state = sampler.start(request)
    wishes = SamplingParams(**params)
    limit = first_limit(wishes)
    output: list[int] = []
    banned = None
    if allowed is not None:
        state.allow(mask_of(allowed, size))
        banned = np.array(sorted(set(range(size)) - set(allowed)), np.intp)
    for row in rows:
        (token,) = sampler.sample(row[np.newaxis], [SamplingRow(0, state)])
        key = NoiseKey(request.seed, 0, len(prompt) + len(output))
        expected = choose(
            row, prompt, output, params=wishes, key=key, banned=banned, spelled=spelled, surprise_limit=limit
        )
        assert token.token_id == (NO_TOKEN if expected is None else expected.token_id)
        if expected is None:
            return
        if wishes.logprobs is not None:
            assert (token.logprob, token.top_logprobs) == report(row, expected.token_id, num_best=wishes.logprobs)
        output.append(expected.token_id)
        state.append(expected.token_id)
        if limit is not None:
            limit = next_limit(limit, expected.surprise, params=wishes)
            assert state.surprise_limit == limit


@pytest.mark.parametrize("isa", ISAS)
@given(
    logits=logit_rows(),
    filters=FILTERS | MIROSTAT,
    others=OTHERS,
    temperature=TEMPERATURES,
    order=st.permutations(SAMPLERS),
    data=st.data(),
)
@settings(max_examples=200)
def test_every_sampler_in_every_order_gives_the_defined_tokens(
    isa: str,
    logits: NDArray[np.float32],
    filters: dict[str, Any],
    others: dict[str, Any],
    temperature: float,
    order: list[str],
    data: st.DataObject,
) -> None:
    size = len(logits)
    ids = st.integers(0, min(size, 5))  # few, so that much is repeated
    words = st.lists(st.lists(ids, min_size=1, max_size=3).map(tuple), max_size=3)
    rng = np.random.default_rng(size)
    rows = np.stack([logits, logits[::-1], logits[rng.permutation(size)]])
    run(
        rows,
        data.draw(st.lists(ids, min_size=1, max_size=30)),
        isa=isa,
        allowed=data.draw(st.none() | st.lists(st.integers(0, size - 1), max_size=12, unique=True)),
        spelled=Spelled(bad_words=data.draw(words), breakers=data.draw(words)),
        seed=data.draw(st.integers(0, 2**64 - 1)),
        temperature=temperature,
        sampler_order=tuple(order) if data.draw(st.booleans()) else SAMPLERS,
        **filters,
        **others,
    )
