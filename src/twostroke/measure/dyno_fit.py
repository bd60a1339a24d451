"""StepCost from timed steps: least squares on the logarithm of time, every term at least 0 and within bounds.

A law that misses any timed step by more than MAX_ERROR is refused; then each curve becomes the table of
what was measured. Pure functions on numbers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from twostroke.core.step_cost import Curve, Law, StepCost, Table
from twostroke.measure.dyno_shapes import Shape
from twostroke.measure.dyno_steps import Timing

MAX_ERROR = 0.15  # of a timed step: beyond it the law does not hold here
BOUND = 64.0  # a term lies within this factor of where the peaks of the machine would put it
MIN_SHARPNESS, MAX_SHARPNESS = 1.05, 12.0
MAX_ROUNDS = 200
NUDGE = 1e-4  # of a logarithm, for the derivatives
ENOUGH = 1e-7  # less improvement ends the search

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost and how far it is off at each timed step: predicted / measured - 1."""

    cost: StepCost
    errors: tuple[float, ...]
    is_table: bool
    law_errors: tuple[float, ...]  # of the law, kept where it was refused

    @property
    def max_error(self) -> float:
        return max(abs(error) for error in self.errors)


def fit_cost(timings: Sequence[Timing], *, start: StepCost) -> Fit:
    """The law where it holds, else tables. `start` has overheads, windows and first guesses of the curves."""
    law = _least_squares(timings, start)
    law_errors = errors_of(law, timings)
    if max(abs(error) for error in law_errors) <= MAX_ERROR:
        return Fit(law, law_errors, is_table=False, law_errors=law_errors)
    table = _tables(timings, law)
    return Fit(table, errors_of(table, timings), is_table=True, law_errors=law_errors)


def errors_of(cost: StepCost, timings: Sequence[Timing]) -> tuple[float, ...]:
    """predicted / measured - 1 of each timed step."""
    return tuple(cost.seconds(timing.shape) / timing.seconds - 1 for timing in timings)


def _least_squares(timings: Sequence[Timing], start: StepCost) -> StepCost:
    """Levenberg and Marquardt on logarithms of the terms (More 1978), which keeps them positive."""
    measured = np.log([timing.seconds for timing in timings])
    guess = _terms(start)
    low, high = guess - math.log(BOUND), guess + math.log(BOUND)
    low[-2:], high[-2:] = math.log(MIN_SHARPNESS - 1), math.log(MAX_SHARPNESS - 1)

    def miss(terms: FloatArray) -> FloatArray:
        cost = _cost(terms, start)
        return np.log([max(cost.seconds(timing.shape), 1e-12) for timing in timings]) - measured

    terms, damping = guess, 1e-2
    missed = miss(terms)
    for _ in range(MAX_ROUNDS):
        slopes = np.stack([(miss(terms + nudge) - missed) / NUDGE for nudge in NUDGE * np.eye(len(terms))], axis=1)
        normal, gradient = slopes.T @ slopes, slopes.T @ missed
        improved = 0.0
        while improved <= 0 and damping < 1e9:
            step = np.linalg.solve(normal + damping * np.eye(len(terms)), gradient)
            tried = np.clip(terms - step, low, high)
            missed_then = miss(tried)
            improved = float(missed @ missed - missed_then @ missed_then)
            damping *= 0.3 if improved > 0 else 4.0
        if improved > 0:
            terms, missed = tried, missed_then
        if improved < ENOUGH:
            break
    return _cost(terms, start)


def _terms(start: StepCost) -> FloatArray:
    """What is fitted, as logarithms: both sides of each curve, a row, and how sharply the sides overlap."""
    curves = (start.linear, start.head, start.attention)
    sides = [side for curve in curves for side in curve.split(1)]
    return np.log([max(term, 1e-12) for term in (*sides, max(start.row_s, 1e-6), 1.0, 1.0)])


def _cost(terms: FloatArray, start: StepCost) -> StepCost:
    linear_read, linear_unit, head_read, head_unit, position, pair, row, sharpness, attention_sharpness = (
        float(term) for term in np.exp(terms)
    )
    return replace(
        start,
        row_s=row,
        linear=Law(linear_read, linear_unit, 1 + sharpness),
        head=Law(head_read, head_unit, 1 + sharpness),
        attention=Law(position, pair, 1 + attention_sharpness),
    )


def _tables(timings: Sequence[Timing], law: StepCost) -> StepCost:
    """Each curve as measured: what is left of its own shapes when the other classes are taken off."""
    cost = law
    attention = _table(
        (shape[0].num_tokens, _rest(cost, timing) / positions)
        for timing in timings
        for shape, positions in [(timing.shape, _positions(cost, timing.shape))]
        if shape[0].start_pos
    )
    cost = replace(cost, attention=attention or cost.attention)
    without = replace(cost, linear=Law(0.0, 0.0, 1.0))
    linear = _table(
        (timing.shape[0].num_tokens, timing.seconds - without.seconds(timing.shape))
        for timing in timings
        if _is_plain_chunk(timing.shape)
    )
    cost = replace(cost, linear=linear or cost.linear)
    without = replace(cost, head=Law(0.0, 0.0, 1.0))
    head = _table(
        (len(timing.shape), timing.seconds - without.seconds(timing.shape))
        for timing in timings
        if timing.shape[0].needs_logits and not timing.shape[0].start_pos
    )
    return replace(cost, head=head or cost.head)


def _rest(cost: StepCost, timing: Timing) -> float:
    """Seconds of attention in a step, the other classes as the law has them."""
    return timing.seconds - replace(cost, attention=Law(0.0, 0.0, 1.0)).seconds(timing.shape)


def _positions(cost: StepCost, shape: Shape) -> float:
    """Positions seen per token, summed over the rows: what `attention` is multiplied by."""
    unit = replace(cost, row_s=0.0, attention=Law(1.0, 0.0, 1.0))
    return sum(unit.row_seconds(row.start_pos, row.num_tokens) for row in shape)


def _is_plain_chunk(shape: Shape) -> bool:
    return len(shape) == 1 and not shape[0].needs_logits and not shape[0].start_pos


def _table(points: Iterable[tuple[int, float]]) -> Curve | None:
    """Medians per size, never descending; None without points."""
    seen: dict[int, list[float]] = {}
    for size, seconds in points:
        seen.setdefault(size, []).append(max(seconds, 0.0))
    table: list[tuple[float, float]] = []
    for size in sorted(seen):
        table.append((float(size), max(median(seen[size]), table[-1][1] if table else 0.0)))
    return Table(tuple(table)) if table else None
