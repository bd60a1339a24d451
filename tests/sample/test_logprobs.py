import json
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.sample.sampling_builders import make_logits, make_row
from twostroke.sample.logprobs import best_logprobs, log_softmax
from twostroke.sample.sampler import Sampler


@given(st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=50))
def test_probabilities_sum_to_one_and_keep_the_ranking(values: list[float]) -> None:
    logprobs = log_softmax(make_logits(values)[0])
    assert logprobs.dtype == np.float32
    assert np.exp(logprobs.astype(np.float64)).sum() == pytest.approx(1.0, abs=1e-5)
    assert int(logprobs.argmax()) <= int(np.argmax(values))


@pytest.mark.parametrize("values", [[3e38, -3e38], [-3e38, -3e38], [0.0, -np.inf], [1e4, 1e4, 9e3]])
def test_extreme_logits_neither_overflow_nor_warn(values: list[float]) -> None:
    assert float(log_softmax(make_logits(values)[0])[0]) == pytest.approx(-math.log(values.count(values[0])), abs=1e-6)


def test_many_small_terms_are_not_lost() -> None:
    logits = np.zeros(1_000_000, dtype=np.float32)
    assert float(log_softmax(logits)[0]) == pytest.approx(-math.log(1_000_000), abs=1e-6)


def test_the_best_come_by_logprob_then_id() -> None:
    logits = make_logits([1, 5, 3, 5, 3, 3])[0]
    assert [entry.token_id for entry in best_logprobs(logits, 4)] == [1, 3, 2, 4]


def test_impossible_tokens_are_left_out_of_the_list() -> None:
    best = best_logprobs(make_logits([0, -np.inf, 0, -np.inf])[0], 20)
    assert [entry.token_id for entry in best] == [0, 2]
    json.dumps([entry.logprob for entry in best], allow_nan=False)


def test_reported_values_are_raw_whatever_the_filters_do() -> None:
    sampler = Sampler(4)
    logits = make_logits([1.0, 2.0, 3.0, 4.0])
    raw = log_softmax(logits[0])
    row = make_row(
        sampler, temperature=5.0, top_k=1, repetition_penalty=1.9, presence_penalty=1.0, logprobs=20, prompt=[2, 3]
    )
    (token,) = sampler.sample(logits, [row])
    assert token.logprob == float(raw[token.token_id])
    assert [(entry.token_id, entry.logprob) for entry in token.top_logprobs] == [
        (index, float(raw[index])) for index in (3, 2, 1, 0)
    ]


def test_the_sampled_token_is_reported_also_outside_the_best() -> None:
    sampler = Sampler(3)
    logits = make_logits([9.0, 8.0, 6.0])
    row = make_row(sampler, temperature=0.0, presence_penalty=2.0, frequency_penalty=2.0, logprobs=1)
    for token_id in (0, 0, 0, 1, 1):
        row.state.append(token_id)
    (token,) = sampler.sample(logits, [row])
    assert token.token_id == 2
    assert token.logprob == float(log_softmax(logits[0])[2])
    assert [entry.token_id for entry in token.top_logprobs] == [0]


def test_zero_alternatives_report_the_token_alone_and_none_reports_nothing() -> None:
    sampler = Sampler(2)
    alone, nothing = sampler.sample(
        make_logits([0, 1], [0, 1]), [make_row(sampler, logprobs=0), make_row(sampler, logprobs=None)]
    )
    assert alone.logprob is not None
    assert alone.top_logprobs == ()
    assert (nothing.logprob, nothing.top_logprobs) == (None, ())
