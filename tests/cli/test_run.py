"""`twostroke run` in this process: answers, reports, flags. e2e/test_run_process.py has pipes, terminals, signals."""

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders_chat import write_speaker
from tests.builders_gguf import write_llama
from tests.builders_llm import add_ollama_model, puppet_bytes
from tests.chat import templates
from tests.cli.builders import ANSWER, make_answering, make_endless, press_ctrl_c_once_caught
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

KEYS = {"text", "token_ids", "finish_reason", "stop_reason", "usage", "phases", "kv", "ttft_s", "e2e_s", "ledger"}
PHASE_KEYS = {"tokens", "time_s", "tokens_per_s", "bound_by", "utilisation"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def model(home: Path) -> str:
    return make_answering(home)


@pytest.fixture(scope="module")
def endless(home: Path) -> str:
    return make_endless(home)


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


def test_a_drawn_answer_is_had_again_with_the_seed_that_is_told(capsys: Capture, tmp_path: Path) -> None:
    """The model knows nothing, so that another seed would be another answer."""
    random = str(write_llama(tmp_path / "random.gguf", tensor_type="F32"))
    for flags in (["--temperature", "1"], ["--temperature", "1", "--best-of", "3"]):
        drawn = [*flags, "-m", random, "--max-tokens", "12", "--ignore-eos"]
        _, out, _ = said(capsys, tmp_path, *drawn, "--json")
        first = json.loads(out)
        _, out, _ = said(capsys, tmp_path, *drawn, "--json", "--seed", str(first["seed"]))
        assert json.loads(out)["token_ids"] == first["token_ids"]
        _, _, err = said(capsys, tmp_path, *drawn, "--seed", "5")
        assert err.splitlines()[-1] == "seed     5"


def test_an_answer_that_no_seed_changes_tells_none(capsys: Capture, home: Path, model: str) -> None:
    for flags in ([], ["--beams", "2"]):
        assert "\nseed" not in said(capsys, home, "-m", model, *flags)[2]
        assert "seed" not in json.loads(said(capsys, home, "-m", model, "--json", *flags)[1])


def test_peaks_below_what_a_phase_did_are_measured_again(capsys: Capture, home: Path, model: str) -> None:
    for _ in range(NUM_PROBES):
        said(capsys, home, "-m", model, "--json")
    (file,) = [
        path for path in (home / "peaks").iterdir() if "read_bytes_per_s" in json.loads(path.read_text())["rates"]
    ]
    known = json.loads(file.read_text())
    assert known["num_probes"] >= NUM_PROBES
    known["rates"]["read_bytes_per_s"] = 1e3
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


def test_flags_replace_single_defaults_of_an_ollama_model(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), system="Be kind.", num_predict=3, stop=["h"])
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))

    def answer(*flags: str) -> tuple[int, str, str]:
        code = app.main(["run", "-m", name, "--threads", "1", "--quiet", *flags, "hello"])
        return (code, *capsys.readouterr())

    assert answer() == (0, "T\n", "")
    assert answer("--stop", "zzz") == (0, "T\n", ""), "its own stop string stays"
    assert answer("--max-tokens", "1", "--stop", "zzz") == (0, "T\n", "")
    assert answer("--include-stop") == (0, "Th\n", "")


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
        (["--tools", str(tools), "--tool-choice", "g"], "--tool-choice is 'g'"),
        (["--tools", str(tmp_path / "none")], "--tools"),
        (["--template-kwargs", "{"], "--template-kwargs is no JSON"),
        (["--template-kwargs", '{"x": 1}'], "reads no such variable"),
        (["--raw", "--reasoning-effort", "none"], "--reasoning-effort needs a chat template"),
    ):
        assert words in shown(*flags)


@pytest.mark.parametrize("flags", [[], ["--temperature", "0"], ["--preset", "exact"]])
def test_several_tries_at_temperature_0_are_refused(capsys: Capture, home: Path, model: str, flags: list[str]) -> None:
    code, out, err = said(capsys, home, "-m", model, "--quiet", "--best-of", "8", *flags)
    assert (code, out) == (2, "")
    assert "--best-of is 8 and temperature is 0, which takes the likeliest token" in err
    assert err.endswith("raise the temperature, say to 0.8, or leave out --best-of\n")


def test_one_try_or_a_draw_among_several_is_answered(capsys: Capture, home: Path, model: str) -> None:
    assert said(capsys, home, "-m", model, "--quiet", "--best-of", "1") == (0, f"{ANSWER}\n", "")
    drawn = said(capsys, home, "-m", model, "--quiet", "--best-of", "2", "--temperature", "0.1")
    assert drawn == (0, f"{ANSWER}\n", "")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--threads", "0"], "--threads is 0: it must be a whole number from 1 to 1024"),
        (["--kv", "int4"], "--kv is 'int4': it must be one of f32, f16, bf16, int8"),
        (["--speculate", "x"], "--speculate is 'x': it must be 'ngram'"),
        (["--context", "0"], "--context is 0: the model was made for 1 to 1024 tokens"),
    ],
)
def test_what_a_model_cannot_be_loaded_with_is_named_by_its_flag(
    capsys: Capture, home: Path, model: str, flags: list[str], words: str
) -> None:
    code, out, err = said(capsys, home, "-m", model, *flags)
    assert (code, out) == (2, "")
    assert err.startswith(f"twostroke: {words}")
