"""Both phases timed on a puppet: what is asked of the engine, and rates that follow from the times."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.builders_llm import open_llm, write_puppet
from tests.measure.peer_builders import open_peer
from twostroke.errors import RequestError
from twostroke.llm import LLM
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.generation import Comparison, Spread, _decode_seconds, _Run, compare, measure_ours, spread
from twostroke.params import SamplingParams


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with open_llm(write_puppet(tmp_path_factory.mktemp("puppet") / "puppet.gguf")) as one:
        yield one


CELLS = [
    Cell(Kind.PREFILL, prompt=8),
    Cell(Kind.PREFILL, prompt=8, depth=20, batch=2),
    Cell(Kind.DECODE, generate=4, batch=3),
    Cell(Kind.DECODE, generate=3, depth=33, batch=2),
    Cell(Kind.DECODE, generate=1),
    Cell(Kind.REQUESTS, prompt=8, generate=4, batch=2),
]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.label)
def test_a_cell_takes_time_and_leaves_nothing_behind(llm: LLM, cell: Cell) -> None:
    assert measure_ours(llm, cell, random.Random(0)) > 0
    assert llm.snapshot().blocks_held == 0


def test_a_wish_is_for_every_token_and_never_for_the_length(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SamplingParams] = []
    monkeypatch.setattr(llm, "_check_params", lambda params, on_event: asked.append(params))
    wish = SamplingParams(temperature=0.8, top_p=0.95, seed=1, max_tokens=999)
    measure_ours(llm, Cell(Kind.DECODE, generate=3), random.Random(0), wish=wish)
    assert asked == [replace(wish, max_tokens=4, ignore_eos=True)]


def test_decode_is_timed_from_the_moment_all_sequences_decode() -> None:
    early, late = _Run([1.0, 2.0, 3.0, 4.0, 5.0]), _Run([3.0, 4.0, 5.0, 6.0, 7.0])
    # from 3 to 7: two tokens of the first, four of the second, so 1.5 tokens a second
    assert _decode_seconds([early, late], num_tokens=8) == pytest.approx(8 / 1.5)


def test_decode_of_a_batch_in_step_is_its_plain_time() -> None:
    runs = [_Run([0.5, 1.0, 1.5]), _Run([0.5, 1.0, 1.5])]
    assert _decode_seconds(runs, num_tokens=4) == pytest.approx(1.0)


def test_a_spread_is_of_what_there_is() -> None:
    assert spread([3.0, 1.0, 9.0]) == Spread(median=3.0, lowest=1.0, highest=9.0)
    assert spread([]) is None


def test_ratios_are_of_pairs_that_followed_each_other() -> None:
    cell = Cell(Kind.PREFILL, prompt=1)
    assert Comparison(cell, (2.0, 9.0), (1.0, 3.0)).ratios == (2.0, 3.0)
    assert Comparison(cell, (2.0, 9.0)).ratios == ()


def test_alone_there_are_rates_and_no_ratio(llm: LLM) -> None:
    comparison = compare(llm, Cell(Kind.PREFILL, prompt=8), repeat=3, peer=None)
    assert len(comparison.ours_per_s) == 3
    assert (comparison.theirs_per_s, comparison.ratios, comparison.refusal) == ((), (), None)


@pytest.mark.parametrize(
    ("cell", "rate"),
    [
        (Cell(Kind.PREFILL, prompt=8, batch=2), 1000.0),  # 16 tokens in 16 ms
        (Cell(Kind.DECODE, generate=4, batch=2), 100.0),  # 8 in 80 ms
        (Cell(Kind.REQUESTS, prompt=10, generate=4), 80.0),  # 4 in 50 ms
    ],
    ids=lambda value: value.label if isinstance(value, Cell) else "",
)
def test_beside_a_peer_both_have_rates_and_the_warm_up_counts_for_neither(llm: LLM, cell: Cell, rate: float) -> None:
    with open_peer() as peer:
        comparison = compare(llm, cell, repeat=2, peer=peer)
    assert comparison.theirs_per_s == pytest.approx((rate, rate))
    assert len(comparison.ours_per_s) == 2
    assert comparison.ratios == pytest.approx([ours / rate for ours in comparison.ours_per_s])


def test_a_cell_the_peer_refuses_is_still_ours(llm: LLM) -> None:
    with open_peer() as peer:
        comparison = compare(llm, Cell(Kind.DECODE, generate=2, depth=8), repeat=1, peer=peer)
    assert comparison.refusal == "scripted has no depth"
    assert (len(comparison.ours_per_s), comparison.theirs_per_s) == (1, ())


def test_a_request_that_fails_is_no_measurement(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(step: object) -> object:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(llm._loaded.reader, "run", broken)
    with pytest.raises(RequestError, match="a measured request failed: the engine failed"):
        measure_ours(llm, Cell(Kind.PREFILL, prompt=8), random.Random(0))
