"""What beam search and drafts cost and save, whole requests in turn.

    python bench/strategies.py [MODEL] [--only beams,repeating,adversarial,...] [--draft-model SMALL] [--repeat 15]

Beams: 4 beams on 256 + 64 tokens beside one greedy answer; the law is 1.6 times its time. Drafts: one engine with
drafts (prompt lookup, or a draft model where one is named) and without, on a text that repeats its prompt, on one in
which every pair of tokens was there before and mostly went on otherwise, and with 8 such texts at once. A round is:
without, with, without again; the time with stands beside the mean of the other two, `control` is the ratio of these.
Laws: repeating text at least 1.8 times as fast; else at most 1.02 times the time, and refused drafts at most 2 % of
StepCost. Answers are checked to be the same. Each part takes less than a minute, to be run alone on the machine.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from math import exp, log
from statistics import mean, median, stdev
from time import perf_counter

from twostroke import LLM, BeamSearch, SamplingParams
from twostroke.core.report import Result
from twostroke.core.strategy import Speculator
from twostroke.model.catalog import DEFAULT_MODEL
from twostroke.view.drafts import drafts_text

SENTENCE = "The quick brown fox jumps over the lazy dog while the old sailor tells a long story about the sea. "
REPEATING = [f"Repeat: {SENTENCE * 3}\nRepeat ({number}): {SENTENCE}" for number in range(8)]
WANDERING = [f"Once upon a time in a far country, {number} years ago" for number in range(8)]
GREEDY = SamplingParams(max_tokens=128, ignore_eos=True)
WORDS = range(300, 312)  # twelve tokens drawn alike: each pair of them comes again soon, each time followed by another
DRAWN = SamplingParams(
    max_tokens=128, ignore_eos=True, temperature=10.0, seed=1, logit_bias=tuple((token_id, 100.0) for token_id in WORDS)
)
T_95 = 2.145  # of 15 pairs, two-sided
PARTS = ("beams", "repeating", "adversarial", "batch-repeating", "batch-adversarial")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--draft-model")
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    parts, repeat = arguments.only.split(","), arguments.repeat
    speculate = "ngram" if arguments.draft_model is None else None
    with LLM(arguments.model, speculate=speculate, draft_model=arguments.draft_model) as llm:
        if "beams" in parts:
            beams(llm, repeat=repeat)
        for name, prompts, params in (
            ("repeating", REPEATING[:1], GREEDY),
            ("adversarial", WANDERING[:1], DRAWN),
            ("batch-repeating", REPEATING, GREEDY),
            ("batch-adversarial", WANDERING, DRAWN),
        ):
            if name in parts:
                drafts(name, prompts, params, llm=llm, repeat=repeat)


def beams(llm: LLM, *, repeat: int) -> None:
    """Each search and each greedy answer has a prompt of its own: nothing is read from the cache. Without drafts.

    Answers to random tokens repeat themselves: with drafts the greedy one would be no greedy sequence's time.
    """
    speculator = llm._worker.ask(lambda engine: engine.speculator)
    llm._worker.ask(lambda engine: setattr(engine, "speculator", None))
    rng = random.Random(0)
    one = SamplingParams(max_tokens=64, ignore_eos=True)
    four = SamplingParams(max_tokens=64, ignore_eos=True, beam=BeamSearch(width=4, early_stopping="never"))

    def answer(params: SamplingParams) -> object:
        return llm.generate([rng.randrange(llm.program.vocab_size // 2) for _ in range(256)], params)

    rounds = in_turn(lambda: answer(one), lambda: answer(four), repeat=repeat)
    llm._worker.ask(lambda engine: setattr(engine, "speculator", speculator))
    print(f"4 beams / 1 greedy answer, 256 + 64 tokens: {shown([1 / ratio for ratio, _ in rounds])}")


def drafts(name: str, prompts: Sequence[str], params: SamplingParams, *, llm: LLM, repeat: int) -> None:
    """The same texts from one engine with and without its drafts, the prompts read from the cache but for the first."""
    speculator = llm._worker.ask(lambda engine: engine.speculator)
    results: list[Result] = []

    def answer(drafting: Speculator | None) -> None:
        nonlocal results
        llm._worker.ask(lambda engine: setattr(engine, "speculator", drafting))
        results = llm.generate(prompts, params)

    answer(None)
    expected = [each.token_ids for each in results]
    answer(speculator)
    assert [each.token_ids for each in results] == expected, "drafts changed an answer"
    rounds = in_turn(lambda: answer(None), lambda: answer(speculator), repeat=repeat)
    answer(speculator)
    ratios, controls = [1 / ratio for ratio, _ in rounds], [control for _, control in rounds]
    print(f"{name}, {len(prompts)} at once: without / with {shown([ratio for ratio, _ in rounds])}")
    print(f"  time with / without: {interval(ratios)}; control {interval(controls)}")
    refused = llm.snapshot().refused_draft_share or 0.0
    steps = {step.start_s: step for each in results for step, absent in each.account.steps if absent is None}.values()
    looked = sum(step.draft_s for step in steps) / sum(step.handed_s - step.start_s for step in steps)
    tried = [each.speculation for each in results if each.speculation is not None]
    print(f"  refused drafts {refused:.2%} of StepCost, looks {looked:.2%} of the time; {drafts_text(tried[0])}")


def in_turn(without: Callable[[], object], with_: Callable[[], object], *, repeat: int) -> list[tuple[float, float]]:
    """Per round the time without over the time with, and of the two without; one uncounted round to warm up."""
    rounds = []
    for number in range(repeat + 1):
        times = [timed(each) for each in (without, with_, without)]
        control = times[2] / times[0] if number % 2 else times[0] / times[2]
        rounds.append(((times[0] + times[2]) / 2 / times[1], control))
    return rounds[1:]


def timed(run: Callable[[], object]) -> float:
    start_s = perf_counter()
    run()
    return perf_counter() - start_s


def shown(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"


def interval(ratios: Sequence[float]) -> str:
    """Median, and the 95 % interval of the geometric mean."""
    logs = [log(ratio) for ratio in ratios]
    half = T_95 * stdev(logs) / len(logs) ** 0.5
    return f"median {median(ratios):.3f}, 95 % interval [{exp(mean(logs) - half):.3f}, {exp(mean(logs) + half):.3f}]"


if __name__ == "__main__":
    main()
