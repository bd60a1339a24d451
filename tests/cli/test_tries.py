"""`run --best-of N`: one answer is told, the likeliest of several, with nothing before all have ended."""

from pathlib import Path

import pytest

from tests.builders_gguf import write_llama
from tests.builders_llm import open_llm
from twostroke.cli import app
from twostroke.cli.answer import follow
from twostroke.cli.tries import Tries
from twostroke.core.sequence import FinishReason
from twostroke.params import SamplingParams

DRAWN = SamplingParams(temperature=1.2, seed=5, max_tokens=8, ignore_eos=True, logprobs=0)


def test_what_is_told_is_the_best_result_and_its_events(tmp_path: Path) -> None:
    with open_llm(write_llama(tmp_path / "random.gguf", tensor_type="F32")) as llm:
        (best,) = llm.best_of([5, 6, 7], DRAWN, num_tries=5)
        texts: list[str] = []
        told = follow(lambda on_event: Tries(llm, [5, 6, 7], DRAWN, num_tries=5, on_event=on_event), texts.append)
    assert told.token_ids == best.token_ids
    assert "".join(texts) == told.text


def test_a_cancel_ends_every_try(tmp_path: Path) -> None:
    endless = SamplingParams(temperature=1.0, seed=1, max_tokens=200, ignore_eos=True, logprobs=0)
    with open_llm(write_llama(tmp_path / "random.gguf", tensor_type="F32")) as llm:
        tries = Tries(llm, [5, 6, 7], endless, num_tries=4, on_event=lambda event: None)
        tries.cancel()
        assert tries.result().finish_reason in (FinishReason.CANCELLED, FinishReason.LENGTH)
        assert llm.snapshot().num_running == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--best-of", "0"], "--best-of is 0: it must be from 1 to 64"),
        (["--best-of", "65"], "--best-of is 65"),
        (["--best-of", "2", "--beams", "2"], "--best-of draws answers and --beams searches for one: drop one of them"),
        (["--prompt-logprobs", "1"], "--prompt-logprobs needs --json"),
        (["--max-tokens", "0"], "--max-tokens is 0: it must be at least 1"),
    ],
)
def test_flags_that_cannot_be_are_refused(capsys: pytest.CaptureFixture[str], flags: list[str], words: str) -> None:
    assert app.main(["run", *flags, "hi"]) == 2
    assert words in capsys.readouterr().err
