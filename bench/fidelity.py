"""How far an engine's next-token law is from the fp32 evaluation of the same file, beside llama.cpp's distance.

    python bench/fidelity.py [-m MODEL] [--tokens 8192] [--kv bf16] [--text FILE] [--json]

For every position of real text: KL(reference || engine) over the whole vocabulary. The reference is the NumPy
reader on the dequantised weights with fp32 activations and cache. Engines see the same tokens in the same
windows. Ratios are of means and of 99th percentiles; the interval is a paired bootstrap over blocks of 64
tokens (neighbouring positions are not independent). Needs the extra `bench`.
"""

import argparse
import json
import pydoc_data.topics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.llm import LLM
from twostroke.model.open import open_model
from twostroke.program.program import BoundStep, Program
from twostroke.program.reader import KVSpec
from twostroke.program.reference import ReferenceReader

try:
    import llama_cpp

    from twostroke.measure.llama_cpp_peer import quiet_log
except ImportError as error:
    raise SystemExit(f"{__doc__}\n{error.name} is missing: pip install '.[bench]'") from None

WINDOW = 512  # tokens evaluated together, each window from an empty cache
BLOCK = 64  # tokens that the bootstrap draws together
DRAWS = 10_000
KL_ROWS = 64  # rows widened to float64 at a time
Logits = npt.NDArray[np.float32]
Evaluate = Callable[[list[int]], Logits]


@dataclass(frozen=True)
class Distances:
    """KL in nats and top-1 agreement, per position."""

    kl: npt.NDArray[np.float64]
    agrees: npt.NDArray[np.bool_]


def main() -> None:
    options = parse_options()
    with LLM(options.model, kv=options.kv) as llm:
        path = llm.path
        token_ids = llm.tokenizer.encode(real_text(options.text))[: options.tokens]
        windows = list(windows_of(token_ids))
        reference = reference_evaluator(path, llm.program)
        engines: dict[str, Evaluate] = {"twostroke": llm.logits, "llama.cpp": llama_cpp_evaluator(path)}
        distances = measure(windows, reference, engines, vocab_size=llm.tokenizer.vocab_size)
    summary = summarise(distances)
    summary["model"], summary["kv"], summary["isa"] = options.model, llm.kv_precision, llm.isa
    print(json.dumps(summary) if options.json else table(summary))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Distance to the fp32 law, beside llama.cpp's.")
    parser.add_argument("-m", "--model", default="smollm2:135m")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--kv", default=None)
    parser.add_argument("--text", type=Path, default=None, help="a text file; the Python language reference by default")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def real_text(path: Path | None) -> str:
    """A file, or the language reference that ships with every Python: real prose and code."""
    if path is not None:
        return path.read_text(encoding="utf-8")
    return "\n\n".join(pydoc_data.topics.topics.values())


def windows_of(token_ids: list[int]) -> Iterator[list[int]]:
    """Whole windows only, so that every block of the bootstrap has the same length."""
    for start in range(0, len(token_ids) - WINDOW + 1, WINDOW):
        yield token_ids[start : start + WINDOW]


def reference_evaluator(path: Path, program: Program) -> Evaluate:
    """fp32 everywhere, on the dequantised file."""
    num_blocks = tuple(WINDOW // 16 for _ in program.kv_groups)
    spec = KVSpec(precision="f32", block_size=16, num_blocks=num_blocks)
    reader = ReferenceReader(program, open_model(path).tensors, kv=spec, activations="f32")

    def evaluate(token_ids: list[int]) -> Logits:
        table = np.arange(WINDOW // 16, dtype=np.int32)[None]
        return reader.run(
            BoundStep(
                token_ids=np.array(token_ids, np.int32),
                row_starts=np.array([0, len(token_ids)], np.int32),
                row_positions=np.zeros(1, np.int32),
                block_tables=tuple(table for _ in program.kv_groups),
                selected=np.arange(len(token_ids), dtype=np.int32),
            )
        )

    return evaluate


def llama_cpp_evaluator(path: Path) -> Evaluate:
    """llama.cpp with its defaults, all positions' logits."""
    kept = quiet_log()
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = WINDOW
    params.n_outputs_max = params.n_outputs_max_per_seq = WINDOW
    params.n_threads = params.n_threads_batch = 2
    context = llama_cpp.llama_init_from_model(model, params)
    vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    batch = llama_cpp.llama_batch_init(WINDOW, 0, 1)

    def evaluate(token_ids: list[int]) -> Logits:
        assert kept is not None
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        batch.n_tokens = len(token_ids)
        for position, token_id in enumerate(token_ids):
            batch.token[position] = token_id
            batch.pos[position] = position
            batch.n_seq_id[position] = 1
            batch.seq_id[position][0] = 0
            batch.logits[position] = True
        if llama_cpp.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")
        rows = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(token_ids), vocab_size))
        return rows.copy()

    return evaluate


def measure(
    windows: list[list[int]], reference: Evaluate, engines: dict[str, Evaluate], *, vocab_size: int
) -> dict[str, Distances]:
    parts: dict[str, list[Distances]] = {name: [] for name in engines}
    for number, window in enumerate(windows, 1):
        truth = reference(window)[:, :vocab_size]
        for name, evaluate in engines.items():
            parts[name].append(distance(truth, evaluate(window)[:, :vocab_size]))
        print(f"window {number} of {len(windows)}", file=sys.stderr)
    return {
        name: Distances(np.concatenate([d.kl for d in each]), np.concatenate([d.agrees for d in each]))
        for name, each in parts.items()
    }


def distance(truth: Logits, logits: Logits) -> Distances:
    kl = np.empty(len(truth))
    for start in range(0, len(truth), KL_ROWS):
        rows = slice(start, start + KL_ROWS)
        log_p, log_q = log_softmax(truth[rows]), log_softmax(logits[rows])
        kl[rows] = np.sum(np.exp(log_p) * (log_p - log_q), axis=1)
    return Distances(kl=kl, agrees=truth.argmax(axis=1) == logits.argmax(axis=1))


def log_softmax(logits: Logits) -> npt.NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide


def summarise(distances: dict[str, Distances]) -> dict[str, object]:
    ours, theirs = distances["twostroke"].kl, distances["llama.cpp"].kl
    summary: dict[str, object] = {"tokens": len(ours)}
    for name, each in distances.items():
        summary[name] = {
            "mean": float(each.kl.mean()),
            "p99": float(np.percentile(each.kl, 99)),
            "max": float(each.kl.max()),
            "top1": float(each.agrees.mean()),
        }
    low, high = bootstrap(ours, theirs)
    summary["mean_ratio"] = float(ours.mean() / theirs.mean())
    summary["mean_ratio_interval"] = [low, high]
    summary["p99_ratio"] = float(np.percentile(ours, 99) / np.percentile(theirs, 99))
    return summary


def bootstrap(ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]) -> tuple[float, float]:
    """95 % interval of the ratio of means; both engines' blocks are drawn together."""
    our_blocks, their_blocks = (kl.reshape(-1, BLOCK).sum(axis=1) for kl in (ours, theirs))
    drawn = np.random.default_rng(0).integers(len(our_blocks), size=(DRAWS, len(our_blocks)))
    ratios = our_blocks[drawn].sum(axis=1) / their_blocks[drawn].sum(axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def table(summary: dict[str, object]) -> str:
    lines = [f"{summary['model']}, kv {summary['kv']}, {summary['isa']}, {summary['tokens']} tokens"]
    for name in ("twostroke", "llama.cpp"):
        each = summary[name]
        assert isinstance(each, dict)
        lines.append(
            f"{name:10} mean {each['mean']:.5f}  p99 {each['p99']:.5f}  max {each['max']:.3f}  top-1 {each['top1']:.4f}"
        )
    low, high = summary["mean_ratio_interval"]  # type: ignore[misc]
    lines.append(
        f"mean ratio {summary['mean_ratio']:.3f} [{low:.3f}, {high:.3f}]  p99 ratio {summary['p99_ratio']:.3f}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
