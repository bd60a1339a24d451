"""Each flag of a command reaches what it stands for, alone and unchanged; nothing is loaded or run."""

import dataclasses
import json
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import pytest

from tests.view.builders import make_report, make_result
from twostroke.chat.chat import Chat
from twostroke.cli import app
from twostroke.cli.flag_words import in_flags
from twostroke.cli.run import question, said_params
from twostroke.config import Config
from twostroke.core.event import Beam, Event, FinishEvent
from twostroke.core.peaks import Peaks
from twostroke.core.report import PhaseReport, Result
from twostroke.core.sequence import FinishReason
from twostroke.errors import ConfigError, ParamsError
from twostroke.model.shelf import Shelf
from twostroke.params import BeamSearch, SamplingParams
from twostroke.presets import preset
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.llm_loader import LLMLoader, PulledModels
from twostroke.serve.model_slot import ModelEntry
from twostroke.structure import Structure, StructureKind

Capture = pytest.CaptureFixture[str]
PEAKS = Peaks(
    threads=1, isa="portable", int8_ops_per_s=1.0, bf16_ops_per_s=1.0, fp32_ops_per_s=1.0, read_bytes_per_s=1.0
)


class SpyingLLM:
    """Answers at once with a made-up result and remembers what it was asked."""

    isa, threads, weight_bytes = "portable", 1, 1000

    def __init__(self, *, default_params: SamplingParams, result: Result) -> None:
        self.default_params = default_params
        self.finished = result
        self.asked: list[Any] = []
        self.params: list[SamplingParams] = []
        self.judged_by: list[Peaks | None] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def submit(self, prompt: Any, params: SamplingParams, *, on_event: Callable[[Event], None]) -> "SpyingLLM":
        self.asked.append(prompt)
        self.params.append(params)
        result = self.finished
        on_event(
            FinishEvent(
                result.request_id,
                result.finish_reason,
                result.text,
                result.usage,
                result.timing,
                result.kv,
                result.account,
                result.seed,
            )
        )
        return self

    def cancel(self) -> None:
        raise AssertionError("nobody left")

    def result(self, timeout_s: float | None = None) -> Result:
        return self.finished

    def report(self, result: Result, peaks: Peaks | None) -> PhaseReport:
        self.judged_by.append(peaks)
        return make_report()


class Loads:
    """Stands where the command line loads models."""

    def __init__(self, llm: SpyingLLM) -> None:
        self.llm = llm
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, name: str, *, config: Config, **options: Any) -> SpyingLLM:
        self.asked.append((name, options))
        return self.llm


def install(
    monkeypatch: pytest.MonkeyPatch, *, default_params: SamplingParams | None = None, **changes: Any
) -> tuple[SpyingLLM, Loads]:
    llm = SpyingLLM(default_params=default_params or SamplingParams(), result=make_result(**changes))
    loads = Loads(llm)
    monkeypatch.setattr("twostroke.cli.run.load", loads)
    monkeypatch.setattr("twostroke.cli.run.ensure_peaks", lambda **options: PEAKS)
    return llm, loads


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {}),
        (["--temperature", "0.5"], {"temperature": 0.5}),
        (["--temperature", "0"], {"temperature": 0.0}),
        (["--top-k", "7"], {"top_k": 7}),
        (["--top-k", "0"], {"top_k": 0}),
        (["--top-p", "0.25"], {"top_p": 0.25}),
        (["--min-p", "0.125"], {"min_p": 0.125}),
        (["--min-p", "0"], {"min_p": 0.0}),
        (["--repetition-penalty", "1.5"], {"repetition_penalty": 1.5}),
        (["--presence-penalty", "-0.5"], {"presence_penalty": -0.5}),
        (["--presence-penalty", "0"], {"presence_penalty": 0.0}),
        (["--presence-penalty", "1", "--penalty-last-n", "0"], {"presence_penalty": 1.0, "penalty_last_n": 0}),
        (["--top-n-sigma", "1.5"], {"top_n_sigma": 1.5}),
        (["--dynatemp-range", "0", "--dynatemp-exponent", "2"], {"dynatemp_exponent": 2.0}),
        (["--xtc-probability", "0", "--xtc-threshold", "0.2"], {"xtc_threshold": 0.2}),
        (["--dry-multiplier", "0.8"], {"dry_multiplier": 0.8}),
        (["--dry-multiplier", "0", "--dry-base", "2"], {"dry_base": 2.0}),
        (["--dry-multiplier", "0", "--dry-allowed-length", "3"], {"dry_allowed_length": 3}),
        (["--dry-multiplier", "0", "--dry-penalty-last-n", "64"], {"dry_penalty_last_n": 64}),
        (
            ["--dry-multiplier", "0", "--dry-sequence-breaker", "x", "--dry-sequence-breaker", "y"],
            {"dry_sequence_breakers": ("x", "y")},
        ),
        (["--no-repeat-ngram-size", "3"], {"no_repeat_ngram_size": 3}),
        (["--bad-word", "a b", "--bad-word", "c"], {"bad_words": ("a b", "c")}),
        (["--temperature", "1", "--typical-p", "0.5"], {"temperature": 1.0, "typical_p": 0.5}),
        (["--temperature", "1", "--dynatemp-range", "0.5"], {"temperature": 1.0, "dynatemp_range": 0.5}),
        (["--temperature", "1", "--xtc-probability", "0.5"], {"temperature": 1.0, "xtc_probability": 0.5}),
        (
            ["--temperature", "1", "--mirostat-tau", "5", "--mirostat-eta", "0.2", "--top-k", "0", "--min-p", "0"],
            {"temperature": 1.0, "mirostat_tau": 5.0, "mirostat_eta": 0.2, "top_k": 0, "min_p": 0.0},
        ),
        (["--sampler-order", "top_k, min_p,temperature"], {"sampler_order": ("top_k", "min_p", "temperature")}),
        (["--frequency-penalty", "0.75"], {"frequency_penalty": 0.75}),
        (["--seed", "0"], {"seed": 0}),
        (["--seed", str(2**64 - 1)], {"seed": 2**64 - 1}),
        (["--max-tokens", "1"], {"max_tokens": 1}),
        (["--stop", "a b"], {"stop": ("a b",)}),
        (["--stop", "b", "--stop", "a"], {"stop": ("b", "a")}),
        (["--stop-regex", r"\d+", "--stop-regex", "a"], {"stop_regex": (r"\d+", "a")}),
        (["--stop", "a", "--include-stop"], {"stop": ("a",), "include_stop": True}),
        (["--stop-token-id", "0"], {"stop_token_ids": (0,)}),
        (["--stop-token-id", "9", "--stop-token-id", "3"], {"stop_token_ids": (9, 3)}),
        (["--ignore-eos"], {"ignore_eos": True}),
        (["--json", "--logprobs", "0"], {"logprobs": 0}),
        (["--json", "--logprobs", "3"], {"logprobs": 3}),
        (["--json", "--prompt-logprobs", "2"], {"prompt_logprobs": 2}),
        (["--json", "--prompt-logprobs", "0", "--max-tokens", "0"], {"prompt_logprobs": 0, "max_tokens": 0}),
    ],
)
@pytest.mark.parametrize(
    "defaults",
    [SamplingParams(), SamplingParams(temperature=1.5, top_k=40, min_p=0.5, seed=4, stop=("z",), ignore_eos=True)],
)
def test_a_flag_of_run_sets_its_own_field_and_no_other(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], expected: dict[str, Any], defaults: SamplingParams
) -> None:
    fields = {name: getattr(defaults, name) for name in SamplingParams.__dataclass_fields__}
    llm, _ = install(monkeypatch, default_params=defaults, logprobs=(None,) * 3)
    assert app.main(["run", *flags, "hi"]) == 0
    stop = {"stop": (*defaults.stop, *expected.get("stop", ()))}  # a model's own end its answers whatever is asked
    assert llm.params == [SamplingParams(**{**fields, **expected, **stop})]


def test_a_form_of_the_answer_arrives_beside_what_else_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    llm, _ = install(monkeypatch, default_params=SamplingParams(seed=4), logprobs=(None,) * 3)
    assert app.main(["run", "--choice", "a", "--choice", "b", "--temperature", "1", "hi"]) == 0
    form = Structure(kind=StructureKind.CHOICE, choices=("a", "b"))
    assert llm.params == [SamplingParams(seed=4, temperature=1.0, structure=form)]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--beams", "3"], BeamSearch(width=3)),
        (["--beams", "3", "--length-penalty", "-0.5"], BeamSearch(width=3, length_penalty=-0.5)),
        (["--beams", "3", "--early-stopping", "true"], BeamSearch(width=3, early_stopping=True)),
        (["--beams", "3", "--early-stopping", "never"], BeamSearch(width=3, early_stopping="never")),
        (["--beams", "3", "--num-return", "2"], BeamSearch(width=3, num_return=2)),
    ],
)
def test_a_search_takes_its_flags_and_only_the_limits_of_the_defaults(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], expected: BeamSearch
) -> None:
    defaults = SamplingParams(
        temperature=1.5, top_k=40, max_tokens=9, stop=("z",), stop_token_ids=(4,), ignore_eos=True
    )
    llm, _ = install(monkeypatch, default_params=defaults)
    assert app.main(["run", *flags, "hi"]) == 0
    assert llm.params == [
        SamplingParams(max_tokens=9, stop=("z",), stop_token_ids=(4,), ignore_eos=True, beam=expected)
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--preset", "chat"], SamplingParams(temperature=0.7, top_p=0.9)),
        (
            ["--preset", "chat", "--temperature", "0.5", "--seed", "4"],
            SamplingParams(temperature=0.5, top_p=0.9, seed=4),
        ),
        (["--preset", "translate"], SamplingParams(beam=BeamSearch(width=4))),
        (["--preset", "translate", "--beams", "2"], SamplingParams(beam=BeamSearch(width=2))),
        (["--preset", "chat", "--typical-p", "0.5"], SamplingParams(temperature=0.7, top_p=0.9, typical_p=0.5)),
        (["--preset", "exact"], SamplingParams()),
    ],
)
def test_a_preset_replaces_how_tokens_are_chosen_and_is_printed_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, flags: list[str], expected: SamplingParams
) -> None:
    defaults = SamplingParams(temperature=1.5, top_k=40, max_tokens=9)
    llm, _ = install(monkeypatch, default_params=defaults)
    assert app.main(["run", *flags, "hi"]) == 0
    assert llm.params == [dataclasses.replace(expected, max_tokens=9)]
    assert capsys.readouterr().err.startswith(f"preset {flags[1]}: {preset(flags[1]).settings}; ")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--preset", "translate", "--temperature", "0.3"],
            "has no use for it; leave out --temperature or --preset translate",
        ),
        (
            ["--preset", "code", "--beams", "2"],
            (
                "--preset code: temperature is 0.2: beam search finds the likeliest answer and has no use for it; "
                "leave out --preset code or --beams"
            ),
        ),
        (["--preset", "chat", "--mirostat-tau", "5"], "--mirostat-tau is set beside --preset chat: "),
        (["--preset", "exact", "--typical-p", "0.5"], "--typical-p is set and temperature is 0"),
        (["--choice", "a", "--ignore-eos"], "leave out --ignore-eos or --choice"),
        (["--choice", ""], "--choice is empty: an answer has a text, give one"),
    ],
)
def test_what_does_not_go_together_is_told_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, flags: list[str], words: str
) -> None:
    llm, _ = install(monkeypatch)
    assert app.main(["run", *flags, "hi"]) == 2
    assert words in capsys.readouterr().err
    assert not llm.asked


def test_a_flag_that_needs_a_draw_may_have_the_models_own_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    llm, _ = install(monkeypatch, default_params=SamplingParams(temperature=0.8))
    assert app.main(["run", "--typical-p", "0.5", "hi"]) == 0
    assert llm.params == [SamplingParams(temperature=0.8, typical_p=0.5)]


def test_a_preset_is_refused_with_the_names_there_are(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    install(monkeypatch)
    assert app.main(["run", "--preset", "poem", "hi"]) == 2
    assert "--preset is 'poem': it must be one of exact, code, chat" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--num-return", "2"], "--num-return belongs to beam search: add --beams N, or leave it out"),
        (["--length-penalty", "1"], "--length-penalty belongs to beam search"),
        (["--beams", "0"], "--beams is 0: it must be at least 1"),
        (["--beams", "2", "--num-return", "3"], "--num-return is 3: it must be from 1 to 2"),
        (["--beams", "2", "--early-stopping", "yes"], "--early-stopping is 'yes': it must be true, false or 'never'"),
        (["--beams", "2", "--temperature", "0.7"], "--temperature is 0.7: beam search finds the likeliest answer"),
    ],
)
def test_flags_a_search_cannot_honour_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, flags: list[str], words: str
) -> None:
    llm, _ = install(monkeypatch)
    assert app.main(["run", *flags, "hi"]) == 2
    assert words in capsys.readouterr().err
    assert not llm.asked


def test_several_answers_are_shown_best_first_under_their_scores(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    beams = (Beam("Blue.", (5, 6), -0.25, FinishReason.STOP), Beam("Red\nish", (7,), -1.5, FinishReason.LENGTH))
    install(monkeypatch, beams=beams)
    assert app.main(["run", "--beams", "2", "--num-return", "2", "hi"]) == 0
    assert capsys.readouterr().out == "[1] score -0.2500, stop\nBlue.\n\n[2] score -1.5000, length\nRed\nish\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {}),
        (["--threads", "3"], {"threads": 3}),
        (["--context", "100"], {"context": 100}),
        (["--kv", "f16"], {"kv": "f16"}),
        (["--speculate", "ngram"], {"speculate": "ngram"}),
        (["--draft-model", "small.gguf"], {"draft_model": "small.gguf"}),
        (["--quiet"], {"quiet": True}),
        (["--json"], {"quiet": True}),  # progress beside an object is for nobody
    ],
)
def test_an_option_of_loading_arrives_alone(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], expected: dict[str, Any]
) -> None:
    _, loads = install(monkeypatch)
    assert app.main(["run", "-m", "some/model.gguf", *flags, "hi"]) == 0
    nothing = {"threads": None, "context": None, "kv": None, "quiet": False, "speculate": None, "draft_model": None}
    assert loads.asked == [("some/model.gguf", nothing | expected)]


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ([], [{"role": "user", "content": "hi"}]),
        (["--system", "be brief"], [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]),
        (["--system", ""], [{"role": "system", "content": ""}, {"role": "user", "content": "hi"}]),
        (["--raw"], "hi"),
    ],
)
def test_what_is_asked_is_a_conversation_unless_raw(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], asked: Any
) -> None:
    llm, _ = install(monkeypatch)
    assert app.main(["run", *flags, "hi"]) == 0
    assert llm.asked == [asked if isinstance(asked, str) else Chat(messages=asked)]


def test_an_empty_system_message_still_needs_a_template() -> None:
    with pytest.raises(ConfigError, match="--system needs a chat template"):
        question("hi", system="", raw=True)


def test_quiet_shows_the_answer_alone_and_measures_nothing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    llm, _ = install(monkeypatch)
    assert app.main(["run", "--quiet", "hi"]) == 0
    assert tuple(capsys.readouterr()) == ("Blue.\n", "")
    assert llm.judged_by == []


def test_the_report_stands_on_stderr_under_an_empty_line(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    llm, _ = install(monkeypatch)
    assert app.main(["run", "hi"]) == 0
    out, err = capsys.readouterr()
    assert out == "Blue.\n"
    assert err.startswith("\nmeasured ")
    assert llm.judged_by == [PEAKS]


@pytest.mark.parametrize("flags", [["--json"], ["--json", "--quiet"]])
def test_json_is_one_line_on_stdout_and_nothing_else(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    llm, _ = install(monkeypatch, text="漢\n")
    assert app.main(["run", *flags, "hi"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    assert "漢\\n" in out
    shown = json.loads(out)
    assert shown["phases"]["prefill"]["bound_by"] == "compute"
    assert "logprobs" not in shown
    assert llm.judged_by == [PEAKS]


@pytest.mark.parametrize(("flags", "is_shown"), [([], False), (["--logprobs", "0"], True), (["--logprobs", "1"], True)])
def test_no_alternatives_still_show_each_tokens_own_probability(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, flags: list[str], is_shown: bool
) -> None:
    install(monkeypatch, token_ids=(5,), logprobs=(-0.5,), top_logprobs=((),))
    assert app.main(["run", "--json", *flags, "hi"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown.get("logprobs") == ([{"token_id": 5, "logprob": -0.5, "top": []}] if is_shown else None)


@pytest.mark.parametrize("flags", [[], ["--quiet"], ["--json"]])
@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (FinishReason.STOP, 0),
        (FinishReason.LENGTH, 0),
        (FinishReason.CANCELLED, 130),
        (FinishReason.ERROR, 1),
    ],
)
def test_the_end_of_an_answer_is_an_exit_code_in_every_form(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, flags: list[str], reason: FinishReason, code: int
) -> None:
    error = "a logit is nan" if reason is FinishReason.ERROR else None
    install(monkeypatch, finish_reason=reason, error=error)
    assert app.main(["run", *flags, "hi"]) == code
    out, err = capsys.readouterr()
    assert "Blue." in out  # what is there is shown, however it ended
    assert ("twostroke: the answer failed: a logit is nan\n" in err) is (reason is FinishReason.ERROR)


@pytest.mark.parametrize(
    ("wishes", "flag"),
    [
        ({"top_k": -2}, "--top-k is -2"),
        ({"stop_token_ids": (-1,)}, "--stop-token-id is -1"),
        ({"frequency_penalty": 2.5}, "--frequency-penalty is 2.5"),
        ({"stop": ("x",) * 17}, "--stop has 17 strings"),
    ],
)
def test_a_wish_out_of_range_is_told_by_its_flag_and_known_by_its_field(wishes: dict[str, Any], flag: str) -> None:
    with pytest.raises(ParamsError) as refused:
        said_params(**wishes)
    assert in_flags(refused.value).startswith(flag)
    assert [refused.value.field] == list(wishes)


def test_only_what_was_said_is_passed_on() -> None:
    assert said_params(temperature=0.0, top_k=None, stop=None, seed=0) == {"temperature": 0.0, "seed": 0}


class Listens:
    """Stands where `serve` takes its address, knows its models and serves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address: tuple[Any, ...] = ()
        self.found: list[str] = []
        self.steps: list[str] = []
        monkeypatch.setattr("twostroke.cli.serve.find_model", self.find)
        monkeypatch.setattr("twostroke.serve.model_registry.ModelRegistry", self.registry)
        monkeypatch.setattr("twostroke.serve.server.listen", self)
        monkeypatch.setattr("twostroke.serve.server.serve", self.serve)
        monkeypatch.setattr("twostroke.serve.heap.use_few_arenas", lambda: self.steps.append("use few arenas"))
        monkeypatch.setattr("twostroke.serve.heap.spare_what_stays", self.spare_what_stays)

    def __call__(self, *address: Any) -> "Listens":
        self.address = address
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def find(self, name: str, *, config: Config, quiet: bool) -> None:
        self.found.append(name)

    def registry(self, entries: list[ModelEntry], **options: Any) -> "Listens":
        self.entries, self.models = entries, options
        return self

    def spare_what_stays(self) -> None:
        """Not ours: what stays in the process of all tests is a hundred times as much."""
        self.steps.append("spare what stays")

    def load_first(self) -> None:
        self.steps.append("load")

    def close(self) -> None:
        self.steps.append("close")

    def serve(self, models: object, listener: object, *, on_ready: Callable[[str], None], **options: Any) -> None:
        assert models is listener is self
        self.steps.append("serve")
        self.options = options
        on_ready("http://somewhere:1")


@pytest.mark.parametrize(
    ("flags", "address", "options"),
    [
        ([], ("127.0.0.1", 8000), {}),
        (["--host", "::1"], ("::1", 8000), {}),
        (["--port", "0"], ("127.0.0.1", 0), {}),
        (["--context", "64"], ("127.0.0.1", 8000), {"context": 64}),
        (["--kv", "f32"], ("127.0.0.1", 8000), {"kv": "f32"}),
        (["--threads", "2"], ("127.0.0.1", 8000), {"threads": 2}),
        (["--speculate", "ngram"], ("127.0.0.1", 8000), {"speculate": "ngram"}),
        (["--draft-model", "small"], ("127.0.0.1", 8000), {"drafts": {"tiny": "small"}}),
    ],
)
def test_each_flag_of_serve_arrives_alone_and_only_this_machine_is_served_unless_told(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    address: tuple[str, int],
    options: dict[str, Any],
) -> None:
    listens = Listens(monkeypatch)
    assert app.main(["serve", "-m", "tiny", *flags]) == 0
    assert listens.address == address
    assert listens.entries == [ModelEntry(("tiny",), "tiny")]
    assert listens.steps == ["use few arenas", "load", "serve", "spare what stays", "close"]
    assert listens.models["on_change"] == listens.spare_what_stays
    assert listens.options == {"api_key": None, "allowed_hosts": (), "limits": LimitsConfig(), "shelf": None}
    loader = listens.models["loader"]
    assert loader == LLMLoader(**{"config": loader.config, **options})
    assert (listens.models["keep_alive_s"], listens.models["pulled"]) == (math.inf, None)
    assert tuple(capsys.readouterr()) == ("", "twostroke: tiny is served at http://somewhere:1/v1, Ctrl-C ends\n")


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--api-key", "s3cret"], {"api_key": "s3cret"}),
        (["--allow-host", "a", "--allow-host", "b"], {"allowed_hosts": ["a", "b"]}),
        (["--max-requests", "3"], {"limits": LimitsConfig(max_open_requests=3)}),
        (["--drain-s", "0"], {"limits": LimitsConfig(drain_s=0)}),
    ],
)
def test_flags_of_the_server_itself_arrive_alone(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], options: dict[str, Any]
) -> None:
    listens = Listens(monkeypatch)
    assert app.main(["serve", "-m", "tiny", *flags]) == 0
    nothing = {"api_key": None, "allowed_hosts": (), "limits": LimitsConfig(), "shelf": None}
    assert listens.options == nothing | options


@pytest.mark.parametrize(("flags", "port"), [([], 11434), (["--port", "1234"], 1234)])
def test_ollamas_api_has_its_port_and_every_model_that_is_here(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, flags: list[str], port: int
) -> None:
    listens = Listens(monkeypatch)
    assert app.main(["serve", "-m", "tiny", "--ollama", *flags]) == 0
    assert listens.address == ("127.0.0.1", port)
    assert isinstance(listens.options["shelf"], Shelf)
    assert isinstance(listens.models["pulled"], PulledModels)
    assert (
        "served at http://somewhere:1/v1, to Ollama's clients at http://somewhere:1, Ctrl-C" in capsys.readouterr().err
    )


def test_flags_of_several_models_say_which_and_for_how_long(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    listens = Listens(monkeypatch)
    models = ["-m", "tiny", "-m", "hf:org/repo", "--alias", "a", "--alias", "b/c"]
    assert app.main(["serve", *models, "--keep-alive", "5m", "--any-pulled"]) == 0
    assert listens.entries == [
        ModelEntry(("tiny", "a", "b/c"), "tiny"),
        ModelEntry(("hf:org/repo",), "hf:org/repo"),
    ]
    assert listens.found == ["tiny", "hf:org/repo"]  # fetched now where they are not here
    assert listens.models["keep_alive_s"] == 300
    assert isinstance(listens.models["pulled"], PulledModels)
    assert "tiny, hf:org/repo are served at" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "1e9"])
def test_a_drain_without_an_end_is_refused(capsys: Capture, seconds: str) -> None:
    assert app.main(["serve", "-m", "tiny", "--drain-s", seconds]) == 2
    assert "'--drain-s'" in capsys.readouterr().err


def test_a_keep_alive_that_is_no_time_is_refused(capsys: Capture) -> None:
    assert app.main(["serve", "-m", "tiny", "--keep-alive", "soon"]) == 2
    assert "--keep-alive is 'soon': it must be seconds or a duration" in capsys.readouterr().err


def test_an_empty_key_guards_nothing_and_is_refused(capsys: Capture) -> None:
    assert app.main(["serve", "-m", "tiny", "--api-key", " "]) == 2
    assert "--api-key is empty" in capsys.readouterr().err
