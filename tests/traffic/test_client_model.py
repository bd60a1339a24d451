"""Requests drawn from models of clients have their rates, variations and lengths."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest

from twostroke.errors import ConfigError
from twostroke.traffic.client_model import weibull_shape
from twostroke.traffic.trace import read_trace
from twostroke.traffic.workload import Workload

HEADER = {"format": "servegen-compact-1", "bin_s": 600, "bins": 2}
COUNT = 5000


def client(**changes: Any) -> dict[str, Any]:
    """10 requests a second for two bins, prompts of 10 to 20 tokens, answers of 5."""
    usual = {
        "rate_mrps": [10_000, 10_000],
        "cv_pct": [100, 100],
        "pattern": "GG",
        "input_q": [10, 20],
        "output_q": [5, 5],
    }
    return usual | changes


def drawn(tmp_path: Path, *clients: dict[str, Any], count: int | None = COUNT, seed: int = 0) -> Workload:
    file = tmp_path / "clients.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in (HEADER, *clients)))
    return read_trace(file, count=count, seed=seed)


def gaps_of(workload: Workload) -> list[float]:
    times = [item.due_s for item in workload.items if item.due_s is not None]
    assert times[0] == 0.0
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize("pattern", ["GG", "WW"])
@pytest.mark.parametrize("percent", [50, 100, 200])
def test_gaps_have_the_clients_rate_and_variation(tmp_path: Path, pattern: str, percent: int) -> None:
    """5,000 gaps: the mean's standard error is 2.8 % at the largest variation; the seed is fixed."""
    gaps = gaps_of(drawn(tmp_path, client(pattern=pattern, cv_pct=[percent, percent])))
    assert fmean(gaps) == pytest.approx(0.1, rel=0.07)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(percent / 100, rel=0.12)


def test_lengths_lie_evenly_between_quantiles(tmp_path: Path) -> None:
    items = drawn(tmp_path, client()).items
    prompts = [item.prompt_tokens for item in items]
    assert (min(prompts), max(prompts)) == (10, 20)
    assert fmean(prompts) == pytest.approx(15, abs=0.2)
    assert {item.output_tokens for item in items} == {5}


def test_clients_come_in_the_order_of_time_and_share_no_prompt(tmp_path: Path) -> None:
    workload = drawn(tmp_path, client(), client(input_q=[100, 100]))
    assert min(gaps_of(workload)) >= 0
    assert fmean(gaps_of(workload)) == pytest.approx(0.05, rel=0.07)
    share = sum(item.prompt_tokens == 100 for item in workload.items) / COUNT
    assert share == pytest.approx(0.5, abs=0.03)
    assert len({item.pieces[0].name for item in workload.items}) == COUNT


def test_a_client_without_lengths_takes_those_of_others_by_their_rates(tmp_path: Path) -> None:
    rare = client(rate_mrps=[10, 10], input_q=[7, 7])
    silent = client(rate_mrps=[20_000, 20_000], input_q=None, output_q=None)
    items = drawn(tmp_path, client(input_q=[100, 100]), rare, silent).items
    assert {item.prompt_tokens for item in items} <= {7, 100}
    assert sum(item.prompt_tokens == 100 for item in items) / COUNT > 0.97


def test_a_bin_without_requests_is_passed_over(tmp_path: Path) -> None:
    workload = drawn(tmp_path, client(rate_mrps=[0, 10_000], cv_pct=[0, 100], pattern="-G"), count=3)
    assert len(workload.items) == 3
    assert max(gaps_of(workload)) < 10


def test_the_seed_decides(tmp_path: Path) -> None:
    first, again, other = (drawn(tmp_path, client(), count=9, seed=seed).items for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("clients", "count", "words"),
    [
        ([client()], None, "which has no end: say how many with --requests"),
        ([client(rate_mrps=[10, 10])], COUNT, "requests: --requests of at most that fits"),
        ([client(cv_pct=[1])], 3, "rates, variations and patterns differ in number"),
        ([{"client": 1}], 3, "is no model of clients: KeyError 'rate_mrps'"),
        ([client(cv_pct=[0, 100])], 3, "rates must be 0 or more, variations above 0, both finite"),
        ([client(rate_mrps=[1e999, 1])], 3, "rates must be 0 or more, variations above 0, both finite"),
        ([client(input_q=[], output_q=[])], 3, "it needs bins of some seconds and a client's lengths"),
    ],
)
def test_what_cannot_be_drawn_is_told(
    tmp_path: Path, clients: list[dict[str, Any]], count: int | None, words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        drawn(tmp_path, *clients, count=count)
    assert words in str(refused.value)


def test_the_shape_of_an_exponential_is_one() -> None:
    assert weibull_shape(1.0) == pytest.approx(1.0)
    assert weibull_shape(2.0) < 1 < weibull_shape(0.5)
