"""The dyno: the measured profile of this machine running one model, in at most 20 seconds.

It times whole steps of the real program, fits StepCost to them and measures what surrounds them. Called by
doors; load.py reads the cost it leaves, the scheduler and the engine never hear of it.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from twostroke import _native
from twostroke.core.clock import Clock
from twostroke.core.cost_file import CostKey
from twostroke.core.peaks import Peaks
from twostroke.core.step_cost import Law, StepCost
from twostroke.engine.cores import usable_cores
from twostroke.engine.cost_fit import DRIFT, StepCounts
from twostroke.load import LoadedModel
from twostroke.measure.dyno_fit import Fit, fit_cost
from twostroke.measure.dyno_machine import ReadRate, disk_rate, read_rates, thread_counts
from twostroke.measure.dyno_overhead import sampling_seconds, step_overhead
from twostroke.measure.dyno_shapes import Limits, calibration_shapes, decode_shape, prefill_shape
from twostroke.measure.dyno_steps import StepBench, Timing
from twostroke.measure.peaks import Probe, ensure_peaks
from twostroke.phase_threads import PhaseThreads

STEPS_BUDGET_S = 10.0  # half of what the dyno may take
SWEEP_BUDGET_S = 3.0  # a model that takes long to load is not loaded again for every number of threads
REPEATS = 5
REFERENCE_BYTES = 256 << 20  # beyond all caches: a part that stayed in them would come and go

LoadModel = Callable[[int | None], LoadedModel]  # threads, None for the default


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """A decode step at depth 128 and a prefill chunk, with so many threads."""

    threads: int
    decode_s: float
    prefill_s: float


@dataclass(frozen=True, slots=True)
class Dyno:
    """Everything measured."""

    key: CostKey
    threads: PhaseThreads  # found best, or asked for
    fit: Fit
    counts: StepCounts
    timings: tuple[Timing, ...]  # `fit.errors` are theirs
    num_rounds: int
    reference_read_bytes_per_s: float  # of loops timed in turn with the steps
    reference_dot_ops_per_s: float
    peaks: Peaks
    reads: tuple[ReadRate, ...]
    phases: tuple[PhaseTimes, ...]
    disk_bytes_per_s: float | None
    took_s: float

    @property
    def cost(self) -> StepCost:
        return self.fit.cost


def measure_dyno(load: LoadModel, *, home: Path, clock: Clock) -> Dyno:
    """Measure all; `load` opens the model, once for every number of threads."""
    start_s = clock.now()
    model = load(None)
    try:
        phases = _sweep(load, model, clock, until_s=start_s + SWEEP_BUDGET_S)
        if (best := best_threads(phases)).most != model.threads:
            model.close()
            model = load(best.most)
        model.reader.threads = best
        return profile(model, phases, reference=reference_of(model), home=home, clock=clock, start_s=start_s)
    finally:
        model.close()


def _sweep(load: LoadModel, model: LoadedModel, clock: Clock, *, until_s: float) -> tuple[PhaseTimes, ...]:
    """Both phases by number of threads, as time allows; the model's own alone where somebody chose it."""
    phases = [phase_times(model, clock)]
    if model.cost_key.threads is None:
        for count in reversed(thread_counts(usable_cores())):
            if count != model.threads and clock.now() < until_s:
                with closing(load(count)) as other:
                    phases.append(phase_times(other, clock))
    return tuple(sorted(phases, key=lambda each: each.threads))


def reference_of(model: LoadedModel) -> Probe:
    """The read and the dot loop that are timed in turn with a model's steps, on as many threads."""
    return _native.Probe(model.reader.isa, model.threads, REFERENCE_BYTES)


def profile(
    model: LoadedModel,
    phases: tuple[PhaseTimes, ...],
    *,
    reference: Probe,
    home: Path,
    clock: Clock,
    start_s: float,
    budget_s: float = STEPS_BUDGET_S,
) -> Dyno:
    """The dyno of a loaded model with its reader's threads; `phases` and `start_s` are of what went before."""
    isa, threads, limits = model.reader.isa, model.threads, limits_of(model)
    peaks = probed_peaks(model, home=home)
    base_s, row_s = step_overhead(clock=clock, max_rows=limits.max_rows)
    sample_s = sampling_seconds(model.sampler, clock=clock)
    bench, shapes = _bench(model, clock), calibration_shapes(limits)
    bench.fill(shapes)
    timed = bench.time_all(shapes, budget_s=budget_s, reference=reference)
    timings = tuple(_with_overhead(each, base_s=base_s, row_s=row_s) for each in timed.steps)
    fit = fit_cost(timings, start=first_guess(model.counts, peaks, base_s=base_s, row_s=row_s, sample_s=sample_s))
    return Dyno(
        key=model.cost_key,
        threads=model.reader.threads,
        fit=fit,
        counts=model.counts,
        timings=timings,
        num_rounds=timed.num_rounds,
        reference_read_bytes_per_s=timed.read_bytes_per_s,
        reference_dot_ops_per_s=timed.dot_ops_per_s,
        peaks=probed_peaks(model, home=home),  # ten seconds later: what disturbed the first probe may be gone
        reads=read_rates(isa=isa, threads=threads, clock=clock),
        phases=phases,
        disk_bytes_per_s=disk_rate(model.path, clock=clock),
        took_s=clock.now() - start_s,
    )


def probed_peaks(model: LoadedModel, *, home: Path) -> Peaks:
    """The best that is known of the machine, with one more probe: a dyno is asked for to measure."""
    return ensure_peaks(
        home=home,
        isa=model.reader.isa,
        threads=model.threads,
        weight_bytes=int(model.counts.weight_bytes + model.counts.head_bytes),
        are_beaten=lambda peaks: True,
    )


def drift_of(dyno: Dyno, model: LoadedModel, *, clock: Clock) -> float:
    """How many times as long as then the two phases take now, the farther one; about a second."""
    now = phase_times(model, clock)
    then = {each.threads: each for each in dyno.phases}
    threads = model.reader.threads
    ratios = (now.decode_s / then[threads.decode].decode_s, now.prefill_s / then[threads.prefill].prefill_s)
    return max(ratios, key=lambda ratio: max(ratio, 1 / ratio))


def has_drifted(drift: float) -> bool:
    """Beyond what neighbours of a shared machine do to a measurement."""
    return not 1 / DRIFT <= drift <= DRIFT


def best_threads(phases: tuple[PhaseTimes, ...]) -> PhaseThreads:
    """The numbers with which each phase is fastest; more threads where equal."""
    return PhaseThreads(
        prefill=min(phases, key=lambda each: (each.prefill_s, -each.threads)).threads,
        decode=min(phases, key=lambda each: (each.decode_s, -each.threads)).threads,
    )


def limits_of(model: LoadedModel) -> Limits:
    """What a step of this model may hold."""
    config = model.engine.limits
    return Limits(
        max_tokens=config.max_step_tokens,
        max_rows=config.max_rows,
        context=model.kv.context,
        block_size=model.kv.spec.block_size,
        num_blocks=model.kv.spec.num_blocks,
        groups=model.program.kv_groups,
    )


def _bench(model: LoadedModel, clock: Clock) -> StepBench:
    return StepBench(model.reader, limits_of(model), vocab_size=model.program.vocab_size, clock=clock)


def phase_times(model: LoadedModel, clock: Clock) -> PhaseTimes:
    """Both phases with the threads of a loaded model."""
    bench, limits = _bench(model, clock), limits_of(model)
    decode, prefill = decode_shape(limits), prefill_shape(limits)
    bench.fill((decode, prefill))
    return PhaseTimes(
        model.threads,
        decode_s=bench.time_one(decode, repeats=3 * REPEATS),
        prefill_s=bench.time_one(prefill, repeats=REPEATS),
    )


def _with_overhead(timing: Timing, *, base_s: float, row_s: float) -> Timing:
    """A step as the engine runs it: plan and bind before the kernels."""
    return Timing(timing.shape, timing.seconds + base_s + row_s * len(timing.shape))


def first_guess(counts: StepCounts, peaks: Peaks, *, base_s: float, row_s: float, sample_s: float) -> StepCost:
    """Where the peaks of the machine would put each term: what the fit starts from."""

    def law(num_bytes: float, ops: float) -> Law:
        return Law(num_bytes / peaks.read_bytes_per_s, ops / peaks.int8_ops_per_s, 1.5)

    return StepCost(
        base_s=base_s,
        row_s=row_s,
        sample_s=sample_s,
        linear=law(counts.weight_bytes, counts.token_ops),
        head=law(counts.head_bytes, counts.head_ops),
        attention=law(counts.kv_bytes, counts.pair_ops),
        windows=counts.windows,
    )
