"""aiperf and `twostroke bench serve` in turn against one server whose times are known.

    python bench/against_aiperf.py --aiperf PATH/TO/aiperf [--repeat 3]

The mock answers on schedule in a process of its own; both tools keep the same number of streams of the same lengths.
Printed are the medians both find and by how much they differ: 2 % is the limit. aiperf (0.13.0) lives in an environment
of its own; nothing here imports it. It wants a tokenizer in the layout of the hub's cache: it gets one of single bytes.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from twostroke.traffic.load import LoadConfig, run_load
from twostroke.traffic.self_test import mock_process

REVISION = "0" * 40  # of a model that no hub has
LIMIT = 0.02
TTFT_S, ITL_S = 0.1, 0.01
STREAMS, REQUESTS, PROMPT, TOKENS = 4, 40, 64, 64


def main() -> None:
    parser = argparse.ArgumentParser(description="aiperf and ours in turn.")
    parser.add_argument("--aiperf", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder, mock_process(ttft_s=TTFT_S, itl_s=ITL_S) as address:
        place_tokenizer(Path(folder))
        for _ in range(options.repeat):
            ours.append(by_us(address))
            theirs.append(by_aiperf(options.aiperf, address, Path(folder)))
    print(
        f"{STREAMS} streams, {REQUESTS} requests of {PROMPT} in, {TOKENS} out; medians of {options.repeat} runs in turn"
    )
    for name, scheduled_s, column in (("TTFT", TTFT_S, 0), ("ITL", ITL_S, 1)):
        found, other = [run[column] for run in ours], [run[column] for run in theirs]
        print(f"{name:5} scheduled {scheduled_s * 1e3:.2f} ms; ours {spread(found)}; aiperf {spread(other)}", end="; ")
        off = median(found) / median(other) - 1
        print(f"ours / aiperf {off * 100:+.2f} %{'' if abs(off) <= LIMIT else ' (beyond 2 %)'}")


def by_us(address: str) -> tuple[float, float]:
    """(TTFT, TPOT), the medians over all requests; aiperf's ITL is our TPOT."""
    summary = run_load(
        LoadConfig(
            url=address,
            api="chat",
            concurrency=STREAMS,
            requests=REQUESTS,
            input_tokens=(PROMPT, PROMPT),
            output_tokens=(TOKENS, TOKENS),
            warm_up=STREAMS,
        )
    ).summary
    assert summary.ttft is not None, summary.errors
    assert summary.tpot is not None, summary.errors
    return summary.ttft.percentiles[0], summary.tpot.percentiles[0]


def by_aiperf(program: Path, address: str, folder: Path) -> tuple[float, float]:
    """(TTFT, ITL), its medians."""
    out = Path(tempfile.mkdtemp(dir=folder))
    command = [str(program), "profile", "--model", "mock", "--url", address, "--endpoint-type", "chat", "--streaming"]
    command += ["--concurrency", str(STREAMS), "--request-count", str(REQUESTS), "--warmup-request-count", str(STREAMS)]
    command += ["--synthetic-input-tokens-mean", str(PROMPT), "--synthetic-input-tokens-stddev", "0"]
    command += ["--output-tokens-mean", str(TOKENS), "--output-tokens-stddev", "0", "--use-server-token-count"]
    command += ["--tokenizer", "local/tokenizer", "--artifact-dir", str(out), "--ui-type", "none"]
    environment = os.environ | {"HF_HOME": str(folder), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    reports = list(out.rglob("profile_export_aiperf.json"))
    if not reports:
        raise SystemExit(f"aiperf ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    report = json.loads(reports[0].read_text())
    return report["time_to_first_token"]["p50"] / 1e3, report["inter_token_latency"]["p50"] / 1e3


def place_tokenizer(home: Path) -> None:
    """In the layout of the hub's cache, so that it is found without a network."""
    model = home / "hub" / "models--local--tokenizer"
    files = model / "snapshots" / REVISION
    files.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(REVISION)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(files / "tokenizer.json"))
    (files / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def spread(seconds: list[float]) -> str:
    return f"{median(seconds) * 1e3:.2f} [{min(seconds) * 1e3:.2f}, {max(seconds) * 1e3:.2f}] ms"


if __name__ == "__main__":
    main()
