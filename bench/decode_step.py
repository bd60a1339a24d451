"""Steps of decode alone, without Python's part: how much of the read bandwidth they reach, and what a batch costs.

    python bench/decode_step.py MODEL.gguf [THREADS]

Each round reads a buffer as large as the weights, then runs steps of 1, 4, 8 and 16 sequences at depths 64 to 128
(bf16 KV); rounds alternate between them, as a shared machine drifts. Bytes are those of the weights: what is read
of the KV cache comes on top.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from twostroke import _native
from twostroke.core.clock import WallClock
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.program.fuse import fuse
from twostroke.program.native import NativeReader
from twostroke.program.op import Op
from twostroke.program.packed import packed_layout
from twostroke.program.program import BoundStep, Program
from twostroke.program.reader import KVSpec

BATCHES = (1, 4, 8, 16)
BLOCK_SIZE, BLOCKS_PER_ROW = 16, 9  # 144 positions
FIRST_DEPTH, NUM_DEPTHS = 64, 64
ROUNDS, STEPS_PER_ROUND, READS_PER_ROUND = 9, 64, 6


class Sequences:
    """Rows of blocks of their own, filled to the first depth; `step` decodes one token of each of the first."""

    def __init__(self, program: Program, reader: NativeReader) -> None:
        rows = max(BATCHES)
        self._reader = reader
        blocks = np.arange(rows * BLOCKS_PER_ROW, dtype=np.int32).reshape(rows, BLOCKS_PER_ROW)
        self._tables = tuple(blocks for _ in program.kv_groups)
        for row in range(rows):
            self._run(np.arange(FIRST_DEPTH, dtype=np.int32), [0, FIRST_DEPTH], [0], slice(row, row + 1))

    def step(self, rows: int, depth: int) -> None:
        ids = np.arange(rows, dtype=np.int32) + depth
        self._run(ids, list(range(rows + 1)), [depth] * rows, slice(0, rows))

    def _run(
        self, ids: np.ndarray[tuple[int, ...], np.dtype[np.int32]], starts: list[int], at: list[int], rows: slice
    ) -> None:
        tables = tuple(table[rows] for table in self._tables)
        last = np.array(starts[1:], np.int32) - 1
        self._reader.run(BoundStep(ids, np.array(starts, np.int32), np.array(at, np.int32), tables, last))


def bytes_per_step(program: Program) -> int:
    """Of all matrices that a step reads whole; of an embedding alone it reads a row."""
    products = (instr for instr in program.instrs if instr.op in (Op.LINEAR, Op.LOGITS))
    names = {name for instr in products for name in instr.weights}
    return sum(matrix.num_bytes for matrix in packed_layout(program) if matrix.name in names)


def timed(work: Callable[[], object], clock: WallClock) -> float:
    start_s = clock.now()
    work()
    return clock.now() - start_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of decode beside reads of as many bytes.")
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("threads", type=int, nargs="?", default=2)
    wish = parser.parse_args()
    source, threads = open_model(wish.model), wish.threads
    program = build_program(source)
    num_blocks = tuple(max(BATCHES) * BLOCKS_PER_ROW for _ in program.kv_groups)
    spec = KVSpec(precision="bf16", block_size=BLOCK_SIZE, num_blocks=num_blocks)
    reader = NativeReader(program, source.tensors, kv=spec, threads=threads, max_tokens=512, max_rows=max(BATCHES))
    sequences = Sequences(program, reader)
    weight_bytes = bytes_per_step(program)
    probe = _native.Probe(reader.isa, threads, weight_bytes)
    clock = WallClock()
    read_s: list[float] = []
    step_s: dict[int, list[float]] = {rows: [] for rows in BATCHES}
    for _ in range(ROUNDS):
        read_s.append(median(timed(probe.read, clock) for _ in range(READS_PER_ROUND)))
        for rows in BATCHES:
            depths = range(FIRST_DEPTH, FIRST_DEPTH + NUM_DEPTHS, max(1, rows * NUM_DEPTHS // STEPS_PER_ROUND))
            times = [timed(lambda rows=rows, depth=depth: sequences.step(rows, depth), clock) for depth in depths]
            step_s[rows].append(median(times))
    bandwidth = weight_bytes / median(read_s)
    print(
        f"{reader.isa}, {threads} threads, {len(fuse(program))} phases, {weight_bytes / 1e6:.1f} MB of weights, "
        f"read bandwidth {bandwidth / 1e9:.1f} GB/s"
    )
    for rows in BATCHES:
        times = step_s[rows]
        reached = median(read / step for read, step in zip(read_s, times, strict=True))
        print(
            f"{rows:3} sequences: {median(times) * 1e3:6.3f} ms [{min(times) * 1e3:.3f}, {max(times) * 1e3:.3f}], "
            f"{reached:4.0%} of the read bandwidth, {median(times) / median(step_s[1]):4.2f} x the step of one"
        )


if __name__ == "__main__":
    main()
