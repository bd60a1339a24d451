"""A dyno as lines of text: the machine, the phases by threads, the law of a step and how far it is off."""

from itertools import groupby

from twostroke.core.step_cost import Curve, Law
from twostroke.engine.cost_fit import StepCounts
from twostroke.measure.dyno import Dyno
from twostroke.measure.dyno_shapes import words
from twostroke.phase_threads import PhaseThreads
from twostroke.view import quantity


def dyno_lines(dyno: Dyno) -> list[str]:
    """Every number is measured on this machine but those called predicted."""
    return [*_machine(dyno), "", *_phases(dyno), "", *_cost(dyno), "", *_steps(dyno)]


def _machine(dyno: Dyno) -> list[str]:
    key, peaks = dyno.key, dyno.peaks
    disk = quantity.ABSENT if dyno.disk_bytes_per_s is None else f"{quantity.size(int(dyno.disk_bytes_per_s))}/s"
    units = (("int8", peaks.int8_ops_per_s), ("bf16", peaks.bf16_ops_per_s), ("fp32", peaks.fp32_ops_per_s))
    rates_of_units = ", ".join(f"{unit} {per_s / 1e9:.0f}" for unit, per_s in units)
    lines = [
        f"{key.cpu}, {key.isa}, {_threads(dyno.threads)}, kv {key.precision}",
        f"peaks   {rates_of_units} billion operations/s; disk {disk}",
    ]
    for threads, rates in groupby(dyno.reads, key=lambda rate: rate.threads):
        cells = [f"{quantity.size(rate.num_bytes)} {rate.bytes_per_s / 1e9:.1f}" for rate in rates]
        lines.append(f"reads   {quantity.count(threads, 'thread')}, GB/s by size: {', '.join(cells)}")
    return lines


def _threads(threads: PhaseThreads) -> str:
    if threads.prefill == threads.decode:
        return quantity.count(threads.prefill, "thread")
    return f"{quantity.count(threads.prefill, 'thread')} in prefill, {threads.decode} in decode"


def _phases(dyno: Dyno) -> list[str]:
    lines = ["threads  decode step  prefill chunk"]
    for each in dyno.phases:
        taken = [phase for phase, count in dyno.threads._asdict().items() if count == each.threads]
        mark = f" <- {' and '.join(taken)}" if taken else ""
        decode, prefill = quantity.duration(each.decode_s), quantity.duration(each.prefill_s)
        lines.append(f"{each.threads:7}{decode:>13}{prefill:>15}{mark}")
    return lines


def _cost(dyno: Dyno) -> list[str]:
    cost, counts, fit = dyno.cost, dyno.counts, dyno.fit
    errors = sorted(abs(error) for error in fit.errors)
    form = "tables of measured times (the law was off by more than 15 %)" if fit.is_table else "a law"
    off = f"median error {errors[len(errors) // 2]:.1%}, largest {errors[-1]:.1%}"
    overheads = ((cost.base_s, "a step"), (cost.row_s, "a row"), (cost.sample_s, "a chosen token"))
    return [
        f"step    {form}; {off} over {len(errors)} kinds of steps in {dyno.num_rounds} rounds",
        _curve_line("linear", cost.linear, dyno, num_bytes=counts.weight_bytes, ops=counts.token_ops, unit="token"),
        _curve_line("head", cost.head, dyno, num_bytes=counts.head_bytes, ops=counts.head_ops, unit="row"),
        _attention_line(cost.attention, counts),
        "  other      " + ", ".join(f"{seconds * 1e6:.0f} us {what}" for seconds, what in overheads),
    ]


def _curve_line(name: str, curve: Curve, dyno: Dyno, *, num_bytes: float, ops: float, unit: str) -> str:
    if not isinstance(curve, Law):
        return f"  {name:<10} {_points(curve.points)}"
    reads, arithmetic = _per_s(num_bytes, curve.read_s), _per_s(ops, curve.unit_s)
    return (
        f"  {name:<10} weights {quantity.duration(curve.read_s)} ({reads / 1e9:.1f} GB/s), a {unit} "
        f"{quantity.duration(curve.unit_s)} ({arithmetic / 1e9:.0f} billion/s, "
        f"{quantity.share(arithmetic / dyno.peaks.int8_ops_per_s)} of int8 peak), overlap {curve.sharpness:.1f}"
    )


def _attention_line(curve: Curve, counts: StepCounts) -> str:
    if not isinstance(curve, Law):
        return f"  attention  {_points(curve.points)} per position"
    decode_s, pair_s = curve.seconds(1), curve.unit_s
    return (
        f"  attention  decode {decode_s * 1e6:.2f} us a position ({_per_s(counts.kv_bytes, decode_s) / 1e9:.1f} GB/s), "
        f"prefill {pair_s * 1e6:.2f} us a pair ({_per_s(counts.pair_ops, pair_s) / 1e9:.0f} billion/s)"
    )


def _steps(dyno: Dyno) -> list[str]:
    lines = [f"{'rows x tokens at depth':<32}{'measured':>10}{'predicted':>11}{'off':>8}"]
    for timing, error in zip(dyno.timings, dyno.fit.errors, strict=True):
        predicted_s = timing.seconds * (1 + error)
        measured, predicted = quantity.duration(timing.seconds), quantity.duration(predicted_s)
        lines.append(f"{words(timing.shape):<32}{measured:>10}{predicted:>11}{error:>+8.1%}")
    return lines


def _points(points: tuple[tuple[float, float], ...]) -> str:
    return ", ".join(f"{size:.0f}: {_short(seconds)}" for size, seconds in points)


def _short(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-4 else quantity.duration(seconds)


def _per_s(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0
