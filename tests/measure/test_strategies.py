"""Strategies asked the same thing: their answers, and scores that an independent count of the logits confirms."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.builders_gguf import write_llama
from tests.builders_llm import ANSWER, open_llm, write_puppet
from twostroke.errors import CapacityError
from twostroke.llm import LLM
from twostroke.measure.strategies import compare_strategies
from twostroke.params import BeamSearch, SamplingParams

PROMPT = [5, 6, 7]
WISHES = [
    SamplingParams(max_tokens=6, ignore_eos=True),
    SamplingParams(max_tokens=6, ignore_eos=True, temperature=1.2, seed=3),
    SamplingParams(max_tokens=6, ignore_eos=True, beam=BeamSearch(width=3)),
]


@pytest.fixture(scope="module")
def random_llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with open_llm(write_llama(tmp_path_factory.mktemp("random") / "llama.gguf", tensor_type="Q8_0")) as one:
        yield one


def test_each_answers_as_it_would_alone(random_llm: LLM) -> None:
    outcomes = compare_strategies(random_llm, PROMPT, WISHES)
    alone = [random_llm.submit(PROMPT, wish).result(20).token_ids for wish in WISHES]
    assert [outcome.result.token_ids for outcome in outcomes] == alone


def test_scores_are_those_of_the_models_own_distribution(random_llm: LLM) -> None:
    for outcome in compare_strategies(random_llm, PROMPT, WISHES):
        answer = list(outcome.result.token_ids)
        logits = random_llm.logits([*PROMPT, *answer]).astype(np.float64)
        total, entropies = 0.0, []
        for position, token_id in enumerate(answer, len(PROMPT) - 1):
            weights = np.exp(logits[position] - logits[position].max())
            probabilities = weights / weights.sum()
            total += np.log(probabilities[token_id])
            entropies.append(-(probabilities * np.log(probabilities)).sum())
        assert outcome.logprob == pytest.approx(total)
        assert outcome.entropy == pytest.approx(np.mean(entropies))


def test_a_search_is_at_least_as_likely_as_greedy(random_llm: LLM) -> None:
    greedy, _, search = compare_strategies(random_llm, PROMPT, WISHES)
    assert search.logprob is not None
    assert greedy.logprob is not None
    assert search.logprob >= greedy.logprob - 1e-9
    assert search.result.beams[0].score == pytest.approx(search.logprob / 6, abs=1e-4)


def test_a_certain_answer_has_no_entropy(tmp_path: Path) -> None:
    with open_llm(write_puppet(tmp_path / "puppet.gguf")) as llm:
        (outcome,) = compare_strategies(llm, "why?", [SamplingParams()])
        assert outcome.result.text == ANSWER
        assert outcome.entropy == pytest.approx(0.0, abs=1e-6)
        assert outcome.logprob == pytest.approx(0.0, abs=1e-6)


def test_one_that_cannot_run_stops_those_before_it(random_llm: LLM) -> None:
    with pytest.raises(CapacityError, match="beams"):
        compare_strategies(random_llm, PROMPT, [WISHES[0], SamplingParams(beam=BeamSearch(width=99), max_tokens=6)])
    assert random_llm.snapshot().blocks_held == 0
