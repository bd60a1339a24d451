"""The kernels of linears alone, by weight type and ISA, beside plain loops on this machine.

A matrix product of a prompt on one core in multiply-adds per cycle, cycles counted by a chain of dependent
additions, beside a loop of multiply-adds from registers; the product with one token in bytes of weights per second,
beside a plain read of as many bytes. A loop is no bound: without VNNI some kernels are faster than theirs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from twostroke import _native
from twostroke.core.clock import Clock
from twostroke.measure.peaks import best_rate
from twostroke.program.quant import TENSOR_TYPES, Arithmetic

PROMPT = 192  # tokens of the matrix product: two sweeps of the engine's token blocks would look the same
COLUMNS = 1536
PRODUCT_ROWS = 1024  # weights that stay in the second cache, as the panels of a sweep do
STREAM_BYTES = 128 << 20  # beyond the caches
BUDGET_S = 0.08
CYCLE_ROUNDS = 200_000
PROBE_ROUNDS = 100_000
CLEARED = 0x3B  # bits kept of random bytes: no scale is an infinity, whatever the type


@dataclass(frozen=True, slots=True)
class Stream:
    """One token through weights in memory, and a plain read of them."""

    threads: int
    bytes_per_s: float
    read_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class KernelSpeed:
    """One weight type on one ISA."""

    tensor_type: str
    unit: Arithmetic
    macs_per_s: float  # of one core
    macs_per_cycle: float
    loop_macs_per_cycle: float  # of a plain loop on the unit
    streams: tuple[Stream, ...]


def measure_kernels(
    isas: Sequence[str], *, threads: int, clock: Clock, stream_bytes: int | None = None
) -> Iterator[tuple[str, KernelSpeed]]:
    """(ISA, speed) one after the other, every weight type on every ISA; best of several runs each."""
    num_bytes = STREAM_BYTES if stream_bytes is None else stream_bytes
    counts = tuple(dict.fromkeys((1, threads)))
    cycles_per_s = best_rate(lambda: _native.count_cycles(CYCLE_ROUNDS), clock, budget_s=BUDGET_S)
    for name in TENSOR_TYPES:
        small = _weight(name, PRODUCT_ROWS)
        large = _weight(name, max(32, num_bytes // (_row_bytes(name) * 32) * 32))
        for isa in isas:
            streams = tuple(_stream(isa, large, count, clock) for count in counts)
            yield isa, _speed(isa, name, small, streams, cycles_per_s=cycles_per_s, clock=clock)


def _speed(
    isa: str,
    name: str,
    weight: _native.Weight,
    streams: tuple[Stream, ...],
    *,
    cycles_per_s: float,
    clock: Clock,
) -> KernelSpeed:
    unit = TENSOR_TYPES[name].arithmetic
    probe, linear = _native.Probe(isa, 1, 1 << 20), _native.LinearProbe(isa, 1, weight, _input(PROMPT))
    macs_per_s = best_rate(linear.run, clock, budget_s=BUDGET_S)
    loop_per_s = best_rate(lambda: probe.compute(unit, PROBE_ROUNDS), clock, budget_s=BUDGET_S)
    return KernelSpeed(
        tensor_type=name,
        unit=unit,
        macs_per_s=macs_per_s,
        macs_per_cycle=macs_per_s / cycles_per_s,
        loop_macs_per_cycle=loop_per_s / 2 / cycles_per_s,
        streams=streams,
    )


def _stream(isa: str, weight: _native.Weight, threads: int, clock: Clock) -> Stream:
    """In turn with the read, so that drift meets both."""
    linear, read = _native.LinearProbe(isa, threads, weight, _input(1)), _native.Probe(isa, threads, weight.num_bytes)
    bytes_per_mac = weight.num_bytes / (weight.rows * weight.cols)
    bytes_per_s = read_bytes_per_s = 0.0
    for _ in range(2):
        bytes_per_s = max(bytes_per_s, bytes_per_mac * best_rate(linear.run, clock, budget_s=BUDGET_S))
        read_bytes_per_s = max(read_bytes_per_s, best_rate(read.read, clock, budget_s=BUDGET_S))
    return Stream(threads, bytes_per_s=bytes_per_s, read_bytes_per_s=read_bytes_per_s)


def _weight(name: str, rows: int) -> _native.Weight:
    piece = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8) & CLEARED
    return _native.pack_weight(name, np.resize(piece, rows * _row_bytes(name)), rows, COLUMNS)


def _row_bytes(name: str) -> int:
    return TENSOR_TYPES[name].num_bytes((COLUMNS,))


def _input(tokens: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.random.default_rng(1).uniform(-1, 1, (tokens, COLUMNS)).astype(np.float32)
