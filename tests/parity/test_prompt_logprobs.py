"""Log-probabilities of prompts: those decoding the same tokens reports, bit for bit, whatever happens around them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.builders import Listener
from tests.builders_drafts import Forced
from tests.builders_gguf import write_gemma3, write_llama
from tests.parity.test_schedules import BLOCK_SIZE, GREEDY, PROMPTS, QUIET, SEEDED, Lab, random_schedule
from twostroke._native import Candidates
from twostroke.core.account import StepRecord
from twostroke.core.request import Request
from twostroke.core.sequence import Sequence
from twostroke.core.step import ScoredToken, StepPlan
from twostroke.engine.bind import Binder
from twostroke.engine.wanted import Words
from twostroke.model.open import open_model
from twostroke.params import SamplingParams
from twostroke.program.program import BoundStep
from twostroke.sample.logprobs import best_logprobs, log_softmax

SCORED = replace(GREEDY, max_tokens=6, prompt_logprobs=2)
ALONE = SamplingParams(max_tokens=0, prompt_logprobs=2)


@pytest.fixture(scope="module", params=[write_llama, write_gemma3])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    path = request.param(tmp_path_factory.mktemp("model") / "model.gguf", tensor_type="Q8_0")
    return Lab(open_model(path), precision="bf16")


def scores_of(listener: Listener) -> tuple[ScoredToken, ...]:
    """What the first event of a request told; no later one tells anything."""
    assert listener.finish is not None
    first, *later = [*listener.tokens, listener.finish]
    assert not any(event.prompt_logprobs for event in later)
    return first.prompt_logprobs


def test_scores_are_what_decoding_the_same_tokens_reports(lab: Lab) -> None:
    decoded = [replace(params, logprobs=2) for params in (GREEDY, SEEDED)]
    lab.run(QUIET, [(prompt, params) for prompt in PROMPTS for params in decoded])
    answered = [
        (prompt, listener)
        for prompt, pair in zip(PROMPTS, zip(lab.told[::2], lab.told[1::2], strict=True), strict=True)
        for listener in pair
    ]
    lab.run(QUIET, [([*prompt, *listener.token_ids], ALONE) for prompt, listener in answered])
    for (prompt, listener), scored in zip(answered, lab.told, strict=True):
        scores = scores_of(scored)
        assert [score.token_id for score in scores] == [*prompt, *listener.token_ids]
        assert scores[0] == ScoredToken(prompt[0])
        behind = scores[len(prompt) :]
        assert [score.logprob for score in behind] == [token.logprob for token in listener.tokens]
        assert [score.top_logprobs for score in behind] == [token.top_logprobs for token in listener.tokens]


def test_scores_are_those_of_the_definition(lab: Lab) -> None:
    engine, _, _, _ = lab._engine(QUIET, None)
    prompt = PROMPTS[2]
    logits = engine.logits(prompt)
    lab.run(QUIET, [(prompt, SCORED)])
    for row, score in zip(logits, scores_of(lab.told[0])[1:], strict=False):
        logprobs = log_softmax(row)
        assert score.logprob == logprobs[score.token_id]
        assert score.top_logprobs == best_logprobs(row, 2)
        ranking = np.argsort(-row, kind="stable").tolist()
        assert score.rank == ranking.index(score.token_id) + 1


def test_no_schedule_changes_a_score_or_an_answer(lab: Lab) -> None:
    """Batches, chunks, prefixes that others have computed, preemption, threads."""
    plain = [(prompt, replace(GREEDY, max_tokens=6)) for prompt in PROMPTS]
    asked = [*((prompt, SCORED) for prompt in PROMPTS), *((prompt, ALONE) for prompt in PROMPTS), *plain]
    lab.run(QUIET, asked)
    expected = [(listener.token_ids, scores_of(listener)) for listener in lab.told]
    num = len(PROMPTS)
    assert [scores for _, scores in expected[:num]] == [scores for _, scores in expected[num : 2 * num]]
    assert [tokens for tokens, _ in expected[:num]] == [tokens for tokens, _ in expected[2 * num :]]
    assert [len(scores) for _, scores in expected[:num]] == [len(prompt) for prompt in PROMPTS]
    before = lab.num_preemptions, lab.num_hits
    for seed in range(12):
        lab.run(random_schedule(seed), asked)
        assert [(listener.token_ids, scores_of(listener)) for listener in lab.told] == expected, seed
    assert lab.num_preemptions > before[0], "no schedule preempted anybody"
    assert lab.num_hits > before[1], "no schedule read a cached prefix"


def test_a_cached_prefix_loses_no_position(lab: Lab) -> None:
    schedule = replace(QUIET, config=replace(QUIET.config, enable_prefix_cache=True))
    prompt = PROMPTS[4]
    assert len(prompt) > 2 * BLOCK_SIZE
    lab.run(schedule, [(prompt, GREEDY)])
    unscored = lab.told[0]
    lab.run(schedule, [(prompt, GREEDY), (prompt, replace(GREEDY, prompt_logprobs=0)), (prompt, GREEDY)])
    assert unscored.finish is not None
    for listener, is_scored in zip(lab.told, (False, True, False), strict=True):
        assert listener.token_ids == unscored.token_ids
        assert len(scores_of(listener)) == (len(prompt) if is_scored else 0)


def test_a_prompt_alone_ends_with_length_and_no_token(lab: Lab) -> None:
    lab.run(QUIET, [(prompt, ALONE) for prompt in PROMPTS])
    for prompt, listener in zip(PROMPTS, lab.told, strict=True):
        assert listener.finish is not None
        assert (listener.token_ids, listener.finish.reason) == ([], "length")
        assert (listener.finish.usage.prompt_tokens, listener.finish.usage.completion_tokens) == (len(prompt), 0)


class CountingBinder:
    """Keeps how many rows of logits every step asked for."""

    def __init__(self, binder: Binder) -> None:
        self.counts: list[int] = []
        self._binder = binder

    def bind(
        self, plan: StepPlan, sequences: Mapping[int, Sequence], *, wanted: Words | None, candidates: Candidates | None
    ) -> BoundStep:
        step = self._binder.bind(plan, sequences, wanted=wanted, candidates=candidates)
        self.counts.append(len(step.selected))
        return step


def test_a_step_holds_no_more_rows_of_logits_than_its_limit(lab: Lab) -> None:
    engine, _, _, scheduler = lab._engine(QUIET, None)
    binder = CountingBinder(engine._binder)
    engine._binder = binder  # type: ignore[assignment]
    prompt = PROMPTS[4]
    engine.add(
        Request(request_id="r", prompt_token_ids=tuple(prompt), params=SCORED, arrival_s=0.0, seed=1), Listener()
    )
    while engine.has_work:
        engine.step()
    assert sum(binder.counts) == len(prompt) + SCORED.max_tokens - 1
    assert max(binder.counts) <= scheduler.config.max_scored_tokens, "not even with the newest token"


@pytest.mark.parametrize("length", [1, 8])
def test_drafts_beside_prompts_that_are_scored_change_no_score_and_no_answer(lab: Lab, length: int) -> None:
    """A step then has rows of logits of both kinds, several to a row; those that are scored have drafts of their own
    once they decode, and reports of each token."""
    plain = [(prompt, replace(SEEDED, max_tokens=20, logprobs=1)) for prompt in PROMPTS]
    asked = [*((prompt, replace(SCORED, max_tokens=16, logprobs=2)) for prompt in PROMPTS), *plain]
    lab.run(QUIET, asked)
    answers = lab.answers
    expected = [_told(listener) for listener in lab.told]
    mixed = 0
    for seed in range(6):
        schedule, steps = random_schedule(seed), list[StepRecord]()
        forced = Forced(answers, length=length, wrong=0.3, seed=seed)
        lab.run(schedule, asked, speculator=forced, steps=steps)
        assert [_told(listener) for listener in lab.told] == expected, seed
        assert 0 < forced.num_accepted < forced.num_drafted
        mixed += sum(any(row.num_scored for row in step.rows) and _drafts(step) > 0 for step in steps)
    assert mixed > 0, "no step verified a draft beside a prompt that was scored"


def _told(listener: Listener) -> object:
    reports = [(token.logprob, token.top_logprobs) for token in listener.tokens]
    return listener.token_ids, reports, scores_of(listener)


def _drafts(step: StepRecord) -> int:
    return sum(len(row.draft_token_ids) for row in step.rows)


def test_a_prompt_that_was_not_read_to_its_end_tells_no_scores(lab: Lab) -> None:
    engine, _, _, _ = lab._engine(QUIET, None)
    listener, prompt = Listener(), PROMPTS[4]
    engine.add(Request(request_id="r", prompt_token_ids=tuple(prompt), params=SCORED, arrival_s=0.0, seed=1), listener)
    engine.step()
    engine.cancel("r")
    assert listener.finish is not None
    assert (listener.tokens, listener.finish.prompt_logprobs) == ([], ())


def test_several_scored_prompts_share_the_limit_of_a_step(lab: Lab) -> None:
    several = replace(QUIET, config=replace(QUIET.config, max_rows=4, max_step_s=100.0))
    steps: list[StepRecord] = []
    lab.run(several, [(prompt, ALONE) for prompt in PROMPTS], steps=steps)
    scored = [[row.num_scored for row in step.rows] for step in steps]
    assert max(map(sum, scored)) <= several.config.max_scored_tokens
    assert max(sum(num > 0 for num in each) for each in scored) > 1, "no step scored several prompts"
