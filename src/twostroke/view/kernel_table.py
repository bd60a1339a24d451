"""Speeds of kernels as lines of a table."""

from twostroke.measure.kernels import PROMPT, KernelSpeed
from twostroke.view import quantity


def heading(threads: int) -> list[str]:
    """What the columns are."""
    counts = [f"1 token, {quantity.count(count, 'thread')}" for count in dict.fromkeys((1, threads))]
    streams = "".join(f"{words:>30}" for words in counts)
    product = f"{PROMPT} tokens, 1 core"
    return [
        "best of several runs; multiply-adds on one core, weights from memory; (share of a plain loop, no upper bound)",
        f"{'type':<6}{'ISA':<10}{product:>32}{streams}",
    ]


def line_of(isa: str, speed: KernelSpeed) -> str:
    """One weight type on one ISA."""
    of_loop = quantity.share(speed.macs_per_cycle / speed.loop_macs_per_cycle)
    product = f"{speed.macs_per_s / 1e9:.0f} G/s, {speed.macs_per_cycle:.1f}/cycle ({of_loop})"
    rates = [(each.bytes_per_s, quantity.share(each.bytes_per_s / each.read_bytes_per_s)) for each in speed.streams]
    streams = [f"{per_s / 1e9:.1f} GB/s ({of_read})" for per_s, of_read in rates]
    return f"{speed.tensor_type:<6}{isa:<10}{product:>32}" + "".join(f"{words:>30}" for words in streams)
