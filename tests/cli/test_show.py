"""`twostroke show` prints the op list of a model without running it."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.builders import make_chain
from twostroke.cli import app

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(make_chain(tmp_path / "chain.gguf", prompt_end="?", answer=b"abc"))


def shown(capsys: Capture, *arguments: str) -> str:
    assert app.main(["show", *arguments]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def test_ops_shapes_and_both_phases(capsys: Capture, model: str) -> None:
    text = shown(capsys, model)
    assert text.startswith("llama: 1 layer, width 512, vocabulary 512, context 1024\n")
    assert all(op in text for op in ("embed", "rmsnorm", "linear", "rope", "kv_write", "attend", "glu", "logits"))
    assert "prefill of 512 tokens" in text
    assert "decode of 1 token at depth 0" in text


def test_sizes_of_both_phases_are_asked_for(capsys: Capture, model: str) -> None:
    text = shown(capsys, model, "-p", "16", "-d", "100")
    assert "prefill of 16 tokens" in text
    assert "decode of 1 token at depth 100" in text


def test_a_model_made_for_less_than_the_default_shows_its_whole_context(capsys: Capture, tmp_path: Path) -> None:
    short = make_chain(tmp_path / "short.gguf", prompt_end="?", answer=b"abc", context=128)
    assert "prefill of 128 tokens" in shown(capsys, str(short))


def test_json_holds_the_same_facts(capsys: Capture, model: str) -> None:
    facts = json.loads(shown(capsys, model, "--json", "-p", "16", "-d", "100", "--kv", "f32"))
    assert facts["architecture"] == "llama"
    assert facts["kv_precision"] == "f32"
    assert facts["phases"]["prefill"]["tokens"] == 16
    assert facts["phases"]["decode"]["depth"] == 100
    assert facts["phases"]["prefill"]["flops"] == sum(line["prefill"]["flops"] for line in facts["ops"])


def test_a_check_says_what_it_read(capsys: Capture, model: str) -> None:
    plain, text = shown(capsys, model), shown(capsys, model, "--check")
    assert text.startswith(plain)
    said = re.fullmatch(r"\nchecked: ([\d,]+) weights in (\d+) tensors, none is NaN or infinite\n", text[len(plain) :])
    assert said is not None
    facts = json.loads(shown(capsys, model, "--check", "--json"))["check"]
    assert facts == {
        "num_tensors": int(said[2]),
        "num_weights": int(said[1].replace(",", "")),
        "bad": [],
        "unread": [],
    }
    assert "check" not in json.loads(shown(capsys, model, "--json"))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--kv", "int4"], "--kv is 'int4': it must be one of f32, f16, bf16, int8"),
        (["-p", "0"], "Invalid value for '--prompt'"),
        (["-d", "-1"], "Invalid value for '--depth'"),
        (["-p", "1025"], "--prompt is 1025: the model was made for 1024 tokens"),
        (
            ["-d", "1024"],
            "--depth is 1024: the model was made for 1024 tokens, the decoded one is one more, at most 1023 fit",
        ),
    ],
)
def test_wrong_sizes_are_named(capsys: Capture, model: str, flags: list[str], said: str) -> None:
    assert app.main(["show", model, *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_no_model_is_named(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("not a model")
    assert app.main(["show", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert str(path) in said.err
    assert said.err.count("\n") == 1
