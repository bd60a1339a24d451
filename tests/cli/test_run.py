"""`twostroke run` as a process: what reaches stdout, stderr, terminals and closed pipes."""

import json
import os
import pty
import signal
import subprocess
import termios
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.builders_chat import write_speaker
from tests.builders_llm import add_ollama_model, puppet_bytes
from tests.chat import templates
from tests.cli.builders import environment, make_chain, press_ctrl_c_once_caught, run, running
from twostroke.cli import app
from twostroke.cli.loading import load
from twostroke.cli.run import answer_json
from twostroke.config import resolve
from twostroke.core.event import Event
from twostroke.core.sequence import FinishReason
from twostroke.handle import Handle
from twostroke.measure.peaks import NUM_PROBES
from twostroke.params import SamplingParams

Capture = pytest.CaptureFixture[str]

ANSWER = "The sky,漢."
KEYS = {"text", "token_ids", "finish_reason", "stop_reason", "usage", "phases", "kv", "ttft_s", "e2e_s", "ledger"}
PHASE_KEYS = {"tokens", "time_s", "tokens_per_s", "bound_by", "utilisation"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def model(home: Path) -> str:
    """Answers every prompt that ends in ? with ANSWER."""
    return str(make_chain(home / "chain.gguf", prompt_end="?", answer=ANSWER.encode()))


@pytest.fixture(scope="module")
def endless(home: Path) -> str:
    """Answers xyxyxy..., for a million tokens of context."""
    return str(make_chain(home / "endless.gguf", prompt_end="?", answer=b"xy", loops=True, context=1 << 20))


def test_stdout_is_the_answer_and_one_line_end(home: Path, model: str) -> None:
    code, out, err = run(["run", "-m", model, "--raw", "why?"], env=environment(home))
    assert (code, out.decode()) == (0, ANSWER + "\n")
    report = err.decode().splitlines()
    assert [line.split()[0] for line in report if line and not line.startswith(" ")] == [
        "measured",
        "prefill",
        "decode",
        "TTFT",
        "E2E",
        "KV",
        "end",
    ]
    assert b"\x1b" not in out + err


def said(capsys: Capture, home: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a run in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOSTROKE_HOME", str(home))
        code = app.main(["run", "--threads", "1", "--raw", *arguments, "why?"])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_json_has_exactly_the_promised_keys(capsys: Capture, home: Path, model: str) -> None:
    code, out, err = said(capsys, home, "-m", model, "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    shown = json.loads(out)
    assert set(shown) == KEYS
    assert shown["text"] == ANSWER
    assert shown["finish_reason"] == "stop"
    assert set(shown["usage"]) == {"prompt_tokens", "cached_tokens", "completion_tokens"}
    assert set(shown["phases"]["prefill"]) == PHASE_KEYS
    assert set(shown["phases"]["decode"]) == PHASE_KEYS | {"tpot_s"}
    assert set(shown["kv"]) == {"tokens", "bytes", "blocks", "waste_ratio"}
    ledger = shown["ledger"]
    total_s = sum(stall["time_s"] for stall in ledger.pop("stall")) + sum(ledger.values())
    assert total_s == pytest.approx(shown["e2e_s"], abs=max(0.001, 0.01 * shown["e2e_s"]))


def test_peaks_below_what_a_phase_did_are_measured_again(capsys: Capture, home: Path, model: str) -> None:
    for _ in range(NUM_PROBES):
        said(capsys, home, "-m", model, "--json")
    (file,) = [path for path in (home / "peaks").iterdir() if json.loads(path.read_text())["peaks"]["threads"] == 1]
    known = json.loads(file.read_text())
    assert known["num_probes"] >= NUM_PROBES
    known["peaks"]["read_bytes_per_s"] = 1e3
    file.write_text(json.dumps(known))
    shown = json.loads(said(capsys, home, "-m", model, "--json")[1])
    assert shown["phases"]["decode"]["utilisation"] < 1
    assert json.loads(file.read_text())["num_probes"] == known["num_probes"] + 1


def test_logprobs_join_the_json(capsys: Capture, home: Path, model: str) -> None:
    shown = json.loads(said(capsys, home, "-m", model, "--json", "--logprobs", "2")[1])
    assert set(shown) == KEYS | {"logprobs"}
    assert [entry["token_id"] for entry in shown["logprobs"]] == shown["token_ids"]
    assert all(len(entry["top"]) == 2 for entry in shown["logprobs"])


def test_scores_of_the_prompt_join_the_json_with_no_answer_where_that_is_asked(
    capsys: Capture, home: Path, model: str
) -> None:
    flags = ["-m", model, "--json", "--prompt-logprobs", "1", "--max-tokens", "0"]
    shown = json.loads(said(capsys, home, *flags)[1])
    assert set(shown) == KEYS | {"prompt_logprobs"}
    assert (shown["text"], shown["usage"]["completion_tokens"]) == ("", 0)
    first, *others = shown["prompt_logprobs"]
    assert (first["logprob"], first["rank"], first["top"]) == (None, None, [])
    assert len(others) == shown["usage"]["prompt_tokens"] - 1
    assert all(score["logprob"] <= 0 and score["rank"] >= 1 and len(score["top"]) == 1 for score in others)


def test_stop_ends_before_the_text(capsys: Capture, home: Path, model: str) -> None:
    assert said(capsys, home, "-m", model, "--quiet", "--stop", "sky", "--stop", "zzz") == (0, "The \n", "")


def test_a_pattern_ends_the_answer_and_both_reports_name_it(capsys: Capture, home: Path, model: str) -> None:
    flags = ["-m", model, "--stop-regex", "s[a-z]y", "--include-stop"]
    code, out, err = said(capsys, home, *flags)
    assert (code, out) == (0, "The sky\n")
    assert "end      stop at 's[a-z]y'; " in err
    assert json.loads(said(capsys, home, *flags, "--json")[1])["stop_reason"] == "s[a-z]y"


def test_max_tokens_ends_with_length(capsys: Capture, home: Path, model: str) -> None:
    shown = json.loads(said(capsys, home, "-m", model, "--json", "--max-tokens", "3")[1])
    assert (shown["text"], shown["finish_reason"], shown["usage"]["completion_tokens"]) == ("The", "length", 3)


def test_flags_replace_single_defaults_of_an_ollama_model(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), system="Be kind.", num_predict=3, stop=["h"])
    env = environment(tmp_path, OLLAMA_MODELS=str(tmp_path / "ollama"))
    arguments = ["run", "-m", name, "--quiet", "hello"]
    assert run(arguments, env=env) == (0, b"T\n", b"")
    assert run([*arguments, "--stop", "zzz"], env=env) == (0, b"T\n", b""), "its own stop string stays"
    assert run([*arguments, "--max-tokens", "1", "--stop", "zzz"], env=env) == (0, b"T\n", b"")
    assert run([*arguments, "--include-stop"], env=env) == (0, b"Th\n", b"")


def test_prompt_and_answer_beyond_the_context_is_an_error_with_the_arithmetic(
    capsys: Capture, home: Path, model: str
) -> None:
    code, out, err = said(capsys, home, "-m", model, "--max-tokens", "2000")
    assert (code, out) == (2, "")
    assert err.startswith("twostroke: ")
    assert "context is 1024" in err


def test_ctrl_c_in_json_is_still_one_object(capsys: Capture, monkeypatch: pytest.MonkeyPatch, endless: str) -> None:
    config = resolve({"TWOSTROKE_HOME": str(Path(endless).parent)})
    with load(endless, config=config, threads=1, context=None, kv=None, quiet=True) as llm:
        pressing: list[threading.Thread] = []
        heard: list[Event] = []
        submit = llm.submit

        def submit_and_interrupt(*arguments: Any, on_event: Callable[[Event], None]) -> Handle:
            def hear(event: Event) -> None:
                on_event(event)
                heard.append(event)
                if len(heard) == 4:
                    pressing.append(press_ctrl_c_once_caught(default=default))

            default = signal.getsignal(signal.SIGINT)
            return submit(*arguments, on_event=hear)

        monkeypatch.setattr(llm, "submit", submit_and_interrupt)
        result = answer_json(llm, "why?", SamplingParams(max_tokens=500_000), config)
        pressing[0].join()
    assert result.finish_reason is FinishReason.CANCELLED
    shown = json.loads(capsys.readouterr().out)
    assert shown["finish_reason"] == "cancelled"
    assert shown["text"].startswith("xyxy")


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_bytes_are_utf8_whatever_the_locale(home: Path, model: str, locale: str) -> None:
    arguments: list[str | bytes] = ["run", "-m", model, "--raw", "--quiet", "é漢?".encode()]
    assert run(arguments, env=environment(home, LC_ALL=locale)) == (0, ANSWER.encode() + b"\n", b"")


def test_a_pipe_is_the_prompt_even_without_a_last_line_end(home: Path, model: str) -> None:
    env = environment(home, LC_ALL="POSIX")
    code, out, _ = run(["run", "-m", model, "--quiet", "--raw"], env=env, data="é?".encode())
    assert (code, out.decode()) == (0, ANSWER + "\n")


def test_an_empty_stdin_ends_at_once_with_the_fix(home: Path, model: str) -> None:
    code, out, err = run(["run", "-m", model, "--raw"], env=environment(home))
    assert (code, out) == (2, b"")
    assert err.startswith(b"twostroke: the prompt is empty: give one")
    assert len(err) < 1000


def asked_endlessly(home: Path, endless: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running(["run", "-m", endless, "--raw", "--max-tokens", "500000", "why?"], env=environment(home))


def test_a_reader_that_leaves_ends_the_program_quietly(home: Path, endless: str) -> None:
    with asked_endlessly(home, endless) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"x"
        process.stdout.close()
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == b""


def test_ctrl_c_keeps_what_is_there(home: Path, endless: str) -> None:
    with asked_endlessly(home, endless) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (first + rest).rstrip(b"\n") == (b"xy" * 500_000)[: len(first + rest) - 1]
    assert (first + rest).endswith(b"\n")
    assert b"cancelled;" in err
    assert b"Traceback" not in err


def test_a_stopped_program_goes_on_and_a_terminated_one_ends(home: Path, endless: str) -> None:
    with asked_endlessly(home, endless) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        process.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read(1) == b"y"
        process.terminate()
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (-signal.SIGTERM, b"")


@pytest.mark.parametrize(
    ("changes", "has_escapes"), [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)]
)
def test_a_terminal_gets_colour_unless_told_otherwise(
    home: Path, model: str, changes: dict[str, str], has_escapes: bool
) -> None:
    master, slave = pty.openpty()
    try:
        before = termios.tcgetattr(slave)
        arguments, env = ["run", "-m", model, "--raw", "why?"], environment(home, **changes)
        with running(arguments, env=env, stdin=slave, stdout=slave, stderr=slave) as process:
            shown = read_terminal(master)
            assert process.wait(timeout=20) == 0
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(slave)
        os.close(master)
    assert shown.decode().startswith(ANSWER + "\r\n")
    assert (b"\x1b" in shown) is has_escapes


def read_terminal(master: int) -> bytes:
    """Everything up to the report's last line."""
    shown = b""
    while b" answer tokens" not in shown:
        shown += os.read(master, 10_000)
    while not shown.endswith(b"\n"):
        shown += os.read(master, 10_000)
    return shown


def test_tools_and_what_the_template_is_told_go_with_the_question(capsys: Capture, tmp_path: Path) -> None:
    text = '<think>\nso\n</think>\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    speaker = str(write_speaker(tmp_path / "speaker.gguf", text, template=templates.THINKING))
    tools = tmp_path / "tools.json"
    tools.write_text('[{"type": "function", "function": {"name": "f"}}]')

    def shown(*flags: str) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TWOSTROKE_HOME", str(tmp_path))
            code = app.main(["run", "-m", speaker, "--threads", "1", "--json", *flags, "hi"])
        out, err = capsys.readouterr()
        return json.loads(out) if code == 0 else err

    call = {"name": "f", "arguments": '{"a": 1}'}
    assert shown("--tools", str(tools))["answer"] == {"content": "", "reasoning": "so", "tool_calls": [call]}
    assert shown()["answer"]["tool_calls"] == []
    assert "answer" not in shown("--template-kwargs", '{"enable_thinking": false}')
    assert "answer" not in shown("--reasoning-effort", "none")
    for flags, words in (
        (["--tools", str(tools), "--tool-choice", "g"], "tool_choice.function.name"),
        (["--tools", str(tmp_path / "none")], "--tools"),
        (["--template-kwargs", "{"], "--template-kwargs is no JSON"),
        (["--template-kwargs", '{"x": 1}'], "reads no such variable"),
        (["--raw", "--reasoning-effort", "none"], "--reasoning-effort needs a chat template"),
    ):
        assert words in shown(*flags)
