"""One row of sampling, by what is asked and how large the vocabulary is, on the calling thread.

    python bench/sampling.py

The law is that a decode step with the usual parameters takes at most 5 % longer than a greedy one, with top-p alone at
most 10 %. Times are of the thread's own CPU, the best of several runs.
"""

import argparse
from time import thread_time

import numpy as np

from twostroke import _native
from twostroke.core.request import Request
from twostroke.params import SamplingParams
from twostroke.sample.sampler import Sampler, SamplingRow

PROMPT = tuple(range(0, 6000, 20))
RUNS, ROUNDS = 5, 100
WISHES = {
    "greedy": SamplingParams(),
    "usual": SamplingParams(temperature=0.8, top_k=40, top_p=0.95, repetition_penalty=1.1),
    "top-k 40": SamplingParams(temperature=0.8, top_k=40),
    "top-p 0.95": SamplingParams(temperature=0.8, top_p=0.95),
    "min-p 0.05": SamplingParams(temperature=0.8, min_p=0.05),
    "no filter": SamplingParams(temperature=0.8),
    "5 logprobs": SamplingParams(logprobs=5),
}


def time_row(vocab_size: int, params: SamplingParams, *, isa: str, peak: float) -> float:
    """Microseconds of one row: normal logits, a few hundred of them raised by `peak` on average."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (1, vocab_size)).astype(np.float32)
    logits[0, rng.integers(0, vocab_size, 300)] += rng.exponential(peak, 300).astype(np.float32)
    sampler = Sampler(vocab_size, isa=isa)
    request = Request(request_id="r", prompt_token_ids=PROMPT, params=params, arrival_s=0.0, seed=1)
    rows = [SamplingRow(0, sampler.start(request))]
    times = []
    for _ in range(RUNS):
        start_s = thread_time()
        for _ in range(ROUNDS):
            sampler.sample(logits, rows)
            rows[0].state.position += 1
        times.append((thread_time() - start_s) / ROUNDS)
    return 1e6 * min(times)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for isa in _native.usable_isas():
        for vocab_size in (49_152, 151_936):
            for shape, peak in (("peaked", 3.0), ("flat", 0.0)):
                times = [
                    f"{name} {time_row(vocab_size, wish, isa=isa, peak=peak):.1f}" for name, wish in WISHES.items()
                ]
                print(f"{isa}, {vocab_size} tokens, {shape}, us: {', '.join(times)}")


if __name__ == "__main__":
    main()
