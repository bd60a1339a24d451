"""What a precision of the KV cache costs in quality: KL to the same kernels over an f32 cache, on given text.

The text is read, not generated: every precision sees the same tokens, so that one early difference cannot grow into
another story. At each depth, stretches of text are read up to it from an empty cache and the next-token laws of the
positions that follow are compared over the whole vocabulary. `twostroke bench --kv-quality` calls it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twostroke.errors import ConfigError
from twostroke.llm import LLM
from twostroke.program.kv_precision import kv_head_bytes
from twostroke.program.program import Program

REFERENCE = "f32"
POSITIONS = 64  # compared behind each depth, per stretch
STRETCHES = {128: 8, 4096: 2}  # depth -> how many: short ones are cheap, and need more for a steady mean
Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class KVQuality:
    """One precision at one depth. `kl` in nats, one per position."""

    precision: str
    depth: int
    kl: tuple[float, ...]
    top1_agreement: float

    @property
    def mean(self) -> float:
        return float(np.mean(self.kl))

    @property
    def p99(self) -> float:
        return float(np.percentile(self.kl, 99))


def measure_kv_quality(
    open_llm: Callable[[str], LLM], text: str, *, precisions: Sequence[str], stretches: dict[int, int] | None = None
) -> list[KVQuality]:
    """One model after the other: `open_llm` loads it with a precision, for at least depth + POSITIONS tokens.

    Raises ConfigError when the text is too short for the stretches.
    """
    stretches = STRETCHES if stretches is None else stretches
    with open_llm(REFERENCE) as llm:
        parts = _cut(llm.tokenizer.encode(text), stretches)
        truth = {depth: [_last(llm, ids) for ids in each] for depth, each in parts.items()}
    found = []
    for precision in precisions:
        with open_llm(precision) as llm:
            for depth, each in parts.items():
                pairs = [_distance(truth[depth][index], _last(llm, ids)) for index, ids in enumerate(each)]
                kl = np.concatenate([pair[0] for pair in pairs])
                agreement = float(np.mean([pair[1] for pair in pairs]))
                found.append(KVQuality(precision, depth, tuple(kl.tolist()), agreement))
    return found


def kv_bytes_per_token(program: Program, precision: str) -> int:
    """Bytes of K and V one token takes in all layers, before a window drops any."""
    return sum(
        2 * len(group.layers) * group.num_kv_heads * kv_head_bytes(precision, group.head_dim)
        for group in program.kv_groups
    )


def _cut(token_ids: list[int], stretches: dict[int, int]) -> dict[int, list[list[int]]]:
    wanted = max(count * (depth + POSITIONS) for depth, count in stretches.items())
    if len(token_ids) < wanted:
        raise ConfigError(f"the text has {len(token_ids)} tokens, the depths need {wanted}: take a longer --text")
    return {
        depth: [token_ids[start * (depth + POSITIONS) : (start + 1) * (depth + POSITIONS)] for start in range(count)]
        for depth, count in stretches.items()
    }


def _last(llm: LLM, token_ids: list[int]) -> Logits:
    return llm.logits(token_ids, last=POSITIONS)[:, : llm.tokenizer.vocab_size]


def _distance(truth: Logits, logits: Logits) -> tuple[npt.NDArray[np.float64], float]:
    """KL of each position, and the share of positions with the same best token."""
    log_p, log_q = _log_softmax(truth), _log_softmax(logits)
    kl = np.maximum(0.0, np.sum(np.exp(log_p) * (log_p - log_q), axis=1))  # rounding may fall below zero
    return kl, float(np.mean(truth.argmax(axis=1) == logits.argmax(axis=1)))


def _log_softmax(logits: Logits) -> npt.NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    out: npt.NDArray[np.float64] = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return out
