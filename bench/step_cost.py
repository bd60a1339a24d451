"""How well the dyno predicts: engine steps it never saw, and two dynos of the same machine against each other.

    python bench/step_cost.py [MODEL]

The steps are those of whole requests through scheduler and engine: mixed batches, other depths, chunks beside
decodes; a step is judged by the median over the repeats of its requests. All is done in turn, part by part: the first
dyno, the second, the requests, so that what drifts meets all alike; the rates of the read and the dot loop beside each
dyno tell which parts met the machine in one state: where the host moves a virtual core, reads gain a half and products
lose a fifth within a second. The targets are a median error of 10 % and 25 % at the 95th percentile, and dynos that
agree within 5 % in one state.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from statistics import median

from twostroke.config import resolve
from twostroke.core.account import StepRecord
from twostroke.core.clock import WallClock
from twostroke.core.event import Event, FinishEvent
from twostroke.core.request import Request
from twostroke.core.step_cost import StepCost
from twostroke.load import LoadedModel, load_model
from twostroke.measure.dyno import Dyno, first_guess, phase_times, profile, reference_of
from twostroke.measure.dyno_fit import fit_cost
from twostroke.measure.dyno_steps import Timing
from twostroke.model.catalog import DEFAULT_MODEL, model_defaults, resolve_model
from twostroke.params import SamplingParams
from twostroke.program.cost import Row

# Requests of one load: (prompt tokens, answer tokens), all at once or `apart` steps after each other.
LOADS = (
    (((700, 30),), 0),
    (((90, 20), (150, 20), (33, 20)), 0),
    (((40, 60), (600, 20), (200, 20), (75, 30), (310, 20), (20, 40)), 5),
    (((25, 60),) * 10 + ((900, 10),), 2),
    (((1700, 25), (60, 40), (60, 40)), 12),
)
PARTS = 3
REPEATS = 2  # of all loads, after each part
PYTHON_ROW_S = 1e-6  # a first guess
DEPTH_STEP = 32  # steps of like rows that far apart count as repeats of each other
SHAPES = {  # what two dynos must agree on
    "decode at 128": (Row(128, 1),),
    "decode at 3000": (Row(3000, 1),),
    "4 decodes at 300": (Row(300, 1),) * 4,
    "chunk of 96": (Row(0, 96),),
    "chunk of 256 at 500": (Row(500, 256),),
}
request_numbers = count()


def live_through(
    model: LoadedModel, load: Sequence[tuple[int, int]], *, apart: int, rng: random.Random
) -> list[FinishEvent]:
    """Run the requests on the caller's thread; each finish carries the steps it lived through."""
    finished: list[FinishEvent] = []

    def hear(event: Event) -> None:
        if isinstance(event, FinishEvent):
            finished.append(event)

    waiting = list(load)
    while waiting or model.engine.has_work:
        for _ in range(1 if apart else len(waiting)):
            if waiting:
                prompt, answer = waiting.pop(0)
                tokens = tuple(rng.randrange(model.program.vocab_size) for _ in range(prompt))
                params = SamplingParams(max_tokens=answer, ignore_eos=True)
                name = f"r{next(request_numbers)}"
                request = Request(request_id=name, prompt_token_ids=tokens, params=params, arrival_s=0.0, seed=1)
                model.engine.add(request, hear)
        for _ in range(apart or 1):
            model.engine.step()
    return finished


def pooled(parts: Sequence[Dyno]) -> StepCost:
    """What a dyno says that was measured in several parts."""
    whole = parts[0]
    measured = [{timing.shape: timing.seconds for timing in part.timings} for part in parts]
    common = [shape for shape in measured[0] if all(shape in seconds for seconds in measured)]
    timings = [Timing(shape, median(seconds[shape] for seconds in measured)) for shape in common]
    cost = whole.cost
    start = first_guess(whole.counts, whole.peaks, base_s=cost.base_s, row_s=PYTHON_ROW_S, sample_s=cost.sample_s)
    fit = fit_cost(timings, start=start)
    sizes = sorted(map(abs, fit.errors))
    form = "table" if fit.is_table else "law"
    print(f"a {form}; fitted steps off by {median(sizes):.1%} in the median, {sizes[-1]:.1%} at most")
    return fit.cost


def are_alike(a: Dyno, b: Dyno) -> bool:
    """The read and the dot loop beside both ran at the same rates, within a tenth."""
    rates = (
        (a.reference_read_bytes_per_s, b.reference_read_bytes_per_s),
        (a.reference_dot_ops_per_s, b.reference_dot_ops_per_s),
    )
    return all(0.9 < one / other < 1.1 for one, other in rates)


def errors_of_steps(cost: StepCost, records: Sequence[tuple[int, StepRecord]]) -> list[float]:
    """predicted / measured - 1, plan to chosen tokens, of each kind of step that was lived through, smallest first."""
    measured: dict[tuple[object, ...], list[float]] = defaultdict(list)
    predicted: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for number, record in records:
        kinds = sorted((row.num_tokens, row.start_pos // DEPTH_STEP, row.needs_logits) for row in record.rows)
        measured[number, *kinds].append(record.sampled_s - record.start_s)
        predicted[number, *kinds].append(cost.seconds(record.rows) + cost.sampling_seconds(record.rows))
    return sorted(median(predicted[kind]) / median(measured[kind]) - 1 for kind in measured)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the dyno predicts beside steps it never saw.")
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    model_name = parser.parse_args().model
    config, clock, rng = resolve(), WallClock(), random.Random(7)
    path = resolve_model(model_name, home=config.home, ollama_models=config.ollama_models)
    defaults = model_defaults(model_name, ollama_models=config.ollama_models)
    parts: tuple[list[Dyno], list[Dyno]] = ([], [])
    records: list[tuple[int, StepRecord]] = []
    options = {"config": config, "clock": clock, "threads": None, "context": None, "kv": None, "defaults": defaults}
    with closing(load_model(path, **options)) as model:
        probe, phases = reference_of(model), (phase_times(model, clock),)
        for _ in range(PARTS):
            for dyno in parts:
                part = profile(
                    model, phases, reference=probe, home=config.home, clock=clock, start_s=clock.now(), budget_s=0.0
                )
                dyno.append(part)
            for _ in range(REPEATS):
                for number, (load, apart) in enumerate(LOADS):
                    finished = live_through(model, load, apart=apart, rng=rng)
                    steps = {record.start_s: record for event in finished for record, _ in event.account.steps}
                    records += [(number, record) for record in steps.values()]
    for number, dyno in enumerate(parts, 1):
        rates = [f"{p.reference_read_bytes_per_s / 1e9:.1f}, {p.reference_dot_ops_per_s / 1e9:.0f}" for p in dyno]
        print(f"dyno {number}: reads in GB/s and dots in billion/s beside its parts: {'; '.join(rates)}")
    first, second = (pooled(dyno) for dyno in parts)
    alike = [(a.cost, b.cost) for a in parts[0] for b in parts[1] if are_alike(a, b)]
    print(f"{len(alike)} of {PARTS**2} pairs of parts met the machine in one state, by the loops beside them")
    for name, shape in SHAPES.items():
        whole = f"as wholes disagree by {first.seconds(shape) / second.seconds(shape) - 1:+.1%}"
        pairs = [a.seconds(shape) / b.seconds(shape) - 1 for a, b in alike]
        print(f"  {name:20} {whole}" + (f", parts in one state by {median(pairs):+.1%}" if pairs else ""))
    errors = errors_of_steps(second, records)
    sizes = sorted(map(abs, errors))
    print(
        f"held-out engine steps: {len(sizes)} kinds, off by {median(sizes):.1%} in the median, "
        f"{sizes[int(0.95 * len(sizes))]:.1%} at the 95th percentile ({errors[0]:+.1%} to {errors[-1]:+.1%})"
    )


if __name__ == "__main__":
    main()
