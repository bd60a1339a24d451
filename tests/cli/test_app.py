"""Every mistake ends in one clean line on stderr and the promised exit code; stdout stays empty."""

from pathlib import Path

import pytest

import twostroke
from twostroke.cli import app
from twostroke.cli.exit_code import ExitCode
from twostroke.errors import (
    CapacityError,
    ChatTemplateError,
    ConfigError,
    DownloadError,
    KernelError,
    ModelFileError,
    ModelNotFoundError,
    ParamsError,
    PromptError,
    RequestError,
    TermsError,
    UnsupportedModelError,
)

Capture = pytest.CaptureFixture[str]


def complaint(capsys: Capture, *arguments: str, code: ExitCode = ExitCode.USER_MISTAKE) -> str:
    """The one line a command that must fail says."""
    assert app.main(arguments) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("twostroke: ")
    assert said.err.count("\n") == 1
    assert said.err.endswith("\n")
    assert "Traceback" not in said.err
    return said.err.removeprefix("twostroke: ").rstrip("\n")


def test_version(capsys: Capture) -> None:
    assert app.main(["--version"]) == ExitCode.DONE
    assert capsys.readouterr().out == f"twostroke {twostroke.__version__}\n"


@pytest.mark.parametrize("command", ["run", "embed", "pull", "models", "show", "bench", "serve"])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help(capsys: Capture, command: str, flag: str) -> None:
    assert app.main([command, flag]) == ExitCode.DONE
    assert f"twostroke {command}" in capsys.readouterr().out


def test_help_lists_the_commands(capsys: Capture) -> None:
    assert app.main(["--help"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert all(f"\n  {command} " in out for command in ("run", "embed", "pull", "models", "show", "bench", "serve"))
    assert "\x1b" not in out
    assert "..." not in out.partition("Commands:")[2], "a first sentence is too long to be shown"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing command"),
        (["rnu"], "No such command 'rnu'"),
        (["run", "--topk", "3", "hi"], "No such option: --topk (Possible options: --stop, --top-k"),
        (["run", "--top-k", "x", "hi"], "Invalid value for '--top-k': it must be a whole number;"),
        (["run", "--seed", "1.5", "hi"], "Invalid value for '--seed': it must be a whole number;"),
        (["run", "--top-p", "much", "hi"], "Invalid value for '--top-p': it must be a number;"),
        (["run", "hi", "you", "there"], "Text of several words wants quotes, these were left over: (you there);"),
        (
            ["run", "hi", "Got unexpected extra argument(s)"],
            "Text of several words wants quotes, these were left over: (Got unexpected extra argument(s));",
        ),
        (["run", "hi", "-m"], "Option '-m' requires an argument;"),
        (["serve", "smollm2:135m"], "What is no flag is left over (smollm2:135m): a model is named with -m;"),
        (["dyno", "smollm2:135m"], "What is no flag is left over (smollm2:135m): a model is named with -m;"),
        (["bench", "smollm2:135m"], "No such command 'smollm2:135m': a model is named with -m;"),
        (["bench", "srve"], "No such command 'srve'. Did you mean 'serve'?;"),
        (["bench", "./srve"], "No such command './srve'. Did you mean 'serve'?;"),
        (["bench", "./tiny"], "No such command './tiny': a model is named with -m;"),
        (["serve", "tiny.gguf"], "What is no flag is left over (tiny.gguf): a model is named with -m;"),
        (["serve", "on", "8000"], "What is no flag is left over (on 8000);"),
        (["embed", "smollm2:135m", "hello"], "Missing option '--model' / '-m';"),
        (["pull", "-m", "smollm2:135m"], "No such option: -m: the name stands here without one;"),
        (["delete", "--model", "smollm2:135m"], "No such option: --model: the name stands here without one;"),
        (["models", "-m", "smollm2:135m"], "No such option: -m;"),
        (["pull"], "Missing argument"),
        (["serve", "--max-requests", "0"], "Invalid value for '--max-requests': it must be at least 1;"),
        (["serve", "--drain-s", "-1"], "Invalid value for '--drain-s': it must be at least 0;"),
        (["serve", "--drain-s", "100000"], "Invalid value for '--drain-s': it must be at most 86400;"),
    ],
)
def test_a_wrong_command_line_names_the_part(capsys: Capture, arguments: list[str], said: str) -> None:
    line = complaint(capsys, *arguments)
    assert said in line
    command = " ".join(["twostroke", *(word for word in arguments[:1] if word != "rnu")])
    assert line.endswith(f"; {command} --help shows what there is")


@pytest.mark.parametrize("command", ["chat", "show"])
def test_a_model_may_be_named_with_or_without_its_flag_but_once(capsys: Capture, command: str) -> None:
    for named in (["none"], ["-m", "none"], ["--model", "none"]):
        assert complaint(capsys, command, *named).startswith("there is no model and no file 'none'")
    line = complaint(capsys, command, "none", "-m", "other")
    assert line == "the model is named twice, none and with --model other: keep one"


def test_showing_nothing_says_what_to_show(capsys: Capture) -> None:
    assert complaint(capsys, "show").startswith("no model is named: twostroke show MODEL")


def test_a_flag_without_its_value_names_the_help_of_its_command(capsys: Capture) -> None:
    assert complaint(capsys, "bench", "serve", "--url").endswith("; twostroke bench serve --help shows what there is")


def test_a_wrong_flag_of_a_command_below_another_names_the_help_of_that_one(capsys: Capture) -> None:
    line = complaint(capsys, "bench", "serve", "--concurency", "4")
    assert line.endswith("; twostroke bench serve --help shows what there is")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--temperature", "-1"], "--temperature is -1: it must be a finite number, 0 or more"),
        (["--temperature", "nan"], "--temperature is nan"),
        (["--top-p", "0"], "--top-p is 0: it must be above 0 and at most 1"),
        (["--top-k", "-2"], "--top-k is -2: it must be at least -1"),
        (["--min-p", "2"], "--min-p is 2: it must be from 0 to 1"),
        (["--repetition-penalty", "0"], "--repetition-penalty is 0: it must be a finite number above 0"),
        (["--presence-penalty", "3"], "--presence-penalty is 3"),
        (["--frequency-penalty", "-3"], "--frequency-penalty is -3"),
        (["--seed", "-1"], "--seed is -1"),
        (["--max-tokens", "0"], "--max-tokens is 0: it must be at least 1"),
        (["--stop", ""], "--stop has an empty text"),
        (["--stop-token-id", "-5"], "--stop-token-id is -5"),
        (["--json", "--logprobs", "21"], "--logprobs is 21: it must be from 0 to 20"),
        (["--logprobs", "1"], "--logprobs needs --json"),
        (["--raw", "--system", "x"], "--system needs a chat template, which --raw leaves out"),
    ],
)
def test_a_value_out_of_range_names_the_flag_before_any_model_is_loaded(
    capsys: Capture, flags: list[str], said: str
) -> None:
    assert said in complaint(capsys, "run", "-m", "/no/such/model", *flags, "hi")


def test_an_empty_prompt_says_how_to_give_one(capsys: Capture) -> None:
    assert "the prompt is empty: give one" in complaint(capsys, "run", "")


def test_a_missing_model_file_is_named(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "missing.gguf"
    assert str(path) in complaint(capsys, "run", "-m", str(path), "hi")


def test_a_misspelt_variable_is_an_error(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOSTROKE_THREAD", "2")
    assert "did you mean TWOSTROKE_THREADS?" in complaint(capsys, "models")


def test_an_argument_that_is_not_utf8_is_named(capsys: Capture) -> None:
    assert "is not UTF-8 at byte 3" in complaint(capsys, "run", "caf\udce9")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CapacityError("needs 3, has 2"), ExitCode.USER_MISTAKE),
        (ConfigError("x"), ExitCode.USER_MISTAKE),
        (ModelNotFoundError("x"), ExitCode.USER_MISTAKE),
        (ParamsError("x", field="seed"), ExitCode.USER_MISTAKE),
        (PromptError("x"), ExitCode.USER_MISTAKE),
        (ChatTemplateError("x"), ExitCode.FAILED),
        (DownloadError("x"), ExitCode.FAILED),
        (TermsError("x"), ExitCode.USER_MISTAKE),
        (KernelError("x"), ExitCode.FAILED),
        (ModelFileError("a.gguf", "x"), ExitCode.USER_MISTAKE),
        (RequestError("x"), ExitCode.FAILED),
        (UnsupportedModelError("x"), ExitCode.USER_MISTAKE),
        (FileNotFoundError(2, "No such file or directory", "file"), ExitCode.FAILED),
        (PermissionError(13, "Permission denied", "file"), ExitCode.FAILED),
    ],
)
def test_each_kind_of_error_has_its_exit_code(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: Exception, code: ExitCode
) -> None:
    raise_from_command(monkeypatch, error)
    assert complaint(capsys, "models", code=code) == str(error)


def test_a_message_of_several_lines_becomes_one(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_from_command(monkeypatch, DownloadError("one\n  two\r\nthree"))
    assert complaint(capsys, "models", code=ExitCode.FAILED) == "one two three"


def test_a_bug_is_one_line_that_asks_for_a_report(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_from_command(monkeypatch, KeyError("blk.0"))
    said = complaint(capsys, "models", code=ExitCode.FAILED)
    assert said == "internal error, please report it: KeyError: 'blk.0'"


def test_ctrl_c_has_the_code_of_the_signal(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_from_command(monkeypatch, KeyboardInterrupt())
    assert app.main(["models"]) == 130
    assert capsys.readouterr().out == ""


def raise_from_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `twostroke models` fail in its first line."""

    def fail() -> None:
        raise error

    monkeypatch.setattr("twostroke.cli.models.resolve", fail)
