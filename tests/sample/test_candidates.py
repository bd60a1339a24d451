"""A token drawn from what a head hands on is the token drawn from all logits, whatever the row and the wishes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from tests.examples import examples, tries
from tests.sample.sampling_builders import hand_on, make_request, mask_of
from tests.sample.test_reference import logit_rows, params_space
from twostroke import _native
from twostroke.core.step import SampledToken
from twostroke.program.reference import candidates as defined
from twostroke.sample.sampler import NONE_LEFT, Sampler, SamplingRow

ISAS = _native.usable_isas()
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)
NO_LOGITS = np.empty((0, 5000), np.float32)
MOST = 64  # panels that are ranked of a small vocabulary


def start(sampler: Sampler, output: Sequence[int] = (), allowed: Sequence[int] | None = None, **wishes: Any) -> Any:
    state = sampler.start(make_request(**wishes))
    if allowed is not None:
        state.allow(mask_of(allowed, sampler.vocab_size))
    for token_id in output:
        state.append(token_id)
    return SamplingRow(0, state)


def draw_both(
    logits: NDArray[np.float32], *, isa: str, seed: int | None = None, **wishes: Any
) -> tuple[SampledToken, SampledToken | None]:
    """From all logits and from candidates; None where all logits were asked for."""
    sampler = Sampler(len(logits), isa=isa)
    (whole,) = sampler.sample(logits[np.newaxis], [start(sampler, **wishes)])
    row = start(sampler, **wishes)
    candidates = sampler.ask([row])
    if candidates is None:
        return whole, None
    hand_on(candidates, logits[np.newaxis], isa=isa, seed=seed)
    (drawn,) = sampler.sample(NO_LOGITS, [row], candidates=candidates)
    return whole, drawn


def is_enough(wishes: dict[str, Any]) -> bool:
    """Whether the wishes leave all but the best few out, by what a request says."""
    if wishes.get("logprobs") is not None:
        return False
    return wishes["temperature"] == 0 or 0 < (wishes["top_k"] or 0) <= MOST


@given(logits=logit_rows(), params=params_space, seed=st.integers(0, 2**32), data=st.data())
@examples(250)
def test_every_row_gives_the_token_of_all_its_logits(
    logits: NDArray[np.float32], params: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    ids = st.integers(0, len(logits) + 2)
    wishes: dict[str, Any] = {
        **params,
        "seed": seed,
        "prompt": data.draw(st.lists(ids, min_size=1, max_size=20)),
        "output": data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=20)),
        "allowed": data.draw(st.none() | st.lists(st.integers(0, len(logits) - 1), max_size=30, unique=True)),
        "end_ids": data.draw(st.lists(ids, max_size=3)),
        "min_tokens": data.draw(st.integers(0, 40)),
        "bad_ids": data.draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2), max_size=2)),
        "logit_bias": tuple(
            data.draw(st.dictionaries(ids, st.sampled_from([-100.0, 0.0, 0.3, 100.0]), max_size=40)).items()
        ),
    }
    for isa in ISAS:
        whole, drawn = draw_both(logits, isa=isa, **wishes)
        assert (drawn is not None) == is_enough(params), isa
        assert drawn in (whole, None), isa


CHAINS: list[dict[str, Any]] = [
    {"temperature": 1.0, "top_k": 20, "typical_p": 0.7},
    {"temperature": 1.0, "top_k": 20, "top_n_sigma": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"temperature": 0.8, "top_k": 7, "dynatemp_range": 0.5, "sampler_order": ("top_k", "temperature", "top_p")},
    {"temperature": 1.3, "top_k": 30, "top_p": 0.8, "sampler_order": ("temperature", "top_k", "top_p")},
    {
        "temperature": 1.3,
        "top_k": 30,
        "presence_penalty": 1.0,
        "sampler_order": ("top_k", "penalties", "temperature"),
    },
]
NOT_ENOUGH: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.0, "top_k": MOST + 1},
    {"temperature": 1.0, "top_k": 5, "logprobs": 0},
    {"temperature": 0.0, "logprobs": 3},
    {"temperature": 1.0, "typical_p": 0.9},
    {"temperature": 1.0, "mirostat_tau": 3.0},
    {"temperature": 1.0, "top_k": 5, "dynatemp_range": 0.5},
    {"temperature": 1.0, "top_k": 5, "top_p": 0.9, "sampler_order": ("top_p", "top_k", "temperature")},
    {"temperature": 1.0, "top_k": 5, "min_p": 0.1, "sampler_order": ("min_p", "top_k", "temperature")},
    {"temperature": 0.0, "dry_multiplier": 0.8},
    {"temperature": 0.0, "no_repeat_ngram_size": 2},
]


@EVERY_ISA
def test_what_comes_behind_top_k_is_drawn_from_candidates(isa: str) -> None:
    sampler = Sampler(3000, isa=isa)
    rng = np.random.default_rng(3)
    for seed in range(tries(30)):
        logits = np.round(rng.normal(0, 2, (len(CHAINS), 3000)), 1).astype(np.float32)
        rows = [start(sampler, seed=seed, output=[5, 5, 900], **wish) for wish in CHAINS]
        whole = sampler.sample(logits, rows)
        rows = [start(sampler, seed=seed, output=[5, 5, 900], **wish) for wish in CHAINS]
        candidates = sampler.ask(rows)
        assert candidates is not None
        assert candidates.num_whole == 0
        hand_on(candidates, logits, isa=isa, seed=seed)
        drawn = sampler.sample(NO_LOGITS, rows, candidates=candidates)
        for wish, token, expected in zip(CHAINS, drawn, whole, strict=True):
            assert token == expected, (seed, wish)


@pytest.mark.parametrize(("vocab_size", "most"), [(100, 64), (49_152, 64), (65_536, 85), (151_936, 128), (2**20, 128)])
def test_a_larger_vocabulary_ranks_more(vocab_size: int, most: int) -> None:
    sampler = Sampler(vocab_size)
    assert sampler.ask([start(sampler, temperature=1.0, top_k=most)]) is not None
    assert sampler.ask([start(sampler, temperature=1.0, top_k=most + 1)]) is None


@pytest.mark.parametrize("wish", NOT_ENOUGH, ids=str)
def test_who_looks_beyond_the_best_gets_all_logits(wish: dict[str, Any]) -> None:
    sampler = Sampler(5000)
    assert sampler.ask([start(sampler, **wish)]) is None


CHANGES: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.5},
    {"frequency_penalty": 0.5, "bad_ids": [[3], [9, 2]]},
    {"presence_penalty": -0.5},
    {"repetition_penalty": 1.2, "logit_bias": ((40, 1.0), (0, -3.0))},
]


class Panels(NamedTuple):
    """A row, and the panels its wish is due."""

    row: SamplingRow
    logits: NDArray[np.float32]
    expected: set[int]


def panels_due(sampler: Sampler, change: dict[str, Any], *, k: int, decimals: int, rng: np.random.Generator) -> Panels:
    """Whole numbers, of which many tie; with a decimal some are -inf and a grammar allows a fifth of the ids."""
    vocab_size = sampler.vocab_size
    logits = np.round(rng.normal(0, 1, vocab_size), decimals).astype(np.float32)
    logits[rng.random(vocab_size) < 0.3 * decimals] = -np.inf
    allowed = None if decimals == 0 else rng.random(vocab_size) < 0.2
    output = rng.integers(0, vocab_size, 5).tolist()
    wish = {"temperature": 1.0, "top_k": k, "prompt": output[:1], "output": output, **change}
    row = start(sampler, allowed=None if allowed is None else np.flatnonzero(allowed).tolist(), **wish)
    changed = [*output, 3, 2 if output[-1] == 9 else 3] if "bad_ids" in change else output if change else []
    changed = [each for each in [*changed, *([40, 0] if "logit_bias" in change else [])] if each < vocab_size]
    may_rise = "presence_penalty" in change or "logit_bias" in change
    return Panels(row, logits, defined(logits, k=k, allowed=allowed, changed=changed, may_rise=may_rise))


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 1000, 4097])
@EVERY_ISA
def test_the_panels_handed_on_are_the_defined_ones_from_any_thread_in_any_order(isa: str, vocab_size: int) -> None:
    sampler = Sampler(vocab_size, isa=isa, pool=_native.Pool(3))
    cases = []
    for k in (1, 2, 40, MOST):
        for change in CHANGES:
            rng = np.random.default_rng(k)
            due = [panels_due(sampler, change, k=k, decimals=decimals, rng=rng) for decimals in range(2)]
            cases += [((k, change, decimals), *each) for decimals, each in enumerate(due)]
    logits = np.stack([each[2] for each in cases])
    for order in (None, 0, 1):
        candidates = sampler.ask([each[1] for each in cases])
        assert candidates is not None
        hand_on(candidates, logits, isa=isa, num_threads=3, seed=order)
        for index, (case, _, row_logits, expected) in enumerate(cases):
            found = dict(candidates.found(index))
            assert set(found) == expected, case
            for panel, values in found.items():
                assert values == row_logits[32 * panel : 32 * panel + 32].tolist(), case
            assert candidates.top(index) == row_logits.max(), case


@EVERY_ISA
@pytest.mark.parametrize("odd", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 40, 999])
def test_what_is_broken_is_found_wherever_it_is(isa: str, odd: float, place: int) -> None:
    logits = np.linspace(3, -3, 1000, dtype=np.float32)
    logits[place] = odd
    others = [each for each in range(1000) if each != place]
    for wish in ({}, {"allowed": others}, {"logit_bias": ((place, -100.0),)}, {"end_ids": [place], "min_tokens": 9}):
        for temperature in (0.0, 1.0):
            wishes: dict[str, Any] = {"temperature": temperature, "top_k": 4, **wish}
            whole, drawn = draw_both(logits, isa=isa, **wishes)
            assert drawn == whole
            assert f"a logit is {odd}" in str(whole.error)


@EVERY_ISA
def test_a_row_of_which_nothing_may_come_says_whose_fault_that_is(isa: str) -> None:
    nothing = np.full(100, -np.inf, np.float32)
    whole, drawn = draw_both(nothing, isa=isa, temperature=0.0)
    assert drawn == whole
    assert "every logit is -inf" in str(whole.error)
    one = nothing.copy()
    one[70] = 1.0
    whole, drawn = draw_both(one, isa=isa, temperature=0.0, allowed=[3, 99])
    assert drawn == whole
    assert NONE_LEFT in str(whole.error)


@EVERY_ISA
def test_ties_go_to_the_lowest_id_whoever_came_first(isa: str) -> None:
    logits = np.zeros(2000, np.float32)
    logits[:700] = -0.0
    for seed in range(5):
        _, drawn = draw_both(logits, isa=isa, seed=seed, temperature=0.0)
        assert drawn is not None
        assert drawn.token_id == 0
        whole, drawn = draw_both(logits, isa=isa, seed=seed, temperature=1.0, top_k=33)
        assert drawn == whole
        assert whole.token_id < 33


@EVERY_ISA
@pytest.mark.parametrize(
    "wish",
    [{"temperature": 0.0}, {"temperature": 1.0, "top_k": 3, "min_p": 1.0}, {"temperature": 0.0, "seed": 2}],
    ids=str,
)
def test_ties_with_a_panel_that_is_kept_beside_the_ranking(isa: str, wish: dict[str, Any]) -> None:
    """It comes last of those found, and holds the lowest of the tied ids."""
    logits = np.zeros(2000, np.float32)
    for place, expected in ((5, 0), (0, 1)):
        whole, drawn = draw_both(logits, isa=isa, logit_bias=((place, -1.0),), **wish)
        assert drawn == whole
        assert whole.token_id == expected


@EVERY_ISA
@pytest.mark.parametrize("order", [range(63), range(62, -1, -1)], ids=["falling", "rising"])
def test_panels_that_grow_or_fall_all_the_way(isa: str, order: Any) -> None:
    sampler = Sampler(2000, isa=isa)
    logits = np.sort(np.random.default_rng(1).normal(0, 1, 2016).astype(np.float32))[::-1][np.newaxis]
    rows = [start(sampler, temperature=1.0, top_k=k, seed=k) for k in (1, 2, 15, 16, 40, MOST)]
    candidates = sampler.ask(rows)
    assert candidates is not None
    for panel in order:
        tile = np.repeat(logits[:, 32 * panel : 32 * panel + 32], len(rows), axis=0)
        candidates.take(np.ascontiguousarray(tile), panel=panel, isa=isa)
    for index, k in enumerate((1, 2, 15, 16, 40, MOST)):
        assert {panel for panel, _ in candidates.found(index)} == set(range(min(k, 63)))
    drawn = sampler.sample(NO_LOGITS, rows, candidates=candidates)
    assert drawn == sampler.sample(np.repeat(logits, len(rows), axis=0), rows)


@EVERY_ISA
@given(wishes=st.lists(st.sampled_from([None, 0, 1, 5, 40, 64, 300]), min_size=1, max_size=9), seed=st.integers(0, 99))
@examples(25)
def test_rows_with_and_without_candidates_share_a_step(isa: str, wishes: list[int | None], seed: int) -> None:
    """Step after step on one sampler, as rows come and go: what is left of the last one harms nobody."""
    sampler = Sampler(1500, isa=isa)
    rng = np.random.default_rng(seed)
    for step in range(3):
        logits = rng.normal(0, 3, (len(wishes), 1500)).astype(np.float32)
        rows: list[SamplingRow | None] = [
            None if k is None else start(sampler, temperature=1.0, top_k=k, seed=k + step, frequency_penalty=k / 300)
            for k in wishes
        ]
        candidates = sampler.ask(rows)
        given_logits = logits
        if candidates is not None:
            assert candidates.num_whole == sum(k in (None, 0, 300) for k in wishes)
            hand_on(candidates, logits, isa=isa, seed=step)
            given_logits = logits.copy()
            for index in range(len(wishes)):
                if not candidates.wants_all(index):
                    given_logits[index] = np.nan
        at = [index for index, row in enumerate(rows) if row is not None][::-1]
        asking = [row for row in rows if row is not None][::-1]
        drawn = sampler.sample(given_logits, asking, at=at, candidates=candidates)
        assert drawn == sampler.sample(logits, asking, at=at)
        wishes = wishes[1:] + wishes[:1]


def test_candidates_take_the_memory_of_what_is_kept_not_of_the_vocabulary() -> None:
    sampler = Sampler(262_144)
    candidates = sampler.ask([start(sampler, temperature=1.0, top_k=40)] * 16)
    assert candidates is not None
    all_logits = 16 * 262_144 * 4
    assert candidates.memory_bytes < all_logits / 50


def test_what_does_not_fit_is_refused() -> None:
    sampler, other = Sampler(64), Sampler(65)
    row = start(sampler, temperature=0.0)
    candidates = sampler.ask([row])
    assert candidates is not None
    with pytest.raises(ValueError, match="of the vocabulary of the sampler"):
        other.sample(np.zeros((1, 65), np.float32), [start(other, temperature=0.0)], candidates=candidates)
    with pytest.raises(IndexError, match="state 0 draws from row 1 of "):
        sampler.sample(NO_LOGITS, [row], at=[1], candidates=candidates)
    with pytest.raises(IndexError, match="row 1 of 1"):
        candidates.found(1)
    tile = np.zeros((1, 32), np.float32)
    for place in ({"panel": -1}, {"panel": 0, "first_row": 1}, {"panel": 0, "worker": 1}, {"panel": 0, "worker": -1}):
        with pytest.raises(IndexError, match="no such panel, rows or thread"):
            candidates.take(tile, **place, isa="portable")
    with pytest.raises(TypeError):
        candidates.take(np.zeros((1, 31), np.float32), panel=0, isa="portable")
    with pytest.raises(ValueError, match="need a vocabulary and a thread"):
        _native.Candidates(0, num_threads=1)
    with pytest.raises(TypeError, match="SamplingState or None"):
        _native.Candidates(10, num_threads=1).plan([3])  # type: ignore[list-item]
