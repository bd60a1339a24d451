"""Laws found again from the times they give; laws that do not hold are refused for tables."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.examples import examples
from tests.measure.dyno_builders import COUNTS, LIMITS, START, TRUTH, timings_of
from twostroke.core.step_cost import Curve, Law, StepCost, Table
from twostroke.measure.dyno_fit import MAX_ERROR, errors_of, fit_cost
from twostroke.measure.dyno_shapes import calibration_shapes
from twostroke.measure.dyno_steps import Timing
from twostroke.program.cost import Row

HELD_OUT = (
    (Row(700, 1),) * 3 + (Row(0, 100),),
    (Row(6000, 1),),
    (Row(300, 1),) * 9,
    (Row(1500, 48, False), Row(40, 1), Row(0, 20)),
    (Row(0, 5, False),),
)


@st.composite
def machines(draw: st.DrawFn) -> StepCost:
    """Up to four times slower than the peaks, on either side, with any overlap."""

    def law(guess: Curve) -> Law:
        reads_s, unit_s = guess.split(1)
        slower = st.floats(1.0, 4.0)
        return Law(reads_s * draw(slower), unit_s * draw(slower), draw(st.floats(1.1, 6.0)))

    linear = law(START.linear)
    return replace(
        START,
        row_s=draw(st.floats(1e-6, 20e-6)),
        linear=linear,
        head=replace(law(START.head), sharpness=linear.sharpness),
        attention=law(START.attention),
    )


@given(machines())
@examples(25)
def test_a_known_law_is_found_again(machine: StepCost) -> None:
    fit = fit_cost(timings_of(machine), start=START)
    assert not fit.is_table
    assert fit.max_error < 0.02
    for shape in HELD_OUT:
        assert fit.cost.seconds(shape) == pytest.approx(machine.seconds(shape), rel=0.05)


@given(st.integers(0, 1000))
@examples(15)
def test_noise_of_some_percent_moves_predictions_no_more_than_that(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.03, 100)
    timings = [Timing(t.shape, t.seconds * (1 + float(n))) for t, n in zip(timings_of(TRUTH), noise, strict=False)]
    fit = fit_cost(timings, start=START)
    errors = [abs(fit.cost.seconds(shape) / TRUTH.seconds(shape) - 1) for shape in HELD_OUT]
    assert max(errors) < 0.10


def test_every_term_is_finite_and_not_negative() -> None:
    cost = fit_cost(timings_of(TRUTH), start=START).cost
    for curve in (cost.linear, cost.head, cost.attention):
        assert min(curve.split(1)) >= 0
    assert cost.windows == COUNTS.windows
    assert (cost.base_s, cost.sample_s) == (START.base_s, START.sample_s)


def stepped(timing: Timing) -> Timing:
    """A machine that takes twice as long from 16 to 64 tokens: no law of ours."""
    tokens = sum(row.num_tokens for row in timing.shape)
    is_slow = 16 <= tokens <= 64 and timing.shape[0].start_pos == 0
    return Timing(timing.shape, timing.seconds * (2.0 if is_slow else 1.0))


def test_a_law_that_does_not_hold_is_refused_and_the_table_kept() -> None:
    timings = [stepped(timing) for timing in timings_of(TRUTH)]
    fit = fit_cost(timings, start=START)
    assert fit.is_table
    assert max(map(abs, fit.law_errors)) > MAX_ERROR
    assert isinstance(fit.cost.linear, Table)
    for timing, error in zip(timings, fit.errors, strict=True):
        if len(timing.shape) == 1 and not timing.shape[0].needs_logits and not timing.shape[0].start_pos:
            assert abs(error) < 0.02, timing.shape
    assert np.median(np.abs(fit.errors)) < np.median(np.abs(fit.law_errors))


def test_tables_of_a_lawful_machine_predict_it_between_their_points() -> None:
    timings = [stepped(timing) for timing in timings_of(TRUTH)]
    cost = fit_cost(timings, start=START).cost
    for shape in ((Row(0, 200, False),), (Row(0, 400, False),), (Row(3000, 1),)):
        assert cost.seconds(shape) == pytest.approx(TRUTH.seconds(shape), rel=0.15)


def test_a_model_too_small_for_depth_is_fitted_without_it() -> None:
    small = replace(LIMITS, context=100, max_rows=2)
    shapes = calibration_shapes(small)
    assert all(row.start_pos == 0 for shape in shapes for row in shape)
    fit = fit_cost(timings_of(TRUTH, shapes), start=START)
    assert fit.max_error < 0.05


def test_errors_are_signed_and_relative() -> None:
    timing = Timing((Row(0, 8, False),), 2 * TRUTH.seconds((Row(0, 8, False),)))
    (error,) = errors_of(TRUTH, [timing])
    assert error == pytest.approx(-0.5)
