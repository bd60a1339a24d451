"""What serving costs: the same prompts through the server and offline, in turn, on the same cores.

    python bench/served.py [-m MODEL] [--threads 2] [--repeat 5]

The server is a process of its own, its client (`bench serve`) and offline (LLM) share this one. One stream: time per
output token, served / offline, at most 1.1. Sixteen streams: tokens per second, served / offline, at least 0.85. Ratios
are of pairs of runs that followed each other; close other programs first.
"""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from twostroke import LLM, SamplingParams
from twostroke.traffic.load import LoadConfig, run_load, workload_of
from twostroke.traffic.prompts import WORDS, PromptMaker

PROMPT, ALONE, TOGETHER, STREAMS = 128, 128, 64, 16
LIMITS = {"TPOT": 1.1, "throughput": 0.85}


def main() -> None:
    parser = argparse.ArgumentParser(description="Served beside offline.")
    parser.add_argument("-m", "--model", default="smollm2:135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    alone: list[tuple[float, float]] = []
    together: list[tuple[float, float]] = []
    with LLM(options.model, threads=options.threads) as llm, served(options.model, options.threads) as address:
        for seed in range(options.repeat + 1):  # the first pair warms up
            one = LoadConfig(url=address, concurrency=1, requests=1, output_tokens=(ALONE, ALONE), seed=seed)
            alone.append((offline(llm, one)[0], by_server(one)[0]))
            many = LoadConfig(
                url=address, concurrency=STREAMS, requests=STREAMS, output_tokens=(TOGETHER, TOGETHER), seed=seed
            )
            together.append((offline(llm, many)[1], by_server(many)[1]))
    print(f"{options.model}, {options.threads} threads, {PROMPT} tokens in, median of {options.repeat} pairs")
    print(f"1 stream of {ALONE}: TPOT {told(alone, 1e3, 'ms')}, at most {LIMITS['TPOT']}")
    print(f"{STREAMS} streams of {TOGETHER}: {told(together, 1, 'tok/s')}, at least {LIMITS['throughput']}")


def offline(llm: LLM, config: LoadConfig) -> tuple[float, float]:
    """(median TPOT, tokens per second) of the very prompts that `bench serve` sends."""

    async def count(text: str) -> int:
        return len(llm.encode(text))

    maker = PromptMaker(words=WORDS, count=count, tokens_per_word=1.0, overhead=0)
    items = workload_of(config).items
    texts = [asyncio.run(maker.text_of(item)) for item in items]
    start_s = llm.now()
    results = llm.generate(texts, SamplingParams(max_tokens=items[0].output_tokens, ignore_eos=True))
    took_s = llm.now() - start_s
    tpots = [result.timing.tpot_s for result in results if result.timing.tpot_s is not None]
    return median(tpots), sum(len(result.token_ids) for result in results) / took_s


def by_server(config: LoadConfig) -> tuple[float, float]:
    """The same as a client of the server sees it."""
    summary = run_load(config).summary
    assert not summary.errors, summary.errors
    assert summary.tpot is not None, "more than one token"
    assert summary.output_per_s is not None, "time passed"
    return summary.tpot.percentiles[0], summary.output_per_s


@contextmanager
def served(model: str, threads: int) -> Iterator[str]:
    """The address of a server in a process of its own."""
    command = [sys.executable, "-m", "twostroke", "serve", "-m", model, "--port", "0", "--threads", str(threads)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "http://" not in said:
                line = process.stderr.readline()
                if not line:
                    raise SystemExit(f"the server did not start: {said}")
                said += line
            yield said[said.index("http://") :].split("/v1")[0]
        finally:
            process.terminate()


def told(pairs: list[tuple[float, float]], scale: float, unit: str) -> str:
    counted = pairs[1:]
    before, after = [pair[0] * scale for pair in counted], [pair[1] * scale for pair in counted]
    ratios = spread([served / alone for alone, served in counted], digits=3)
    return f"offline {spread(before)} {unit}, served {spread(after)} {unit}, ratio {ratios}"


def spread(values: list[float], *, digits: int = 2) -> str:
    return f"{median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


if __name__ == "__main__":
    main()
