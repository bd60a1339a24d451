"""Several ways to choose tokens, asked the same thing in one batch: what each said and how likely the model found it.

Called by `twostroke compare`. Log-probabilities and entropies are read off the model's own logits of the finished text,
so they mean the same for every strategy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twostroke.core.report import PhaseReport, Result
from twostroke.errors import RequestError
from twostroke.handle import Handle
from twostroke.params import SamplingParams
from twostroke.prompt import Prompt

if TYPE_CHECKING:
    from twostroke.llm import LLM


@dataclass(frozen=True, slots=True)
class Outcome:
    """One strategy's answer. Sums over its tokens in nats; None for an answer without a token."""

    result: Result
    report: PhaseReport
    logprob: float | None  # of the whole answer, before temperature and filters
    entropy: float | None  # mean over its tokens, of the distribution each was chosen from


def compare_strategies(llm: "LLM", prompt: Prompt, wishes: Sequence[SamplingParams]) -> list[Outcome]:
    """Start all at once, wait for all, then score each text. Raises RequestError for the first that failed."""
    prompt_ids = llm.encode(prompt)
    handles: list[Handle] = []
    try:
        handles.extend(llm.submit(prompt, wish) for wish in wishes)  # keeps those before one that is refused
        results = [handle.result() for handle in handles]
    except BaseException:  # Ctrl-C too: nothing goes on unheard
        for handle in handles:
            handle.cancel()
        raise
    for wish, result in zip(wishes, results, strict=True):
        if result.error is not None:
            raise RequestError(f"{wish}: {result.error}")
    return [_outcome(llm, prompt_ids, result) for result in results]


def _outcome(llm: "LLM", prompt_ids: list[int], result: Result) -> Outcome:
    report = llm.report(result, None)
    answer = list(result.token_ids)
    if not answer:
        return Outcome(result, report, None, None)
    logits = llm.logits([*prompt_ids, *answer[:-1]])[len(prompt_ids) - 1 :].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    totals = weights.sum(axis=1)
    logprobs = logits[np.arange(len(answer)), answer] - np.log(totals)
    # of an impossible token -inf * 0 would be NaN: it adds nothing
    means = np.where(weights > 0, weights * logits, 0.0).sum(axis=1) / totals
    return Outcome(result, report, float(logprobs.sum()), float((np.log(totals) - means).mean()))
