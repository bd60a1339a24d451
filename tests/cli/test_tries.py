"""`run --best-of N`: one answer is told, the likeliest of several, with nothing before all have ended."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders_gguf import write_llama
from tests.builders_llm import open_llm
from tests.serve.serve_builders import make_finish
from twostroke.cli import app
from twostroke.cli.answer import follow
from twostroke.cli.tries import Tries
from twostroke.core.event import Event, TokenEvent, Usage
from twostroke.core.report import Result
from twostroke.core.sequence import FinishReason
from twostroke.errors import QueueFullError
from twostroke.handle import Handle, ResultCollector
from twostroke.params import SamplingParams

ENDLESS = SamplingParams(temperature=1.0, seed=1, max_tokens=200, ignore_eos=True, logprobs=0)
DRAWN = SamplingParams(temperature=1.2, seed=5, max_tokens=8, ignore_eos=True, logprobs=0)


def test_what_is_told_is_the_best_result_and_its_events(tmp_path: Path) -> None:
    with open_llm(write_llama(tmp_path / "random.gguf", tensor_type="F32")) as llm:
        (best,) = llm.best_of([5, 6, 7], DRAWN, num_tries=5)
        texts: list[str] = []
        told = follow(lambda on_event: Tries(llm, [5, 6, 7], DRAWN, num_tries=5, on_event=on_event), texts.append)
    assert told.token_ids == best.token_ids
    assert "".join(texts) == told.text


def test_a_cancel_ends_every_try(tmp_path: Path) -> None:
    with open_llm(write_llama(tmp_path / "random.gguf", tensor_type="F32")) as llm:
        tries = Tries(llm, [5, 6, 7], ENDLESS, num_tries=4, on_event=lambda event: None)
        tries.cancel()
        assert tries.result().finish_reason in (FinishReason.CANCELLED, FinishReason.LENGTH)
        assert llm.snapshot().num_running == 0


class Waiting:
    """A request that has said some tokens and says no more until it is cancelled."""

    def __init__(self, number: int, *, num_tokens: int, on_event: Callable[[Event], None]) -> None:
        self._name, self._num_tokens = f"r{number}", num_tokens
        self._collector = ResultCollector(on_event)
        for place in range(num_tokens):
            self._collector(TokenEvent(self._name, place, f"{number}", time_s=0.0, logprob=-1.0 - number))

    def cancel(self) -> None:
        usage = Usage(prompt_tokens=1, cached_tokens=0, completion_tokens=self._num_tokens)
        self._collector(make_finish(self._name, reason=FinishReason.CANCELLED, usage=usage))

    def result(self, timeout_s: float | None = None) -> Result:
        return self._collector.wait(timeout_s)


class Holding:
    """Takes tries: the third has not begun, the others have said three tokens."""

    def submit(self, asked: Any, params: Any, *, on_event: Callable[[Event], None], choice_index: int) -> Waiting:
        return Waiting(choice_index, num_tokens=0 if choice_index == 2 else 3, on_event=on_event)


def test_ctrl_c_keeps_the_best_of_what_the_tries_have_said() -> None:
    before, main = signal.getsignal(signal.SIGINT), threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while signal.getsignal(signal.SIGINT) is before:  # nobody listens yet
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    presser = threading.Thread(target=interrupt, daemon=True)
    presser.start()
    texts: list[str] = []
    result = follow(lambda on_event: Tries(Holding(), "hi", DRAWN, num_tries=4, on_event=on_event), texts.append)  # type: ignore[arg-type]
    presser.join()
    assert result.finish_reason is FinishReason.CANCELLED
    assert (result.text, texts) == ("000", ["0", "0", "0"]), "saying nothing is not the best"
    assert signal.getsignal(signal.SIGINT) is before


def test_a_try_that_is_refused_takes_the_others_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_llm(write_llama(tmp_path / "random.gguf", tensor_type="F32")) as llm:
        submit, handles = llm.submit, list[Handle]()

        def refusing(*args: Any, choice_index: int, **options: Any) -> Handle:
            if choice_index == 2:
                raise QueueFullError("the queue is full")
            handles.append(submit(*args, choice_index=choice_index, **options))
            return handles[-1]

        monkeypatch.setattr(llm, "submit", refusing)
        cancelled: list[str] = []
        monkeypatch.setattr(Handle, "cancel", lambda handle: cancelled.append(handle.request_id))
        with pytest.raises(QueueFullError):
            Tries(llm, [5, 6, 7], ENDLESS, num_tries=4, on_event=lambda event: None)
        assert cancelled == [handle.request_id for handle in handles]
        assert len(cancelled) == 2


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
