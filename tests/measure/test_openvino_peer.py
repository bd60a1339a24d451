"""OpenVINO GenAI as a peer, on a fake of its modules: which pipeline is asked what, and what its times mean."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from twostroke.measure.cell import Cell, Kind

VOCABULARY = 50
log: list[tuple[Any, ...]] = []


class FakePipeline:
    """Writes what it was asked into the log; 3 ms to the first token, 2 ms to each other."""

    steps_lost = 0

    def __init__(self, path: str, *arguments: Any, **properties: Any) -> None:
        log.append((type(self).__name__, path, arguments[-1] if properties == {} else properties))

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(get_vocab=lambda: dict.fromkeys(range(VOCABULARY)))


class LLMPipeline(FakePipeline):
    def generate(self, prompt: Any, params: Any) -> Any:
        log.append(("one", prompt.shape, params.max_new_tokens, params.ignore_eos, params.do_sample))
        durations = [2000.0] * (params.max_new_tokens - 1 - self.steps_lost)
        raw = SimpleNamespace(m_durations=durations)
        return SimpleNamespace(
            perf_metrics=SimpleNamespace(get_ttft=lambda: SimpleNamespace(mean=3.0), raw_metrics=raw)
        )


class ContinuousBatchingPipeline(FakePipeline):
    def generate(self, prompts: list[Any], params: list[Any]) -> list[Any]:
        log.append(("several", [prompt.shape for prompt in prompts], [one.max_new_tokens for one in params]))
        lengths = [one.max_new_tokens - self.steps_lost for one in params]
        return [SimpleNamespace(m_generation_ids=[[1] * length]) for length in lengths]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    openvino, genai = ModuleType("openvino"), ModuleType("openvino_genai")
    openvino.Tensor = lambda values: values  # type: ignore[attr-defined]
    for name, value in {
        "get_version": lambda: "2099.1",
        "LLMPipeline": LLMPipeline,
        "ContinuousBatchingPipeline": ContinuousBatchingPipeline,
        "SchedulerConfig": lambda: SimpleNamespace(max_num_batched_tokens=256, max_num_seqs=8),
        "GenerationConfig": SimpleNamespace,
    }.items():
        setattr(genai, name, value)
    monkeypatch.setitem(sys.modules, "openvino", openvino)
    monkeypatch.setitem(sys.modules, "openvino_genai", genai)
    monkeypatch.delitem(sys.modules, "twostroke.measure.openvino_peer", raising=False)
    loaded = importlib.import_module("twostroke.measure.openvino_peer")
    monkeypatch.setattr(loaded, "features", lambda: "Intel AVX2")
    log.clear()
    yield loaded
    del sys.modules["twostroke.measure.openvino_peer"]


@pytest.fixture
def peer(module: ModuleType, tmp_path: Path) -> Any:
    (tmp_path / "tiny.gguf").touch()
    return module.Peer(str(tmp_path / "tiny.gguf"), threads=2)


def test_prefill_is_the_time_to_the_first_token(peer: Any) -> None:
    assert peer.measure(Cell(Kind.PREFILL, prompt=7)) == 0.003
    (kind, path, properties), asked = log
    assert (kind, Path(path).name, properties) == ("LLMPipeline", "tiny.gguf", {"INFERENCE_NUM_THREADS": 2})
    assert asked == ("one", (1, 7), 1, True, False)


def test_decode_is_the_time_of_the_tokens_after_the_first(peer: Any) -> None:
    assert peer.measure(Cell(Kind.DECODE, generate=5)) == pytest.approx(0.010)
    assert peer.measure(Cell(Kind.DECODE, generate=4, depth=9)) == pytest.approx(0.008)
    assert log[1:] == [("one", (1, 1), 6, True, False), ("one", (1, 9), 5, True, False)], "one pipeline for both"


def test_requests_go_through_continuous_batching_at_once(peer: Any) -> None:
    assert peer.measure(Cell(Kind.REQUESTS, prompt=6, generate=3, batch=2)) > 0
    (kind, _, properties), asked = log
    assert (kind, properties) == ("ContinuousBatchingPipeline", {"INFERENCE_NUM_THREADS": 2})
    assert asked == ("several", [(1, 6), (1, 6)], [3, 3])


def test_only_the_pipeline_in_use_is_kept(peer: Any) -> None:
    for kind in (Kind.DECODE, Kind.REQUESTS, Kind.DECODE):
        peer.measure(Cell(kind, prompt=1, generate=2))
    assert [entry[0] for entry in log if entry[0].endswith("Pipeline")] == [
        "LLMPipeline",
        "ContinuousBatchingPipeline",
        "LLMPipeline",
    ]


def test_an_answer_that_is_too_short_is_no_measurement(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakePipeline, "steps_lost", 1)
    with pytest.raises(SystemExit, match="openvino made 4 steps of 5"):
        peer.measure(Cell(Kind.DECODE, generate=5))
    with pytest.raises(SystemExit, match=r"openvino wrote \[2, 2\] tokens of 3 each"):
        peer.measure(Cell(Kind.REQUESTS, prompt=1, generate=3, batch=2))


def test_a_missing_file_is_told(module: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="there is no such file"):
        module.Peer(str(tmp_path / "none.gguf"), threads=1)
