"""The generator against a server whose times are known: how far off it is, and what it costs itself.

The mock runs in a process of its own, as a server would. Called by `bench serve --self-test`.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from twostroke.core.clock import cpu_time_s
from twostroke.errors import RemoteError
from twostroke.traffic.load import Load, LoadConfig, run_load

TTFT_S, ITL_S = 0.05, 0.01
STREAMS, REQUESTS, TOKENS = 16, 64, 64


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What was found of a server that answers on schedule; `cpu_s` is the generator's own work."""

    load: Load
    cpu_s: float

    @property
    def cpu_s_per_token(self) -> float:
        return self.cpu_s / self.load.summary.output_tokens

    @property
    def medians_s(self) -> dict[str, tuple[float, float]]:
        """Name -> (scheduled, found)."""
        summary = self.load.summary
        assert summary.ttft is not None, "the mock answers"
        assert summary.tpot is not None, "with more than one token"
        return {"TTFT": (TTFT_S, summary.ttft.percentiles[0]), "TPOT": (ITL_S, summary.tpot.percentiles[0])}


def self_test() -> SelfTest:
    """Takes some seconds. Raises RemoteError where the mock does not start."""
    with mock_process(ttft_s=TTFT_S, itl_s=ITL_S) as address:
        config = LoadConfig(
            url=address, concurrency=STREAMS, requests=REQUESTS, output_tokens=(TOKENS, TOKENS), warm_up=STREAMS
        )
        before_s = cpu_time_s()
        load = run_load(config)
        return SelfTest(load, cpu_time_s() - before_s)


@contextmanager
def mock_process(*, ttft_s: float, itl_s: float) -> Iterator[str]:
    """The address of a mock in a process of its own; it ends with the block."""
    schedule = ["--ttft-ms", f"{ttft_s * 1000:g}", "--itl-ms", f"{itl_s * 1000:g}"]
    command = [sys.executable, "-m", "twostroke.traffic.mock_server", *schedule]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise RemoteError("the mock server did not start", kind="no mock")
            yield address
        finally:
            process.terminate()
