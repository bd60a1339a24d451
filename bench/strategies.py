"""What beam search and drafts cost and save, whole requests in alternating pairs.

    python bench/strategies.py [MODEL] [--repeat 7]

Beams: 4 beams on 256 + 64 tokens beside one greedy answer; the law is 1.6 times its time. Drafts: an engine with prompt
lookup beside one without, on a text that repeats its prompt (at least 1.8 times as fast) and on one that does not (at
most 1.02 times the time). Answers of the two engines are checked to be the same.
"""

import argparse
import random
from collections.abc import Callable
from statistics import median
from time import perf_counter

from twostroke import LLM, BeamSearch, SamplingParams
from twostroke.model.catalog import DEFAULT_MODEL

SENTENCE = "The quick brown fox jumps over the lazy dog while the old sailor tells a long story about the sea. "
REPEATING = f"Repeat: {SENTENCE * 3}\nRepeat: {SENTENCE}"
WANDERING = "Once upon a time in a far country"
GREEDY = SamplingParams(max_tokens=128, ignore_eos=True)
DRAWN = SamplingParams(max_tokens=128, ignore_eos=True, temperature=1.2, seed=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    with LLM(arguments.model) as plain:
        beams(plain, repeat=arguments.repeat)
        with LLM(arguments.model, speculate="ngram") as drafting:
            for name, prompt, params in (("repeating", REPEATING, GREEDY), ("wandering", WANDERING, DRAWN)):
                drafts(name, prompt, params, plain=plain, drafting=drafting, repeat=arguments.repeat)


def beams(llm: LLM, *, repeat: int) -> None:
    """Each search and each greedy answer has a prompt of its own: nothing is read from the cache."""
    rng = random.Random(0)
    one = SamplingParams(max_tokens=64, ignore_eos=True)
    four = SamplingParams(max_tokens=64, ignore_eos=True, beam=BeamSearch(width=4, early_stopping="never"))

    def answer(params: SamplingParams) -> object:
        return llm.generate([rng.randrange(llm.program.vocab_size // 2) for _ in range(256)], params)

    ratios = pairs(lambda: answer(four), lambda: answer(one), repeat=repeat)
    print(f"4 beams / 1 greedy answer, 256 + 64 tokens: {shown(ratios)}")


def drafts(name: str, prompt: str, params: SamplingParams, *, plain: LLM, drafting: LLM, repeat: int) -> None:
    """The same text from both engines, the prompt read from the cache after the first time."""
    said = [llm.generate(prompt, params)[0] for llm in (plain, drafting)]
    assert said[0].token_ids == said[1].token_ids, "drafts changed the answer"
    ratios = pairs(lambda: plain.generate(prompt, params), lambda: drafting.generate(prompt, params), repeat=repeat)
    tried = said[1].speculation
    kept = "" if tried is None else f"; {tried.accepted} of {tried.drafted} drafted tokens kept"
    print(f"without / with drafts, {name} text: {shown(ratios)}{kept}")


def pairs(first: Callable[[], object], second: Callable[[], object], *, repeat: int) -> list[float]:
    """Time of the first over time of the second, in turn; one uncounted pair to warm up."""
    ratios = []
    for _ in range(repeat + 1):
        start_s = perf_counter()
        first()
        middle_s = perf_counter()
        second()
        ratios.append((middle_s - start_s) / (perf_counter() - middle_s))
    return ratios[1:]


def shown(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"


if __name__ == "__main__":
    main()
