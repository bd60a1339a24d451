from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.sample.sampling_builders import make_logits, make_row
from twostroke.params import SamplingParams
from twostroke.sample.penalties import penalised
from twostroke.sample.sampler import Sampler


def test_repetition_divides_positive_and_multiplies_negative_logits() -> None:
    logits = make_logits([2.0, -2.0, 0.0, 4.0])[0]
    result = penalised(logits, [0, 1, 2], [], params=SamplingParams(repetition_penalty=1.3))
    assert result.tolist() == pytest.approx([2.0 / 1.3, -2.6, 0.0, 4.0])


def test_presence_and_frequency_count_the_answer_alone() -> None:
    logits = make_logits([1.0, 1.0, 1.0])[0]
    params = SamplingParams(presence_penalty=2.0, frequency_penalty=0.5)
    result = penalised(logits, [0], [1, 1, 1], params=params)
    assert result.tolist() == pytest.approx([1.0, 1.0 - 2.0 - 1.5, 1.0])


def test_negative_penalties_encourage() -> None:
    logits = make_logits([1.0, 1.0])[0]
    result = penalised(logits, [], [1], params=SamplingParams(presence_penalty=-1.0, frequency_penalty=-0.5))
    assert result.tolist() == pytest.approx([1.0, 2.5])


def test_repetition_comes_before_presence_and_frequency() -> None:
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=0.25)
    assert penalised(make_logits([8.0])[0], [], [0, 0], params=params)[0] == pytest.approx(8.0 / 2 - 1.0 - 0.5)


def test_the_models_logits_stay_as_they_were() -> None:
    logits = make_logits([1.0, 2.0])[0]
    penalised(logits, [0], [1], params=SamplingParams(repetition_penalty=1.5))
    assert logits.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("penalty", [5e-324, 1e-300, 1e300, 1.7e308])
def test_extreme_penalties_stay_finite_and_keep_bans(penalty: float) -> None:
    logits = make_logits([3.0, -3.0, 0.0, -np.inf])[0]
    result = penalised(logits, [0, 1, 2, 3], [], params=SamplingParams(repetition_penalty=penalty))
    assert np.isfinite(result[:3]).all()
    assert result[3] == -np.inf


def test_tokens_beyond_the_row_are_ignored() -> None:
    logits = make_logits([2.0, 2.0])[0]
    assert penalised(logits, [1, 7], [], params=SamplingParams(repetition_penalty=2.0)).tolist() == [2.0, 1.0]


@given(
    st.lists(st.integers(0, 12), max_size=20),
    st.lists(st.integers(0, 9), max_size=40),
    st.sampled_from([{"repetition_penalty": 1.5}, {"presence_penalty": 0.7}, {"frequency_penalty": 0.4}]),
)
def test_the_native_sampler_counts_token_by_token_what_the_definition_counts_afresh(
    prompt: list[int], output: list[int], penalty: dict[str, Any]
) -> None:
    logits = make_logits([1.0 - 0.1 * token_id for token_id in range(10)])[0]
    sampler = Sampler(10)
    row = make_row(sampler, prompt=prompt, **penalty)
    for token_id in output:
        row.state.append(token_id)
    (token,) = sampler.sample(logits[np.newaxis], [row])
    assert token.token_id == int(penalised(logits, prompt, output, params=SamplingParams(**penalty)).argmax())


@pytest.mark.oracle
@pytest.mark.parametrize("penalty", [0.7, 1.0, 1.3])
def test_repetition_equals_transformers(penalty: float) -> None:
    torch = pytest.importorskip("torch")
    logits_process = pytest.importorskip("transformers.generation.logits_process")
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, 50).astype(np.float32)
    seen = rng.integers(0, 50, 20).tolist()
    processor = logits_process.RepetitionPenaltyLogitsProcessor(penalty)
    theirs = processor(torch.tensor([seen]), torch.tensor(logits)[None])[0].numpy()
    ours = penalised(logits, seen[:10], seen[10:], params=SamplingParams(repetition_penalty=penalty))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
