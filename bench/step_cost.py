"""How well the dyno predicts: engine steps it never saw, and two dynos of the same machine against each other.

    python bench/step_cost.py [MODEL]

The steps are those of whole requests through scheduler and engine: mixed batches, other depths, chunks beside
decodes; a step is judged by the median over the repeats of its requests, but for those before or after which the
dyno's reference loops were disturbed. The targets are a median error of 10 % and 25 % at the 95th percentile, and
dynos that agree within 5 % once the drift of the machine is divided out: the rates of a read and a dot loop that each
timed in turn with its steps. Both run on one loaded model and one buffer: where the system has no huge pages left, a
load is a fifth slower than the one before, and so is a read.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from statistics import median

from twostroke.config import resolve
from twostroke.core.clock import Clock, WallClock
from twostroke.core.event import Event, FinishEvent
from twostroke.core.request import Request
from twostroke.core.step_cost import StepCost
from twostroke.load import LoadedModel, load_model
from twostroke.measure.dyno import Dyno, phase_times, profile, reference_of
from twostroke.measure.dyno_steps import CALM, DOT_ROUNDS
from twostroke.measure.peaks import Probe
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
REPEATS = 6
REFERENCES = 3  # readings of each loop before and after a load
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


def moved(cost: StepCost, dyno: Dyno, *, read_bytes_per_s: float, dot_ops_per_s: float) -> StepCost:
    """The cost as it were at a time when the reference loops ran at these rates."""
    return cost.scaled(
        reads=dyno.reference_read_bytes_per_s / read_bytes_per_s,
        arithmetic=dyno.reference_dot_ops_per_s / dot_ops_per_s,
    )


def is_calm(probe: Probe, dyno: Dyno, clock: Clock) -> bool:
    """The reference loops reach what they reached beside the dyno: the machine is the one that was measured."""

    def rate(work: Callable[[], int]) -> float:
        start_s = clock.now()
        amount = work()
        return amount / (clock.now() - start_s)

    read = median(rate(probe.read) for _ in range(REFERENCES))
    dot = median(rate(lambda: probe.compute("int8", DOT_ROUNDS)) for _ in range(REFERENCES))
    return read > CALM * dyno.reference_read_bytes_per_s and dot > CALM * dyno.reference_dot_ops_per_s


def held_out_errors(model: LoadedModel, dyno: Dyno, probe: Probe, clock: Clock) -> tuple[list[float], int]:
    """predicted / measured - 1, plan to chosen tokens, of each kind of step in the loads; runs that were disturbed."""
    measured: dict[tuple[object, ...], list[float]] = defaultdict(list)
    predicted: dict[tuple[object, ...], list[float]] = defaultdict(list)
    rng = random.Random(7)
    num_disturbed = 0
    live_through(model, LOADS[0][0], apart=0, rng=rng)  # warms up
    for number, (load, apart) in enumerate(LOADS):
        for _ in range(REPEATS):
            calm_before = is_calm(probe, dyno, clock)
            finished = live_through(model, load, apart=apart, rng=rng)
            if not (calm_before and is_calm(probe, dyno, clock)):
                num_disturbed += 1
                continue
            steps = {record.start_s: record for event in finished for record, _ in event.account.steps}
            for record in steps.values():
                kinds = sorted((row.num_tokens, row.start_pos // DEPTH_STEP, row.needs_logits) for row in record.rows)
                kind = (number, *kinds)
                measured[kind].append(record.sampled_s - record.start_s)
                predicted[kind].append(dyno.cost.seconds(record.rows) + dyno.cost.sampling_seconds(record.rows))
    return sorted(median(predicted[kind]) / median(measured[kind]) - 1 for kind in measured), num_disturbed


def main() -> None:
    model_name = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_MODEL
    config, clock = resolve(), WallClock()
    path = resolve_model(model_name, home=config.home, ollama_models=config.ollama_models)
    defaults = model_defaults(model_name, ollama_models=config.ollama_models)
    load = partial(load_model, path, config=config, clock=clock, context=None, kv=None, defaults=defaults)
    with closing(load(threads=None)) as model:
        probe = reference_of(model)
        dynos = []
        for number in (1, 2):
            start_s = clock.now()
            dyno = profile(
                model, (phase_times(model, clock),), reference=probe, home=config.home, clock=clock, start_s=start_s
            )
            form, sizes = "table" if dyno.fit.is_table else "law", sorted(map(abs, dyno.fit.errors))
            fitted = f"fitted steps off by {median(sizes):.1%} in the median, {sizes[-1]:.1%} at most"
            print(f"dyno {number}: {dyno.took_s:.1f} s, {dyno.num_rounds} rounds, {form}, {fitted}")
            dynos.append(dyno)
        errors, num_disturbed = held_out_errors(model, dynos[1], probe, clock)
    first, second = dynos
    then = moved(
        first.cost,
        first,
        read_bytes_per_s=second.reference_read_bytes_per_s,
        dot_ops_per_s=second.reference_dot_ops_per_s,
    )
    for name, shape in SHAPES.items():
        raw, rest = (cost.seconds(shape) / second.cost.seconds(shape) - 1 for cost in (first.cost, then))
        print(f"  {name:20} disagree by {raw:+.1%}, drift divided out {rest:+.1%}")
    sizes = sorted(map(abs, errors))
    print(
        f"held-out engine steps: {len(sizes)} kinds, off by {median(sizes):.1%} in the median, "
        f"{sizes[int(0.95 * len(sizes))]:.1%} at the 95th percentile ({errors[0]:+.1%} to {errors[-1]:+.1%}); "
        f"{num_disturbed} of {REPEATS * len(LOADS)} runs were disturbed and not counted"
    )


if __name__ == "__main__":
    main()
