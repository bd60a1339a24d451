"""OpenVINO GenAI as a peer in a benchmark: a program of its own, which reads the same GGUF file.

Phases are what its own pipeline reports of them (`perf_metrics`, which its benchmark prints too), with its defaults
and its greedy sampler; several requests go through its continuous batching at once. Needs the extra `bench`.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

from twostroke.core.clock import WallClock
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.peer_lines import answer

# oneDNN names its instruction set when it runs something; while it talks, other work may fail: a process of its own
ASK_ISA = """
import os
os.environ["ONEDNN_VERBOSE"] = "1"
import numpy, openvino
from openvino import opset13
row = opset13.parameter([1, 16], numpy.float32)
product = opset13.matmul(row, opset13.constant(numpy.ones((16, 16), numpy.float32)), False, False)
openvino.Core().compile_model(openvino.Model([product], [row]), "CPU")([numpy.ones((1, 16), numpy.float32)])
"""


class Peer:
    """One file, and the pipeline that the latest cell needed: two at once would hold the weights twice."""

    version: str = openvino_genai.get_version()

    def __init__(self, path: str, *, threads: int) -> None:
        if not Path(path).exists():
            raise SystemExit(f"openvino cannot load {path}: there is no such file")
        self._path = path
        self._properties = {"INFERENCE_NUM_THREADS": threads}
        self._random = np.random.default_rng(1)
        self._clock = WallClock()
        self._pipeline: Any = None
        self._vocab_size = 0
        self.features = features()

    def measure(self, cell: Cell) -> float:
        """Seconds. The first measurement of a kind loads its pipeline."""
        if cell.kind is Kind.REQUESTS:
            return self._requests(cell)
        pipeline = self._pipeline_of(openvino_genai.LLMPipeline, "CPU", **self._properties)
        if cell.kind is Kind.PREFILL:
            metrics = pipeline.generate(self._prompt(cell.prompt), greedy(1)).perf_metrics
            return float(metrics.get_ttft().mean) / 1e3
        metrics = pipeline.generate(self._prompt(max(cell.depth, 1)), greedy(cell.generate + 1)).perf_metrics
        microseconds = metrics.raw_metrics.m_durations  # of the tokens after the first
        if len(microseconds) != cell.generate:
            raise SystemExit(f"openvino made {len(microseconds)} steps of {cell.generate}")
        return float(sum(microseconds)) / 1e6

    def _requests(self, cell: Cell) -> float:
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.max_num_batched_tokens = max(scheduling.max_num_batched_tokens, cell.batch * cell.prompt)
        scheduling.max_num_seqs = max(scheduling.max_num_seqs, cell.batch)
        pipeline = self._pipeline_of(openvino_genai.ContinuousBatchingPipeline, scheduling, "CPU", self._properties)
        prompts = [self._prompt(cell.prompt) for _ in range(cell.batch)]
        start_s = self._clock.now()
        answers = pipeline.generate(prompts, [greedy(cell.generate)] * cell.batch)
        took_s = self._clock.now() - start_s
        lengths = [len(one.m_generation_ids[0]) for one in answers]
        if lengths != [cell.generate] * cell.batch:
            raise SystemExit(f"openvino wrote {lengths} tokens of {cell.generate} each")
        return took_s

    def _pipeline_of(self, kind: Any, *arguments: Any, **properties: Any) -> Any:
        if not isinstance(self._pipeline, kind):
            self._pipeline = None
            self._pipeline = kind(self._path, *arguments, **properties)
            self._vocab_size = len(self._pipeline.get_tokenizer().get_vocab())
        return self._pipeline

    def _prompt(self, count: int) -> Any:
        return openvino.Tensor(self._random.integers(self._vocab_size, size=(1, count), dtype=np.int64))


def greedy(max_tokens: int) -> Any:
    params = openvino_genai.GenerationConfig()
    params.max_new_tokens = max_tokens
    params.ignore_eos = True
    params.do_sample = False
    return params


def features() -> str:
    """oneDNN's sentence about its instruction set; empty where it says none."""
    asked = subprocess.run([sys.executable, "-c", ASK_ISA], capture_output=True, text=True, check=False)
    found = re.search(r"cpu,isa:(.*)", asked.stdout)
    return found.group(1).strip() if found else ""


if __name__ == "__main__":
    answer(Peer)
