"""Cancels at random points: how long until the blocks are free, and what is left of the work for whoever asks again.

    python bench/cancel.py [-m MODEL] [--cancels 100] [--prompt 7500] [--seed 1]

Half of the cancels hit the prefill of a long prompt, half the decode that follows. Each is timed from the call of
`cancel` until the finish is heard, which comes after the blocks were given back. Then the same request is sent again:
of the full blocks that were computed it must find at least nine tenths in the cache. The target is a p99 of 100 ms.
"""

import argparse
import random
import sys
import threading
import time
from dataclasses import dataclass

from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.core.sequence import FinishReason
from twostroke.llm import LLM
from twostroke.params import SamplingParams

TARGET_S = 0.1
TARGET_REUSE = 0.9
BLOCK = 16
MOST_DECODED = 64  # tokens before a cancel in decode


@dataclass(frozen=True)
class Cancel:
    latency_s: float
    num_computed: int  # tokens of the cancelled request
    num_reused: int  # of them found again


class Ears:
    """Hears one request; `has_tokens` once as many came."""

    def __init__(self, wanted: int) -> None:
        self.finish: FinishEvent | None = None
        self.end_s = 0.0
        self.has_tokens, self.has_ended = threading.Event(), threading.Event()
        self._left = wanted

    def __call__(self, event: Event) -> None:
        if isinstance(event, TokenEvent):
            self._left -= 1
            if self._left <= 0:
                self.has_tokens.set()
        else:
            self.finish, self.end_s = event, time.perf_counter()
            self.has_ended.set()


def main() -> None:
    parser = argparse.ArgumentParser(description="Cancels at random points.")
    parser.add_argument("-m", "--model", default="smollm2:135m")
    parser.add_argument("--cancels", type=int, default=100)
    parser.add_argument("--prompt", type=int, default=7500)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long, whatever is left")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    end_s = time.monotonic() + options.seconds
    with LLM(options.model) as llm:
        whole_s = prefill_seconds(llm, prompt_of(llm, options.prompt, rng))
        before = llm.snapshot()
        kinds: dict[str, list[Cancel]] = {"prefill": [], "decode": []}
        for number in range(options.cancels):
            if time.monotonic() > end_s:
                break
            kind = "decode" if number < options.cancels // 2 else "prefill"
            prompt = prompt_of(llm, options.prompt, rng) if kind == "prefill" else prompt_of(llm, 100, rng)
            kinds[kind].append(cancel_once(llm, prompt, rng, whole_s=whole_s if kind == "prefill" else None))
        after = llm.snapshot()
    print(f"prefill of {options.prompt} tokens: {whole_s:.2f} s")
    holds = [report(kind, cancels) for kind, cancels in kinds.items()]
    leaked = after.blocks_held - before.blocks_held
    total = after.blocks_free + after.blocks_cached + after.blocks_held - after.blocks_total
    print(f"blocks held afterwards {after.blocks_held}, free + cached + held - total {total}")
    sys.exit(0 if all(holds) and leaked == total == 0 else 1)


def prompt_of(llm: LLM, num_tokens: int, rng: random.Random) -> list[int]:
    return [rng.randrange(1000, llm.program.vocab_size // 2) for _ in range(num_tokens)]


def prefill_seconds(llm: LLM, prompt: list[int]) -> float:
    began_s = time.perf_counter()
    llm.generate([prompt], SamplingParams(max_tokens=1, ignore_eos=True))
    return time.perf_counter() - began_s


def cancel_once(llm: LLM, prompt: list[int], rng: random.Random, *, whole_s: float | None) -> Cancel:
    """Cancel inside a prefill that takes `whole_s`, or after some tokens where it is None."""
    ears = Ears(wanted=rng.randrange(1, MOST_DECODED))
    params = SamplingParams(max_tokens=MOST_DECODED * 2, ignore_eos=True)
    handle = llm.submit(prompt, params, on_event=ears)
    if whole_s is not None:
        time.sleep(rng.random() * whole_s * 0.95)
    else:
        ears.has_tokens.wait()
        time.sleep(rng.random() * 0.01)  # anywhere in a step
    called_s = time.perf_counter()
    handle.cancel()
    ears.has_ended.wait()
    assert ears.finish is not None
    assert ears.finish.reason is FinishReason.CANCELLED, ears.finish.reason
    held = llm.snapshot().blocks_held
    assert held == 0, f"{held} blocks are held after the finish"
    num_prompt = min(ears.finish.kv.tokens, len(prompt) - 1) // BLOCK * BLOCK
    return Cancel(ears.end_s - called_s, num_prompt, found_again(llm, prompt))


def found_again(llm: LLM, prompt: list[int]) -> int:
    """Tokens of the prompt that the same request finds in the cache; it ends once it has looked."""
    ears = Ears(wanted=1)
    handle = llm.submit(prompt, SamplingParams(max_tokens=1, ignore_eos=True), on_event=ears)
    while llm.progress(handle.request_id) == 0:
        time.sleep(0.001)
    handle.cancel()
    ears.has_ended.wait()
    assert ears.finish is not None
    return ears.finish.usage.cached_tokens


def report(kind: str, cancels: list[Cancel]) -> bool:
    if not cancels:
        return True
    times_s = sorted(each.latency_s for each in cancels)
    p50_s, p99_s = times_s[len(times_s) // 2], times_s[min(len(times_s) - 1, int(len(times_s) * 0.99))]
    done = [each for each in cancels if each.num_computed]
    least = min((each.num_reused / each.num_computed for each in done), default=1.0)
    holds = p99_s <= TARGET_S and least >= TARGET_REUSE
    print(
        f"{'PASS' if holds else 'FAIL'}  {kind}: {len(cancels)} cancels, blocks free after p50 {p50_s * 1e3:.1f} ms, "
        f"p99 {p99_s * 1e3:.1f} ms, most {times_s[-1] * 1e3:.1f} ms; finished blocks found: least {least:.1%}"
    )
    return holds


if __name__ == "__main__":
    main()
