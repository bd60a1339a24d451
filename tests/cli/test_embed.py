"""`twostroke embed`: a line of JSON for every text, from arguments or from the lines of stdin."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.builders_gguf import WIDTH, write_model
from tests.builders_llm import write_puppet
from tests.cases.make_malformed import T_U32
from twostroke.cli import app

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path / "home"))
    keys = [("llama.pooling_type", T_U32, 1)]
    return str(write_model(tmp_path / "pooled.gguf", "llama", tensor_type="Q8_0", keys=keys))


def feed(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))


def test_each_argument_has_a_line_with_its_vector(capsys: Capture, model: str) -> None:
    assert app.main(["embed", "-m", model, "--threads", "1", "--quiet", "why?", "wie süß"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["why?", "wie süß"]
    for line in lines:
        assert len(line["embedding"]) == WIDTH
        assert np.linalg.norm(line["embedding"]) == pytest.approx(1.0, abs=1e-6)


def test_without_arguments_each_line_of_stdin_is_a_text(
    capsys: Capture, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, "why?\r\n\u2028how?\n".encode())
    assert app.main(["embed", "-m", model, "--threads", "1", "--quiet"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.split("\n")[:-1]] == ["why?", "\u2028how?"]


@pytest.mark.parametrize(("raw", "words"), [(b"", "there is no text"), (b"a\xff", "not UTF-8 at byte 1")])
def test_no_text_is_told(capsys: Capture, model: str, monkeypatch: pytest.MonkeyPatch, raw: bytes, words: str) -> None:
    feed(monkeypatch, raw)
    assert app.main(["embed", "-m", model, "--quiet"]) == 2
    assert words in capsys.readouterr().err


def test_a_model_that_writes_and_vectors_that_cannot_be_cut_are_told(
    capsys: Capture, model: str, tmp_path: Path
) -> None:
    assert app.main(["embed", "-m", model, "--quiet", "--threads", "1", "--dimensions", "8", "why?"]) == 2
    assert f"dimensions is 8: this model's vectors have {WIDTH} numbers" in capsys.readouterr().err
    puppet = str(write_puppet(tmp_path / "puppet.gguf"))
    assert app.main(["embed", "-m", puppet, "--quiet", "--threads", "1", "why?"]) == 2
    assert "its file names no pooling" in capsys.readouterr().err
    assert app.main(["run", "-m", model, "--quiet", "--threads", "1", "--raw", "why?"]) == 2
    assert "is a model that embeds (mean pooling)" in capsys.readouterr().err
