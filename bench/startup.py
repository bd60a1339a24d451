"""From process start to the first token, peak memory, and the load time of a large vocabulary.

    python bench/startup.py [-m MODEL] [--repeat 7]

Each run is a whole new process of `twostroke run` with a prompt of about 20 tokens; the time is to the first byte of
the answer on its stdout, with the files in the page cache (one uncounted run first). Peak memory is what the
operating system says of the finished process. The vocabulary is synthetic: 152,064 byte-level tokens with as many
merges, loaded from a warm tokenizer cache.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from twostroke.config import resolve
from twostroke.model.catalog import resolve_model
from twostroke.text.gguf_tokenizer import tokenizer_from_gguf

PROMPT = "Count to five in words."  # 20 to 40 tokens with a usual chat template around it
VOCABULARY = 152_064  # Qwen 2's


def main() -> None:
    parser = argparse.ArgumentParser(description="Start-up time and memory.")
    parser.add_argument("-m", "--model", default="smollm2:135m")
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    config = resolve()
    path = resolve_model(options.model, home=config.home, ollama_models=config.ollama_models)
    runs = [first_token(options.model) for _ in range(options.repeat + 1)][1:]
    times, peaks = [seconds for seconds, _ in runs], [peak for _, peak in runs]
    print(f"{options.model}: first token after {spread(times, 's')}; file {path.stat().st_size / 1e6:.0f} MB")
    print(f"peak RSS {spread([peak / 1e6 for peak in peaks], 'MB')}")
    loads = vocabulary_loads(options.repeat)
    print(f"vocabulary of {VOCABULARY}: {spread([1000 * seconds for seconds in loads], 'ms')}")


def first_token(model: str) -> tuple[float, int]:
    """(seconds to the first byte of the answer, peak resident bytes) of one process."""
    code = "import sys; from twostroke.cli.entry import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "run", "-m", model, "--quiet", "--max-tokens", "1", PROMPT]
    start_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    took_s = time.perf_counter() - start_s
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"the run ended with status {status}")
    return took_s, usage.ru_maxrss * 1024


def vocabulary_loads(repeat: int) -> list[float]:
    metadata = synthetic_vocabulary()
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeat + 1):
            start_s = time.perf_counter()
            tokenizer = tokenizer_from_gguf(metadata, cache_directory=Path(folder), fingerprint="synthetic")
            times.append(time.perf_counter() - start_s)
            assert tokenizer.vocab_size == VOCABULARY
    return times[1:]


def synthetic_vocabulary() -> dict[str, object]:
    """Letters that merge at random into longer pieces, as training would have done."""
    rng = np.random.default_rng(0)
    letters = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256))]
    letters += [chr(256 + number) for number in range(256 - len(letters))]
    tokens, merges, known = list(letters), [], set(letters)
    while len(tokens) < VOCABULARY:
        left, right = (tokens[int(len(tokens) * rng.random() ** 3)] for _ in range(2))
        joined = left + right
        if joined not in known and len(joined) <= 12:
            known.add(joined)
            tokens.append(joined)
            merges.append(f"{left} {right}")
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [1] * len(tokens),
    }


def spread(values: list[float], unit: str) -> str:
    return f"{median(values):.3g} {unit} [{min(values):.3g}, {max(values):.3g}], median of {len(values)}"


if __name__ == "__main__":
    main()
