"""A load added up: rates, percentiles, goodput, errors by kind, and the same answers in other tools' words.

Percentiles are of the raw samples, linear between neighbours. Failed requests count as errors and in no latency.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from twostroke.traffic.outcome import Outcome, gaps_of

PERCENTS = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, percentiles (in the order of PERCENTS) and largest of a number of samples."""

    count: int
    mean: float
    percentiles: tuple[float, ...]
    highest: float


def spread_of(samples: Iterable[float | None]) -> Spread | None:
    """None of no sample; a sample that does not exist is left out."""
    known = sorted(sample for sample in samples if sample is not None)
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    return Spread(len(known), mean, tuple(percentile(known, percent) for percent in PERCENTS), known[-1])


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Linear between the two samples around it."""
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a user is promised; None promises nothing."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    @property
    def is_stated(self) -> bool:
        return self.ttft_s is not None or self.tpot_s is not None

    def is_met(self, outcome: Outcome) -> bool:
        """An answer of one token has no TPOT to miss."""
        return all(
            limit is None or value is None or value <= limit
            for limit, value in ((self.ttft_s, outcome.ttft_s), (self.tpot_s, outcome.tpot_s))
        )


@dataclass(frozen=True, slots=True)
class OtherWords:
    """One number as another tool defines it, ours beside it in the report."""

    tool: str
    name: str
    spread: Spread | None
    why: str  # it differs, or does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One load. `duration_s` runs from the first request sent to the last end."""

    num_planned: int
    num_sent: int
    num_answered: int
    errors: tuple[tuple[str, int, str], ...]  # kind, how often, an example's words
    duration_s: float
    ttft: Spread | None
    tpot: Spread | None
    itl: Spread | None
    e2e: Spread | None
    late: Spread | None  # open loop: sent after due
    asked_rate_per_s: float | None  # what was wished for, where a rate was
    due_rate_per_s: float | None  # of the arrivals drawn or read for it
    sent_rate_per_s: float | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    num_text_chunks: int
    num_empty_chunks: int
    num_comments: int
    num_other_prompts: int  # prompts whose length by the server's usage is not the asked one
    num_other_outputs: int
    has_usage: bool
    num_good: int | None  # answers that met the objective; None without one
    others: tuple[OtherWords, ...]

    @property
    def requests_per_s(self) -> float | None:
        return self._per_s(self.num_answered)

    @property
    def output_per_s(self) -> float | None:
        return self._per_s(self.output_tokens)

    @property
    def prompt_per_s(self) -> float | None:
        return self._per_s(self.prompt_tokens)

    @property
    def goodput_per_s(self) -> float | None:
        return None if self.num_good is None else self._per_s(self.num_good)

    def _per_s(self, count: float) -> float | None:
        return count / self.duration_s if self.duration_s > 0 else None


def summarise(
    outcomes: Sequence[Outcome], *, num_planned: int, objective: Objective, asked_rate_per_s: float | None = None
) -> Summary:
    """Add up everything that was sent."""
    answered = [outcome for outcome in outcomes if outcome.error is None]
    start_s = min((outcome.sent_s for outcome in outcomes), default=0.0)
    dues = [outcome.due_s for outcome in outcomes if outcome.due_s is not None]
    return Summary(
        num_planned=num_planned,
        num_sent=len(outcomes),
        num_answered=len(answered),
        errors=_errors(outcomes),
        duration_s=max((outcome.end_s for outcome in outcomes), default=0.0) - start_s,
        ttft=spread_of(outcome.ttft_s for outcome in answered),
        tpot=spread_of(outcome.tpot_s for outcome in answered),
        itl=spread_of(gap for outcome in answered for gap in outcome.itls_s),
        e2e=spread_of(outcome.e2e_s for outcome in answered),
        late=spread_of(outcome.late_s for outcome in outcomes),
        asked_rate_per_s=asked_rate_per_s,
        due_rate_per_s=_rate(dues),
        sent_rate_per_s=_rate([outcome.sent_s for outcome in outcomes]),
        prompt_tokens=sum(_prompt_tokens(outcome) for outcome in answered),
        output_tokens=sum(outcome.num_tokens for outcome in answered),
        cached_tokens=sum(outcome.cached_tokens or 0 for outcome in answered),
        num_text_chunks=sum(len(outcome.text_times) for outcome in answered),
        num_empty_chunks=sum(outcome.num_empty for outcome in answered),
        num_comments=sum(outcome.num_comments for outcome in answered),
        num_other_prompts=sum(_prompt_tokens(outcome) != outcome.wanted_prompt for outcome in answered),
        num_other_outputs=sum(outcome.num_tokens != outcome.wanted_output for outcome in answered),
        has_usage=all(outcome.output_tokens is not None for outcome in answered),
        num_good=sum(map(objective.is_met, answered)) if objective.is_stated else None,
        others=other_words(answered),
    )


def _prompt_tokens(outcome: Outcome) -> int:
    return outcome.wanted_prompt if outcome.prompt_tokens is None else outcome.prompt_tokens


def _rate(times_s: Sequence[float]) -> float | None:
    """Arrivals per second between the first and the last."""
    ordered = sorted(times_s)
    lasted_s = ordered[-1] - ordered[0] if ordered else 0.0
    return (len(ordered) - 1) / lasted_s if lasted_s > 0 else None


def _errors(outcomes: Sequence[Outcome]) -> tuple[tuple[str, int, str], ...]:
    counts = Counter(outcome.error for outcome in outcomes if outcome.error is not None)
    examples = {outcome.error: outcome.problem for outcome in reversed(outcomes)}
    return tuple((kind, count, examples[kind]) for kind, count in counts.most_common())


def other_words(answered: Sequence[Outcome]) -> tuple[OtherWords, ...]:
    """What other tools would print for the same answers, from their public definitions."""

    def of(value: Callable[[Outcome], float | None]) -> Spread | None:
        return spread_of(map(value, answered))

    return (
        OtherWords(
            "vllm bench serve",
            "TTFT",
            of(lambda one: one.choice_times[0] - one.sent_s if one.choice_times else None),
            "to the first chunk with choices, also one that only says who speaks",
        ),
        OtherWords(
            "vllm bench serve",
            "TPOT",
            of(_tpot_of_choices),
            "(E2E - TTFT) / (tokens - 1) over chunks with choices: one that only ends the answer counts",
        ),
        OtherWords(
            "vllm bench serve",
            "ITL",
            spread_of(gap for one in answered for gap in gaps_of(one.choice_times)),
            "gaps between chunks with choices, however many tokens they have",
        ),
        OtherWords("aiperf, genai-perf", "ITL", of(lambda one: one.tpot_s), "our TPOT under that name"),
        OtherWords(
            "aiperf",
            "ICL",
            spread_of(gap for one in answered for gap in gaps_of(one.text_times)),
            "gaps between chunks with text, however many tokens they have",
        ),
        OtherWords(
            "guidellm",
            "TPOT",
            of(lambda one: (one.text_times[-1] - one.sent_s) / one.num_tokens if one.num_tokens else None),
            "(last token - start) / tokens: prefill is inside",
        ),
        OtherWords(
            "llmperf",
            "ITL",
            of(lambda one: one.e2e_s / one.num_tokens if one.num_tokens else None),
            "mean over all tokens, TTFT among the gaps",
        ),
        OtherWords("llama-bench", "-", None, "no server, tokenizer or sampler: its tok/s are those of twostroke bench"),
    )


def _tpot_of_choices(one: Outcome) -> float | None:
    if one.num_tokens < 2 or not one.choice_times:
        return None
    return (one.choice_times[-1] - one.choice_times[0]) / (one.num_tokens - 1)
