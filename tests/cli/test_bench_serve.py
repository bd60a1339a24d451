"""`twostroke bench serve`: flags reach the load, results leave as text or JSON, errors in one line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from twostroke.cli import app
from twostroke.traffic.load import LoadConfig
from twostroke.traffic.self_test import mock_process

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with mock_process(ttft_s=0.01, itl_s=0.001) as found:
        yield found


def test_a_table_on_stdout_and_what_goes_on_on_stderr(capsys: Capture, address: str) -> None:
    arguments = ["--url", f"{address}/v1", "-c", "2", "-n", "4", "--ttft-ms", "5000", "--output-tokens", "3"]
    assert app.main(["bench", "serve", *arguments]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{address}  mock, completions\n4 requests, closed loop of 2")
    assert "100 % of those sent, within TTFT 5000 ms" in out
    assert "making 4 prompts" in err


def test_json_is_one_object_and_nothing_else(capsys: Capture, address: str) -> None:
    assert app.main(["bench", "serve", "--url", address, "--rate", "200", "-n", "3", "--json", "--api", "chat"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    shown = json.loads(out)
    assert (shown["num_answered"], len(shown["requests"]), shown["settings"]["api"]) == (3, 3, "chat")


class Stop(Exception):
    pass


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {}),
        (["-m", "x"], {"model": "x"}),
        (["--api", "chat"], {"api": "chat"}),
        (["--api-key", "k"], {"api_key": "k"}),
        (["-c", "3"], {"concurrency": 3}),
        (["--rate", "2.5"], {"rate_per_s": 2.5}),
        (["--arrivals", "gamma", "--burstiness", "0.5"], {"arrivals": "gamma", "burstiness": 0.5}),
        (["--trace", "t.csv", "--block-tokens", "7"], {"trace": Path("t.csv"), "block_tokens": 7}),
        (["--length-scale", "0.5", "--speed", "2"], {"length_scale": 0.5, "speed": 2.0}),
        (["-n", "9"], {"requests": 9}),
        (["--input-tokens", "7"], {"input_tokens": (7, 7)}),
        (["--output-tokens", "7-9"], {"output_tokens": (7, 9)}),
        (["--warm-up", "0"], {"warm_up": 0}),
        (["--seed", "5"], {"seed": 5}),
        (["--ttft-ms", "200", "--tpot-ms", "50"], {"ttft_s": 0.2, "tpot_s": 0.05}),
        (["--tokenizer", "t.json"], {"tokenizer": Path("t.json")}),
        (["--count-along"], {"counts_along": True}),
        (["--body", '{"top_k": 5}'], {"extra": {"top_k": 5}}),
        (["--timeout-s", "3"], {"timeout_s": 3.0}),
    ],
)
def test_each_flag_arrives_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, flags: list[str], expected: dict[str, object]
) -> None:
    asked: list[LoadConfig] = []

    def run_load(config: LoadConfig, **options: object) -> None:
        asked.append(config)
        raise Stop

    monkeypatch.setattr("twostroke.traffic.load.run_load", run_load)
    assert app.main(["bench", "serve", "--url", "http://h", *flags]) == 1
    assert asked == [LoadConfig(**{"url": "http://h", **expected})]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--url is missing: say where the server is"),
        (["--url", "nowhere", "-c", "1"], "--url is 'nowhere'"),
        (["--url", "http://h"], "nothing says when to send"),
        (["--url", "http://h", "-c", "1", "--ttft-ms", "0"], "--ttft-ms is 0: it must be above 0"),
        (["--url", "http://h", "-c", "1", "--input-tokens", "9-3"], "--input-tokens is '9-3': numbers from 1 on"),
        (["--url", "http://h", "-c", "1", "--output-tokens", "few"], "--output-tokens is 'few': a number like 128"),
        (["--url", "http://h", "-c", "1", "--body", "[1]"], "--body must be a JSON object"),
        (["--url", "http://h", "-c", "1", "--body", "{"], "--body is not JSON"),
        (["--url", "http://h", "-c", "1", "--body", "[" * 100_000], "--body is not JSON"),
        (["--self-test", "--url", "http://h"], "--url is given beside --self-test, which has no use for it"),
        (["--self-test", "-c", "4"], "--concurrency is given beside --self-test"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(capsys: Capture, arguments: list[str], words: str) -> None:
    assert app.main(["bench", "serve", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


def test_options_before_serve_are_not_dropped(capsys: Capture) -> None:
    assert app.main(["bench", "-p", "8", "serve", "--url", "http://h"]) == 2
    assert "--prompt stands before serve: write bench serve first" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_a_failure(capsys: Capture) -> None:
    assert app.main(["bench", "serve", "--url", "http://127.0.0.1:9", "-c", "1"]) == 1
    assert "cannot be reached" in capsys.readouterr().err


def test_a_self_test_finds_its_own_schedule(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twostroke.traffic.self_test.REQUESTS", 2)
    monkeypatch.setattr("twostroke.traffic.self_test.STREAMS", 2)
    monkeypatch.setattr("twostroke.traffic.self_test.TOKENS", 3)
    assert app.main(["bench", "serve", "--self-test", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["medians_s"]["TTFT"]["found"] >= found["medians_s"]["TTFT"]["scheduled"] == 0.05
    assert found["cpu_s_per_token"] > 0
