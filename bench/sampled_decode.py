"""Decode by how tokens are chosen, in turn with greedy decode in one run.

    python bench/sampled_decode.py [-m MODEL] [--batches 1,16] [--steps 64] [--repeat 5]

The law is that a step with the usual parameters takes at most 5 % longer than a greedy one, with top-p alone at most
10 %, at batch 1 and 16, and over a vocabulary of 152,000 tokens too (`large-vocabulary` of bench/make_models.py, whose
random weights make flat distributions: nearly the whole vocabulary survives top-p).
"""

import argparse
import random
from statistics import median

from twostroke.llm import LLM
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.generation import GREEDY, measure_ours, spread
from twostroke.params import SamplingParams

WISHES = {
    "usual": SamplingParams(temperature=0.8, top_k=40, top_p=0.95, repetition_penalty=1.1, seed=1),
    "top-p 0.95": SamplingParams(temperature=0.8, top_p=0.95, seed=1),
    "no filter": SamplingParams(temperature=0.8, seed=1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Sampled decode beside greedy decode.")
    parser.add_argument("-m", "--model", default="smollm2:135m")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with LLM(options.model) as llm:
        for batch in map(int, options.batches.split(",")):
            cell = Cell(Kind.DECODE, generate=options.steps, batch=batch)
            for line in lines_of(llm, cell, repeat=options.repeat):
                print(f"{options.model}, {llm.program.vocab_size} tokens, {cell.label}: {line}", flush=True)


def lines_of(llm: LLM, cell: Cell, *, repeat: int) -> list[str]:
    """Each wish right after a greedy run of the same prompts; the first round warms up."""
    rng = random.Random(0)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in WISHES}
    for _ in range(repeat + 1):
        for name, wish in WISHES.items():
            seed = rng.getrandbits(32)
            times[name].append(
                (
                    measure_ours(llm, cell, random.Random(seed), wish=GREEDY),
                    measure_ours(llm, cell, random.Random(seed), wish=wish),
                )
            )
    greedy_s = median(greedy for pairs in times.values() for greedy, _ in pairs[1:])
    lines = [f"greedy {1e3 * greedy_s / cell.generate:.3f} ms a step"]
    for name, pairs in times.items():
        found = spread([sampled / greedy for greedy, sampled in pairs[1:]])
        assert found is not None
        lines.append(f"{name} x {found.median:.3f} [{found.lowest:.3f}, {found.highest:.3f}]")
    return lines


if __name__ == "__main__":
    main()
