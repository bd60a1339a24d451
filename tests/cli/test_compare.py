"""`twostroke compare` over a real file: every strategy in one batch, refusals before anything is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders_gguf import write_llama
from twostroke.cli import app

Capture = pytest.CaptureFixture[str]
NAMES = ["exact", "code", "chat", "creative", "translate"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("compare") / "llama.gguf", tensor_type="Q8_0")


def said(capsys: Capture, model: Path, *arguments: str) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOSTROKE_HOME", str(model.parent))
        code = app.main(["compare", "-m", str(model), "--threads", "1", "--raw", "--max-tokens", "5", *arguments, "hi"])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def outcomes(capsys: Capture, model: Path, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = said(capsys, model, "--json", *arguments)
    assert (code, err) == (0, "")
    shown: list[dict[str, Any]] = json.loads(out)
    return shown


def test_all_presets_answer_side_by_side(capsys: Capture, model: Path) -> None:
    code, out, _ = said(capsys, model)
    assert code == 0
    heads = [line for line in out.splitlines() if line.startswith("== ")]
    assert [head.removeprefix("== ").split(":")[0] for head in heads] == NAMES


def test_the_seed_decides_what_draws_and_nothing_else(capsys: Capture, model: Path) -> None:
    first, again, other = (outcomes(capsys, model, "--seed", seed) for seed in ("1", "1", "2"))
    assert [each["strategy"] for each in first] == NAMES
    tokens = [[each["token_ids"] for each in run] for run in (first, again, other)]
    assert tokens[0] == tokens[1]
    assert tokens[0][3] != tokens[2][3], "creative draws"
    assert (tokens[0][0], tokens[0][4]) == (tokens[2][0], tokens[2][4])


def test_only_those_asked_for_in_their_order(capsys: Capture, model: Path) -> None:
    chosen = outcomes(capsys, model, "--strategy", "chat", "--strategy", "exact")
    assert [each["strategy"] for each in chosen] == ["chat", "exact"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--strategy", "poem"], "--strategy is 'poem': it must be one of exact, code, chat, creative, translate"),
        (["--max-tokens", "0"], "--max-tokens is 0: it must be at least 1"),
        (["--seed", "-1"], "--seed is -1: it must be from 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, flags: list[str], words: str
) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr("twostroke.cli.compare.load", never)
    assert app.main(["compare", *flags, "hi"]) == 2
    assert words in capsys.readouterr().err
