"""Both phases timed on a puppet: what is asked of the engine, and rates that follow from the times."""

import random
from collections.abc import Iterator

import pytest

from tests.builders_llm import open_llm, write_puppet
from tests.measure.peer_builders import open_peer
from twostroke.errors import ConfigError, RequestError
from twostroke.llm import LLM
from twostroke.measure.generation import Load, _decode_seconds, _ratio, _Run, compare, measure_ours


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with open_llm(write_puppet(tmp_path_factory.mktemp("puppet") / "puppet.gguf")) as one:
        yield one


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ((-1, 1, 0, 1), "--prompt is -1: it must be at least 0"),
        ((1, -1, 0, 1), "--generate is -1"),
        ((1, 1, -1, 1), "--depth is -1"),
        ((1, 1, 0, 0), "--batch is 0: it must be at least 1"),
        ((0, 0, 0, 1), "nothing would be timed"),
    ],
)
def test_a_load_of_nothing_or_less_is_refused(load: tuple[int, int, int, int], words: str) -> None:
    prompt, generate, depth, batch = load
    with pytest.raises(ConfigError, match=words):
        Load(prompt=prompt, generate=generate, depth=depth, batch=batch)


def test_the_context_holds_the_longer_part_behind_the_depth() -> None:
    assert Load(prompt=5, generate=9, depth=100, batch=2).context == 111


@pytest.mark.parametrize(
    ("prompt", "generate", "depth", "batch"), [(8, 4, 0, 1), (8, 0, 20, 2), (0, 4, 0, 3), (0, 3, 33, 2), (1, 1, 1, 1)]
)
def test_each_phase_asked_for_takes_time_and_no_other(
    llm: LLM, prompt: int, generate: int, depth: int, batch: int
) -> None:
    load = Load(prompt=prompt, generate=generate, depth=depth, batch=batch)
    times = measure_ours(llm, load, random.Random(0))
    assert (times.prefill_s > 0) is (prompt > 0)
    assert (times.decode_s > 0) is (generate > 0)
    assert llm.snapshot().blocks_held == 0


def test_decode_is_timed_from_the_moment_all_sequences_decode() -> None:
    early, late = _Run([1.0, 2.0, 3.0, 4.0, 5.0]), _Run([3.0, 4.0, 5.0, 6.0, 7.0])
    # from 3 to 7: two tokens of the first, four of the second, so 1.5 tokens a second
    assert _decode_seconds([early, late], num_tokens=8) == pytest.approx(8 / 1.5)


def test_decode_of_a_batch_in_step_is_its_plain_time() -> None:
    runs = [_Run([0.5, 1.0, 1.5]), _Run([0.5, 1.0, 1.5])]
    assert _decode_seconds(runs, num_tokens=4) == pytest.approx(1.0)


def test_a_ratio_is_the_median_of_pairs_and_none_without_a_peer() -> None:
    assert _ratio([1.0, 1.0, 2.0], [2.0, 3.0, 2.0]) == 2.0
    assert _ratio([1.0], []) is None
    assert _ratio([0.0], [1.0]) is None, "a phase that was not timed"


def test_alone_there_is_a_series_and_no_ratio(llm: LLM) -> None:
    comparison = compare(llm, Load(prompt=8, generate=4, depth=0, batch=1), repeat=3, peer=None)
    assert len(comparison.ours.prefill_per_s) == len(comparison.ours.decode_per_s) == 3
    assert comparison.ours.prefill == sorted(comparison.ours.prefill_per_s)[1]
    assert (comparison.peer, comparison.prefill_ratio, comparison.decode_ratio) == (None, None, None)


def test_beside_a_peer_both_have_a_series_and_the_warm_up_counts_for_neither(llm: LLM) -> None:
    load = Load(prompt=8, generate=4, depth=0, batch=2)
    with open_peer() as peer:
        comparison = compare(llm, load, repeat=2, peer=peer)
    assert comparison.peer is not None
    assert comparison.peer.engine == "scripted"
    assert comparison.peer.prefill_per_s == pytest.approx((2000.0, 2000.0))  # 2 x 8 tokens in 8 ms
    assert comparison.peer.decode_per_s == pytest.approx((100.0, 100.0))  # 2 x 4 in 80 ms
    assert len(comparison.ours.decode_per_s) == 2
    assert comparison.prefill_ratio is not None
    assert comparison.decode_ratio is not None
    pairs = [ours / theirs for ours, theirs in zip(comparison.ours.decode_per_s, (100.0, 100.0), strict=True)]
    assert comparison.decode_ratio == pytest.approx(sum(pairs) / 2)


def test_a_phase_that_is_not_timed_has_no_rate(llm: LLM) -> None:
    series = compare(llm, Load(prompt=8, generate=0, depth=0, batch=1), repeat=1, peer=None).ours
    assert series.decode is None
    assert series.decode_per_s == ()
    assert series.prefill is not None


def test_a_request_that_fails_is_no_measurement(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(step: object) -> object:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(llm._loaded.reader, "run", broken)
    with pytest.raises(RequestError, match="a measured request failed: the engine failed"):
        measure_ours(llm, Load(prompt=8, generate=0, depth=0, batch=1), random.Random(0))
