"""`twostroke bench`: what it shows of a measurement, and what it refuses before it measures."""

import json
from pathlib import Path

import pytest

from tests.builders_llm import write_puppet
from tests.measure.peer_builders import open_peer
from twostroke.cli import app
from twostroke.cli.bench import json_of, lines_of
from twostroke.measure.generation import Comparison, Load, Series

Capture = pytest.CaptureFixture[str]
LOAD = Load(prompt=8, generate=4, depth=0, batch=1)
ABOUT = {"model": "tiny", "isa": "portable", "threads": 1, "kv": "bf16", "repeat": 3}
OURS = Series("twostroke", (100.0, 300.0, 200.0), (10.0, 30.0, 20.0))
THEIRS = Series("scripted", (50.0, 50.0, 50.0), ())


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path))
    monkeypatch.setenv("TWOSTROKE_THREADS", "1")
    return str(write_puppet(tmp_path / "puppet.gguf"))


def test_a_table_shows_median_and_spread(capsys: Capture, model: str) -> None:
    assert app.main(["bench", "-m", model, "-p", "8", "-n", "4", "--repeat", "2"]) == 0
    about, heading, ours = capsys.readouterr().out.splitlines()
    assert about.startswith(model)
    assert "1 thread, kv bf16, median of 2 [lowest, highest], tok/s" in about
    assert heading.split() == ["prefill", "8", "at", "depth", "0", "decode", "4", "at", "depth", "0"]
    assert ours.startswith("twostroke ")
    assert ours.count("[") == 2


def test_json_holds_every_run(capsys: Capture, model: str) -> None:
    arguments = ["-p", "8", "-n", "4", "-d", "20", "-b", "2", "--repeat", "3", "--kv", "f32", "--json"]
    assert app.main(["bench", "-m", model, *arguments]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    report = json.loads(said.out)
    assert report["load"] == {"prompt": 8, "generate": 4, "depth": 20, "batch": 2}
    assert (report["model"], report["kv"], report["threads"], report["repeat"]) == (model, "f32", 1, 3)
    assert report["ratios"] == {"prefill": None, "decode": None}
    (ours,) = report["engines"]
    assert ours["engine"] == "twostroke"
    assert len(ours["prefill_runs"]) == len(ours["decode_runs"]) == 3
    assert ours["decode_tokens_per_s"] == sorted(ours["decode_runs"])[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--repeat", "0"], "--repeat is 0: it must be at least 1"),
        (["-p", "0", "-n", "0"], "--prompt and --generate are both 0: nothing would be timed"),
        (["-b", "0"], "--batch is 0: it must be at least 1"),
        (["--vs", "vllm"], "--vs is 'vllm': known peers are llama.cpp"),
        (["-p", "2000"], "the context is 1024"),
        (["--kv", "int4"], "kv is 'int4'"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    capsys: Capture, model: str, arguments: list[str], words: str
) -> None:
    assert app.main(["bench", "-m", model, *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1


def test_a_peer_stands_below_with_ratios_and_its_version() -> None:
    comparison = Comparison(ours=OURS, peer=THEIRS, prefill_ratio=4.0, decode_ratio=None)
    with open_peer() as peer:
        about, heading, ours, theirs, ratio, version = lines_of(comparison, LOAD, ABOUT, peer)
        report = json_of(comparison, LOAD, ABOUT, peer)
    assert about == "tiny  portable, 1 thread, kv bf16, median of 3 [lowest, highest], tok/s"
    assert ours.split() == ["twostroke", "200.0", "[100.0,", "300.0]", "20.0", "[10.0,", "30.0]"]
    assert theirs.split() == ["scripted", "50.0", "[50.0,", "50.0]", "-"]
    assert ratio.split() == ["ratio", "4.00x", "-"]
    assert version == "json 1.2: threads 2 of 4"
    assert len({len(line) for line in (heading, ours, theirs, ratio)}) == 1, "columns are aligned"
    assert report["ratios"] == {"prefill": 4.0, "decode": None}
    assert report["engines"][1] == {
        "engine": "scripted",
        "prefill_tokens_per_s": 50.0,
        "decode_tokens_per_s": None,
        "prefill_runs": [50.0, 50.0, 50.0],
        "decode_runs": [],
        "version": "json 1.2",
        "features": "threads 2 of 4",
    }


@pytest.mark.oracle
def test_llama_cpp_is_measured_in_turn(capsys: Capture, model: str) -> None:
    pytest.importorskip("llama_cpp")
    arguments = ["-p", "8", "-n", "4", "--repeat", "1", "--vs", "llama.cpp", "--json"]
    assert app.main(["bench", "-m", model, *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [engine["engine"] for engine in report["engines"]] == ["twostroke", "llama.cpp"]
    assert report["engines"][1]["version"].startswith("llama_cpp ")
    assert report["ratios"]["prefill"] > 0
    assert report["ratios"]["decode"] > 0


def test_kernels_are_measured_without_a_model(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOSTROKE_ISA", "portable")
    for name, value in (("BUDGET_S", 0.0), ("PROMPT", 2), ("PRODUCT_ROWS", 32), ("STREAM_BYTES", 1 << 16)):
        monkeypatch.setattr(f"twostroke.measure.kernels.{name}", value)
    assert app.main(["bench", "--kernels", "--threads", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["threads"] == 1
    assert {each["isa"] for each in report["kernels"]} == {"portable"}
    assert len(report["kernels"]) == 11
    assert app.main(["bench", "--kernels", "--threads", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + 11


def test_kernels_refuse_threads_out_of_range(capsys: Capture) -> None:
    assert app.main(["bench", "--kernels", "--threads", "0"]) == 2
    assert "must be from 1 to 1024" in capsys.readouterr().err
