"""A flag that would change nothing is refused by name, unless the model itself brings what it belongs to."""

import pytest

from tests.cli.test_flags import install
from twostroke.cli import app
from twostroke.params import SamplingParams

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--dynatemp-exponent", "2"], "--dynatemp-exponent does nothing without --dynatemp-range: add it, or leave"),
        (["--xtc-threshold", "0.2"], "--xtc-threshold does nothing without --xtc-probability"),
        (["--mirostat-eta", "0.2"], "--mirostat-eta does nothing without --mirostat-tau"),
        (["--dry-base", "2"], "--dry-base does nothing without --dry-multiplier"),
        (["--dry-allowed-length", "3"], "--dry-allowed-length does nothing without --dry-multiplier"),
        (["--dry-penalty-last-n", "3"], "--dry-penalty-last-n does nothing without --dry-multiplier"),
        (["--dry-sequence-breaker", "x"], "--dry-sequence-breaker does nothing without --dry-multiplier"),
        (["--tool-choice", "auto"], "--tool-choice does nothing without --tools"),
        (["--tool-choice", "f"], "--tool-choice does nothing without --tools"),
        (
            ["--penalty-last-n", "0"],
            (
                "--penalty-last-n does nothing without --repetition-penalty, --presence-penalty or "
                "--frequency-penalty: add one, or leave it out"
            ),
        ),
        (["--include-stop"], "--include-stop does nothing without --stop, --stop-regex or --stop-token-id"),
    ],
)
def test_what_needs_another_flag_is_refused_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, flags: list[str], words: str
) -> None:
    llm, _ = install(monkeypatch)
    assert app.main(["run", *flags, "hi"]) == 2
    assert words in capsys.readouterr().err
    assert not llm.asked


@pytest.mark.parametrize(
    ("flags", "defaults"),
    [
        (["--penalty-last-n", "9"], SamplingParams(repetition_penalty=1.1)),
        (["--penalty-last-n", "9", "--presence-penalty", "0"], SamplingParams()),
        (["--include-stop"], SamplingParams(stop=("z",))),
        (["--include-stop", "--stop-regex", "a"], SamplingParams()),
        (["--include-stop", "--stop-token-id", "3"], SamplingParams()),
    ],
)
def test_it_is_honoured_beside_its_flag_or_what_the_model_brings(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], defaults: SamplingParams
) -> None:
    llm, _ = install(monkeypatch, default_params=defaults)
    assert app.main(["run", *flags, "hi"]) == 0
    assert len(llm.asked) == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--kernels", "--vs", "llama.cpp"], "--vs is given beside --kernels, which has no use for it: leave one"),
        (["--kernels", "-m", "smollm2:135m"], "--model is given beside --kernels"),
        (["--kernels", "--repeat", "5"], "--repeat is given beside --kernels"),
        (["--kernels", "--kv-quality"], "--kv-quality is given beside --kernels"),
        (["--kv-quality", "--vs", "llama.cpp"], "--vs is given beside --kv-quality"),
        (["--kv-quality", "-p", "8"], "--prompt is given beside --kv-quality"),
    ],
)
def test_a_bench_of_another_kind_refuses_what_it_would_not_use(capsys: Capture, flags: list[str], words: str) -> None:
    assert app.main(["bench", *flags]) == 2
    assert words in capsys.readouterr().err
