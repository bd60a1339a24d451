"""`twostroke bench --kv-quality`: what each precision of the KV cache saves in bytes and costs in quality."""

import json
import pydoc_data.topics
import sys
from pathlib import Path

from twostroke.config import resolve
from twostroke.errors import ConfigError
from twostroke.llm import LLM
from twostroke.measure.kv_quality import POSITIONS, STRETCHES, KVQuality, kv_bytes_per_token, measure_kv_quality

PRECISIONS = ("bf16", "f16", "int8")


def bench_kv(*, model: str, kv: str | None, threads: int | None, text: Path | None, as_json: bool) -> None:
    """Print KL to an f32 cache at each depth beside the bytes of a token."""
    config = resolve()
    context = max(STRETCHES) + POSITIONS
    words = read_text(text)
    bytes_each: dict[str, int] = {}
    isa = ""

    def open_llm(precision: str) -> LLM:
        nonlocal isa
        llm = LLM(model, threads=threads, context=context, kv=precision, config=config)
        bytes_each[precision], isa = kv_bytes_per_token(llm.program, precision), llm.isa
        return llm

    found = measure_kv_quality(open_llm, words, precisions=PRECISIONS if kv is None else (kv,))
    about = {"model": model, "isa": isa, "text": "the language reference of Python" if text is None else str(text)}
    if as_json:
        sys.stdout.write(json.dumps(json_of(found, bytes_each, about), allow_nan=False) + "\n")
    else:
        sys.stdout.write("\n".join(lines_of(found, bytes_each, about)) + "\n")


def read_text(path: Path | None) -> str:
    """A file, or the language reference that ships with every Python: real prose and code.

    Raises ConfigError.
    """
    if path is None:
        return "\n\n".join(pydoc_data.topics.topics.values())
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text {path} cannot be read as UTF-8 text: {error}") from None


def json_of(found: list[KVQuality], bytes_each: dict[str, int], about: dict[str, str]) -> dict[str, object]:
    return {
        **about,
        "bytes_per_token": bytes_each,
        "quality": [
            {
                "kv": each.precision,
                "depth": each.depth,
                "positions": len(each.kl),
                "kl_mean": each.mean,
                "kl_p99": each.p99,
                "kl_max": max(each.kl),
                "top1_agreement": each.top1_agreement,
            }
            for each in found
        ],
    }


def lines_of(found: list[KVQuality], bytes_each: dict[str, int], about: dict[str, str]) -> list[str]:
    """A table: a line per precision, KL in nats at every depth."""
    depths = sorted({each.depth for each in found})
    counts = {each.depth: len(each.kl) for each in found}
    where = ", ".join(f"{counts[depth]} positions at depth {depth}" for depth in depths)
    lines = [
        f"{about['model']}  {about['isa']}, KL to an f32 KV cache in nats, mean / 99th percentile / same best token",
        f"{where}; text: {about['text']}",
        f"{'kv':6}{'bytes/token':>12}{'of f32':>8}" + "".join(f"{f'depth {depth}':>32}" for depth in depths),
    ]
    for precision in dict.fromkeys(each.precision for each in found):
        share = bytes_each[precision] / bytes_each["f32"]
        cells = "".join(
            f"{f'{each.mean:.6f} / {each.p99:.6f} / {each.top1_agreement:.1%}':>32}"
            for depth in depths
            for each in found
            if (each.precision, each.depth) == (precision, depth)
        )
        lines.append(f"{precision:6}{bytes_each[precision]:>12}{share:>8.0%}{cells}")
    return lines
