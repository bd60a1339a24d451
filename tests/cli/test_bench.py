"""`twostroke bench`: what it shows of a measurement, and what it refuses before it measures."""

import json
from pathlib import Path

import pytest

from tests.builders_llm import write_puppet
from tests.measure.peer_builders import open_peer
from twostroke.cli import app
from twostroke.cli.bench import Report, json_of, lines_of
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.generation import Comparison

Capture = pytest.CaptureFixture[str]
ABOUT = {"model": "tiny", "isa": "portable", "threads": 1, "kv": "bf16", "repeat": 3}
COMPARISONS = [
    Comparison(Cell(Kind.PREFILL, prompt=8), (100.0, 300.0, 200.0), (50.0, 50.0, 50.0)),
    Comparison(Cell(Kind.DECODE, generate=4, depth=9), (10.0, 30.0, 20.0), refusal="scripted has no depth"),
]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path))
    monkeypatch.setenv("TWOSTROKE_THREADS", "1")
    return str(write_puppet(tmp_path / "puppet.gguf"))


def test_a_table_shows_median_and_spread(capsys: Capture, model: str) -> None:
    assert app.main(["bench", "-m", model, "-p", "8,16", "-n", "4", "--repeat", "2"]) == 0
    about, heading, *cells = capsys.readouterr().out.splitlines()
    assert about.startswith(model)
    assert "1 thread, kv bf16, median of 2 [lowest, highest], tok/s" in about
    assert heading.split() == ["twostroke"]
    assert [line.split("  ")[0] for line in cells] == ["prefill 8", "prefill 16", "decode 4"]
    assert [line.count("[") for line in cells] == [1, 1, 1]


def test_json_holds_every_run(capsys: Capture, model: str) -> None:
    arguments = ["-p", "8", "-n", "4", "-d", "20", "-b", "2", "--requests", "6,3", "--repeat", "3", "--kv", "f32"]
    assert app.main(["bench", "-m", model, *arguments, "--json"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    report = json.loads(said.out)
    assert (report["model"], report["kv"], report["threads"], report["repeat"]) == (model, "f32", 1, 3)
    assert [cell["cell"] for cell in report["cells"]] == [
        {"kind": "prefill", "prompt": 8, "generate": 0, "depth": 20, "batch": 2},
        {"kind": "decode", "prompt": 0, "generate": 4, "depth": 20, "batch": 2},
        {"kind": "requests", "prompt": 6, "generate": 3, "depth": 0, "batch": 2},
    ]
    for cell in report["cells"]:
        assert (cell["peer"], cell["ratio"], cell["refusal"]) == (None, None, None)
        assert cell["twostroke"]["median"] == sorted(cell["twostroke"]["runs"])[1]
    assert [engine["engine"] for engine in report["engines"]] == ["twostroke"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--repeat", "0"], "--repeat is 0: it must be at least 1"),
        (["-p", "0", "-n", "0"], "--prompt and --generate are both 0: nothing would be timed"),
        (["-b", "0"], "--batch is 0: it must be at least 1"),
        (["-p", "8,"], "--prompt is '8,': whole numbers with commas between them, like 512,2048"),
        (["-n", "8,-1"], "--generate is -1: it must be at least 0"),
        (["--requests", "128"], "--requests is '128': two numbers, tokens in and tokens out, like 128,64"),
        (["--requests", "0,64"], "--requests is 0: it must be at least 1"),
        (["--vs", "vllm"], "--vs is 'vllm': known peers are llama.cpp, openvino and every path to a llama-bench"),
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


def test_a_peer_stands_beside_us_with_ratios_reasons_and_features() -> None:
    with open_peer() as peer:
        report = Report(ABOUT, COMPARISONS, peer)
        about, heading, prefill, decode, refused, ours, theirs = lines_of(report)
        facts = json_of(report)
    assert about == "tiny  portable, 1 thread, kv bf16, median of 3 [lowest, highest], tok/s"
    assert heading.split() == ["twostroke", "scripted", "ratio"]
    assert prefill.split("  ")[0] == "prefill 8"
    assert prefill.split()[2:] == ["200.0", "[100.0,", "300.0]", "50.0", "[50.0,", "50.0]", "4.00", "[2.00,", "6.00]"]
    assert decode.split()[-5:] == ["20.0", "[10.0,", "30.0]", "-", "-"]
    assert len({len(line) for line in (heading, prefill, decode)}) == 1, "columns are aligned"
    assert refused == "-: scripted has no depth"
    assert ours == "twostroke: portable (neither AVX-512 nor VNNI)"
    assert theirs == "json 1.2: AVX512 = 0 | threads = 2"
    assert facts["engines"][1] == {"engine": "scripted", "version": "json 1.2", "features": "AVX512 = 0 | threads = 2"}
    first, second = facts["cells"]
    assert first["ratio"] == {"median": 4.0, "lowest": 2.0, "highest": 6.0, "runs": [2.0, 6.0, 4.0]}
    assert (second["peer"], second["refusal"]) == (None, "scripted has no depth")
    assert facts["no_ratio"] is None


def test_a_unit_on_one_side_only_leaves_no_ratio_and_says_why() -> None:
    with open_peer("wide") as peer:
        report = Report(ABOUT, COMPARISONS, peer)
        lines, facts = lines_of(report), json_of(report)
    assert lines[2].split()[2:] == ["200.0", "[100.0,", "300.0]", "50.0", "[50.0,", "50.0]", "-"]
    assert "no ratio: AVX-512 in scripted only" in lines
    assert facts["cells"][0]["ratio"] is None
    assert facts["cells"][0]["peer"]["median"] == 50.0
    assert facts["no_ratio"] == "no ratio: AVX-512 in scripted only"


@pytest.mark.oracle
def test_llama_cpp_is_measured_in_turn(capsys: Capture, model: str) -> None:
    pytest.importorskip("llama_cpp")
    arguments = ["-p", "8", "-n", "4", "--repeat", "1", "--vs", "llama.cpp", "--json"]
    assert app.main(["bench", "-m", model, *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [engine["engine"] for engine in report["engines"]] == ["twostroke", "llama.cpp"]
    assert report["engines"][1]["version"].startswith("llama_cpp ")
    assert all(cell["peer"]["median"] > 0 for cell in report["cells"])


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
