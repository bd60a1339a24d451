"""A load from its settings to its summary, and settings that cannot work."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.traffic.traffic_builders import SAMPLES
from twostroke.errors import ConfigError, RemoteError
from twostroke.traffic.load import LoadConfig, run_load, workload_of
from twostroke.traffic.self_test import mock_process

MOONCAKE = SAMPLES / "mooncake_conversation_6.jsonl"
AZURE = SAMPLES / "azure2023_conv_8.csv"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with mock_process(ttft_s=0.01, itl_s=0.001) as found:
        yield found


def test_a_closed_loop(address: str) -> None:
    told: list[str] = []
    load = run_load(
        LoadConfig(url=address, concurrency=3, requests=7, input_tokens=(5, 9), output_tokens=(2, 4)), tell=told.append
    )
    assert (load.summary.num_answered, load.summary.errors, load.summary.late) == (7, (), None)
    assert (load.summary.num_other_prompts, load.summary.num_other_outputs) == (0, 0)
    assert not load.is_interrupted
    assert load.about[0] == f"{address}  mock, completions"
    assert load.about[1] == "7 requests, closed loop of 3; 2 to warm up, seed 0"
    assert load.about[2].startswith("prompts: random words, ")
    assert load.about[2].endswith(" on average, counted by the server's /tokenize")
    assert told[0].endswith("making 7 prompts")
    assert told[1:] == ["sending 7 requests"], "what the report begins with is not said twice"
    assert load.settings["model"] == "mock"


def test_an_open_loop_of_a_trace_with_its_scale(address: str) -> None:
    load = run_load(LoadConfig(url=address, trace=AZURE, speed=1000, length_scale=0.05, api="chat"))
    assert (load.summary.num_answered, load.summary.num_other_prompts) == (8, 0)
    assert load.about[1].startswith("8 requests, open loop at the times of the trace / 1000")
    assert "azure2023_conv_8.csv, lengths x 0.05" in load.about[2]
    assert load.summary.asked_rate_per_s is None
    assert load.summary.due_rate_per_s is not None
    assert load.settings["trace"] == str(AZURE)


def test_a_rate_replaces_the_times_of_a_trace(address: str) -> None:
    load = run_load(LoadConfig(url=address, trace=MOONCAKE, length_scale=0.01, rate_per_s=500, arrivals="constant"))
    assert load.summary.due_rate_per_s == pytest.approx(500)
    assert load.summary.asked_rate_per_s == 500
    assert "constant at 500/s" in load.about[1]


def test_a_key_is_sent_and_never_told(address: str) -> None:
    load = run_load(LoadConfig(url=address, concurrency=1, requests=1, api_key="s3cret", warm_up=0))
    assert "s3cret" not in repr(load.settings)


def test_same_seed_same_load_other_seed_other_load() -> None:
    def made(seed: int) -> Any:
        return workload_of(LoadConfig(url="http://h", rate_per_s=2, requests=5, seed=seed, input_tokens=(1, 99))).items

    assert made(1) == made(1) != made(2)


def test_the_first_of_a_trace_may_be_enough() -> None:
    assert len(workload_of(LoadConfig(url="http://h", concurrency=1, trace=AZURE, requests=3)).items) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "nothing says when to send: give --concurrency, --rate, or a --trace with arrival times"),
        ({"trace": SAMPLES / "lengths_lmsys_8.csv"}, "nothing says when to send"),
        ({"concurrency": 0}, "--concurrency is 0: it must be above 0"),
        ({"rate_per_s": -1.0}, "--rate is -1: it must be above 0"),
        ({"rate_per_s": float("inf")}, "--rate is inf"),
        ({"rate_per_s": 1.0, "concurrency": 1}, "--concurrency and --rate are both given"),
        ({"concurrency": 1, "requests": 0}, "--requests is 0"),
        ({"concurrency": 1, "api": "embeddings"}, "--api is 'embeddings': it must be one of completions, chat"),
        (
            {"rate_per_s": 1.0, "arrivals": "weibull"},
            "--arrivals is 'weibull': it must be one of constant, poisson, gamma",
        ),
        ({"rate_per_s": 1.0, "burstiness": 0.5}, "--burstiness belongs to --arrivals gamma"),
        ({"concurrency": 1, "length_scale": 0.5}, "belong to --trace"),
        ({"concurrency": 1, "speed": 2.0}, "belong to --trace"),
        ({"concurrency": 1, "url": "nowhere"}, "--url is 'nowhere'"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_its_flag(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run_load(LoadConfig(**{"url": "http://127.0.0.1:9", **changes}))
    assert words in str(refused.value)


def test_requests_beyond_the_context_are_refused_before_any_is_sent(address: str) -> None:
    with pytest.raises(ConfigError, match="the server's context is 1000000: fewer --input-tokens"):
        run_load(LoadConfig(url=address, concurrency=1, input_tokens=(2_000_000, 2_000_000)))


def test_a_server_that_is_not_there_is_one_error() -> None:
    with pytest.raises(RemoteError, match="cannot be reached"):
        run_load(LoadConfig(url="http://127.0.0.1:9", concurrency=1))


def test_a_load_runs_on_any_thread(address: str) -> None:
    """Ctrl-C is heard on the main thread alone; elsewhere there is none to hear."""
    found: list[int] = []

    def work() -> None:
        found.append(run_load(LoadConfig(url=address, concurrency=1, requests=2)).summary.num_answered)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert found == [2]


def test_objectives_are_told_in_milliseconds() -> None:
    assert LoadConfig(url="", ttft_s=0.2, tpot_s=0.05).objective_words == "TTFT 200 ms, TPOT 50 ms"
    assert LoadConfig(url="", tpot_s=0.05).objective_words == "TPOT 50 ms"
    assert LoadConfig(url="").objective_words is None


def test_a_trace_is_read_before_the_server_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        run_load(LoadConfig(url="http://127.0.0.1:9", trace=tmp_path / "none"))
