"""Steps of decode and the choice of their tokens: from what the head hands on, in turn with all logits.

    python bench/candidates.py MODEL.gguf [THREADS] [--batches 1,4,16] [--isa avx2] [--rounds 4]

Steps of 1, 4 and 16 sequences at depths 64 to 127, each taken both ways, one after the other: greedy, with the usual
parameters, with 400 tokens to penalise, and among 100 of the best. A line has the median time from all logits and from
candidates, and what a pair saves: median and quartiles.
"""

import argparse
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import numpy.typing as npt

from twostroke.core.clock import WallClock
from twostroke.core.request import Request
from twostroke.core.step import SampledToken
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.params import SamplingParams
from twostroke.program.native import NativeReader
from twostroke.program.program import BoundStep, Program
from twostroke.program.reader import KVSpec
from twostroke.sample.sampler import Sampler, SamplingRow

MAX_ROWS = 16
BLOCK_SIZE, BLOCKS_PER_ROW = 16, 8
FIRST_DEPTH, LAST_DEPTH = 64, 127
PROMPT = tuple(range(0, 8000, 20))
WISHES = {
    "greedy": SamplingParams(),
    "usual": SamplingParams(temperature=0.8, top_k=40, top_p=0.95),
    "penalties": SamplingParams(temperature=0.8, top_k=40, top_p=0.95, repetition_penalty=1.1),
    "top-k 100": SamplingParams(temperature=0.8, top_k=100),
}


class Sequences:
    """Rows of blocks of their own, filled to the first depth."""

    def __init__(self, program: Program, reader: NativeReader) -> None:
        self._reader = reader
        self._sampler = Sampler(program.vocab_size, isa=reader.isa, pool=reader.pool)
        self._clock = WallClock()
        rows = MAX_ROWS
        blocks = np.arange(rows * BLOCKS_PER_ROW, dtype=np.int32).reshape(rows, BLOCKS_PER_ROW)
        self._tables = tuple(blocks for _ in program.kv_groups)
        for row in range(rows):
            ids = np.arange(FIRST_DEPTH, dtype=np.int32)
            starts, at = np.array([0, FIRST_DEPTH], np.int32), np.zeros(1, np.int32)
            tables = tuple(table[row : row + 1] for table in self._tables)
            reader.run(BoundStep(ids, starts, at, tables, starts[1:] - 1))

    def start(self, num_rows: int, wish: SamplingParams) -> list[SamplingRow]:
        request = Request(request_id="r", prompt_token_ids=PROMPT, params=wish, arrival_s=0.0, seed=1)
        return [SamplingRow(row, self._sampler.start(request, choice_index=row)) for row in range(num_rows)]

    def step(
        self, rows: list[SamplingRow], ids: npt.NDArray[np.int32], depth: int, *, asks: bool
    ) -> tuple[float, list[SampledToken]]:
        count = len(rows)
        start_s = self._clock.now()
        candidates = self._sampler.ask(rows) if asks else None
        starts, at = np.arange(count + 1, dtype=np.int32), np.full(count, depth, np.int32)
        tables = tuple(table[:count] for table in self._tables)
        bound = BoundStep(ids, starts, at, tables, starts[:-1], candidates=candidates)
        tokens = self._sampler.sample(self._reader.run(bound), rows, candidates=candidates)
        return self._clock.now() - start_s, tokens


def time_pairs(sequences: Sequences, num_rows: int, wish: SamplingParams, *, rounds: int) -> list[tuple[float, float]]:
    """Times from all logits and from candidates. Raises ValueError should the tokens differ."""
    pairs = []
    for _ in range(rounds):
        rows = sequences.start(num_rows, wish)
        ids = np.arange(num_rows, dtype=np.int32) + 100
        for depth in range(FIRST_DEPTH, LAST_DEPTH + 1):
            order = (False, True) if depth % 2 else (True, False)
            found = {asks: sequences.step(rows, ids, depth, asks=asks) for asks in order}
            if found[False][1] != found[True][1]:
                raise ValueError(f"tokens at depth {depth} differ: {found}")
            pairs.append((found[False][0], found[True][0]))
            for row, token in zip(rows, found[True][1], strict=True):
                row.state.append(token.token_id)
            ids = np.array([token.token_id for token in found[True][1]], np.int32)
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description="Decode from candidates in turn with all logits.")
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("threads", type=int, nargs="?", default=2)
    parser.add_argument("--batches", default="1,4,16", help=f"sequences, at most {MAX_ROWS}")
    parser.add_argument("--isa")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    source = open_model(options.model)
    program = build_program(source)
    kv = KVSpec("bf16", BLOCK_SIZE, (MAX_ROWS * BLOCKS_PER_ROW,) * len(program.kv_groups))
    reader = NativeReader(
        program,
        source.tensors,
        kv=kv,
        threads=options.threads,
        max_tokens=512,
        max_rows=MAX_ROWS,
        isa=options.isa,
    )
    sequences = Sequences(program, reader)
    print(f"{options.model.name}, {program.vocab_size} tokens, {reader.isa}, {options.threads} threads")
    for num_rows in map(int, options.batches.split(",")):
        time_pairs(sequences, num_rows, WISHES["greedy"], rounds=1)
        for name, wish in WISHES.items():
            pairs = time_pairs(sequences, num_rows, wish, rounds=options.rounds)
            low, middle, high = quantiles([1e6 * (all_s - few_s) for all_s, few_s in pairs], n=4)
            all_ms, few_ms = (1e3 * median(times) for times in zip(*pairs, strict=True))
            print(
                f"{num_rows:3} x {name:9}: {all_ms:7.3f} -> {few_ms:7.3f} ms, "
                f"a pair saves {middle:6.1f} us [{low:.1f}, {high:.1f}]",
                flush=True,
            )


if __name__ == "__main__":
    main()
