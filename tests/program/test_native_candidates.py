"""A head that hands on candidates: the bits it would have written, of the defined panels, beside rows it writes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders_sources import make_source
from tests.native.program_builders import AttentionModel, Heads, make_step, stored
from tests.program.test_native import make_native
from tests.sample.test_native_states import GREEDY
from twostroke import _native
from twostroke.errors import KernelError
from twostroke.program.fuse import unfused
from twostroke.program.native import NativeReader
from twostroke.program.program import BoundStep
from twostroke.program.reader import KVSpec
from twostroke.program.reference import candidates as defined

ISAS = _native.usable_isas()
VOCAB, WIDTH = 1010, 48  # 31 panels and 18 tokens more


def make_state(k: int | None, *, changed: Sequence[int] = (), bias: float = 1.0) -> _native.SamplingState | None:
    """One that needs the best `k` tokens; 0: all."""
    if k is None:
        return None
    wish = {**GREEDY, "temperature": 1.0, "top_k": k, "logit_bias": [(each, bias) for each in changed]}
    return _native.SamplingState([1], **wish)


def make_reader(*, isa: str | None = None, threads: int = 1, groups: Any = None) -> NativeReader:
    """Logits are random sums of what attend gives."""
    model = AttentionModel(Heads(3, 1, 16), num_ids=VOCAB)
    rng = np.random.default_rng(1)
    pick = np.eye(80, dtype=np.float32)
    tensors = {
        "embedding": stored(model.embedding),
        "q": stored(pick[:48]),
        "k": stored(pick[48:64]),
        "v": stored(pick[64:]),
        "out": stored(rng.normal(0, 1, (VOCAB, WIDTH)).astype(np.float32)),
    }
    kv = KVSpec("f32", 16, (16,))
    options: dict[str, Any] = {"threads": threads, "max_tokens": 200, "max_rows": 16, "isa": isa, "groups": groups}
    return NativeReader(model.program, tensors, kv=kv, **options)


def step_of(num_tokens: int) -> BoundStep:
    return make_step([([7 * each % VOCAB for each in range(num_tokens)], 0, list(range(13)))])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("num_tokens", [1, 4, 5, 37, 150])  # alone, prepared by each thread, shared out, two blocks
def test_rows_get_the_defined_panels_or_all_their_logits(isa: str, threads: int, num_tokens: int) -> None:
    reader = make_reader(isa=isa, threads=threads)
    step = step_of(num_tokens)
    whole = reader.run(step).copy()
    candidates = _native.Candidates(VOCAB, num_threads=threads)
    rng = np.random.default_rng(num_tokens)
    for wishes in ([1], [40, 3], [None, 5], [0, 2, 30, 1]):
        ks = [wishes[row % len(wishes)] for row in range(num_tokens)]
        changed = [rng.integers(0, VOCAB, row % 4 * 3).tolist() for row in range(num_tokens)]
        states = [make_state(k, changed=changed[row], bias=1.0 if row % 3 == 0 else -1.0) for row, k in enumerate(ks)]
        candidates.plan(states)
        logits = reader.run(replace(step, candidates=candidates))
        for row, k in enumerate(ks):
            if not k:
                assert candidates.wants_all(row)
                assert np.array_equal(logits[row], whole[row])
                continue
            found = dict(candidates.found(row))
            assert set(found) == defined(whole[row], k=k, changed=changed[row], may_rise=row % 3 == 0)
            for panel, values in found.items():
                assert values == whole[row, 32 * panel : 32 * panel + 32].tolist()
            assert candidates.top(row) == whole[row].max()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("num_tokens", [1, 6])
def test_panels_that_are_not_wanted_hold_nothing(isa: str, num_tokens: int) -> None:
    reader = make_reader(isa=isa, threads=2)
    step = step_of(num_tokens)
    whole = reader.run(step).copy()
    wanted = np.zeros(30, np.uint32)  # the last panels are past its end
    wanted[[2, 17, 29]] = 1
    candidates = _native.Candidates(VOCAB, num_threads=2)
    candidates.plan([make_state(2 if row % 2 == 0 else None, changed=[5, 70]) for row in range(num_tokens)])
    logits = reader.run(replace(step, wanted=wanted, candidates=candidates))
    narrow = np.full_like(whole, -np.inf)
    for panel in (2, 17, 29):
        narrow[:, 32 * panel : 32 * panel + 32] = whole[:, 32 * panel : 32 * panel + 32]
    for row in range(num_tokens):
        if row % 2:
            assert np.array_equal(logits[row], narrow[row])
            continue
        found = dict(candidates.found(row))
        assert set(found) == defined(narrow[row], k=2, changed=[5, 70], may_rise=True)
        assert {0, 2} < set(found)
        for panel, values in found.items():
            assert values == narrow[row, 32 * panel : 32 * panel + 32].tolist()


@pytest.mark.parametrize("vocab_size", [1, 32, 1000])
def test_padding_of_the_head_is_nobodys_candidate(vocab_size: int) -> None:
    reader = make_reader()
    step = step_of(3)
    whole = reader.run(step).copy()
    candidates = _native.Candidates(vocab_size, num_threads=1)
    candidates.plan([make_state(2)] * 3)
    reader.run(replace(step, candidates=candidates))
    for row in range(3):
        known = whole[row, :vocab_size]
        assert {panel for panel, _ in candidates.found(row)} == defined(known, k=2)
        assert candidates.top(row) == known.max()


def test_logits_that_nobody_asked_for_take_no_memory() -> None:
    reader = make_reader()
    step = step_of(150)
    candidates = _native.Candidates(VOCAB, num_threads=1)
    candidates.plan([make_state(1)] * 150)
    assert len(reader.run(replace(step, candidates=candidates))) == 1
    candidates.plan([make_state(1)] * 149 + [None])
    assert len(reader.run(replace(step, candidates=candidates))) == 150


def test_what_does_not_fit_the_program_is_refused_and_changes_nothing() -> None:
    reader = make_reader(threads=2)
    step = step_of(3)
    before = reader.run(step).copy()

    def planned(vocab_size: int, num_threads: int, num_rows: int) -> _native.Candidates:
        candidates = _native.Candidates(vocab_size, num_threads=num_threads)
        candidates.plan([make_state(1)] * num_rows)
        return candidates

    for candidates, problem in (
        (planned(VOCAB, 2, 2), "candidates are of 2 rows, the step selects 3"),
        (planned(VOCAB + 1, 2, 3), f"candidates are of {VOCAB + 1} tokens, the head has {VOCAB}"),
        (planned(VOCAB, 1, 3), "candidates are for 1 threads, the program has 2"),
    ):
        with pytest.raises(KernelError, match=problem):
            reader.run(replace(step, candidates=candidates))
    assert np.array_equal(reader.run(step), before)


def test_capped_logits_are_handed_on_where_the_cap_shares_the_phase_of_the_head() -> None:
    source = make_source("gemma3", metadata={"gemma3.final_logit_softcapping": 3.0})
    program, reader = make_native(source)
    step = make_step([([1, 2, 3], 0, [0])])
    step = replace(step, block_tables=step.block_tables * len(program.kv_groups))
    whole = reader.run(step).copy()
    candidates = _native.Candidates(program.vocab_size, num_threads=1)
    candidates.plan([make_state(1)] * 3)
    reader.run(replace(step, candidates=candidates))
    for row in range(3):
        ((panel, values),) = candidates.found(row)
        assert {panel} == defined(whole[row], k=1)
        assert values == whole[row, 32 * panel : 32 * panel + 32].tolist()
    _, apart = make_native(source, groups=unfused(program))
    assert reader.brings_candidates
    assert not apart.brings_candidates
    with pytest.raises(KernelError, match="brings no candidates"):
        apart.run(replace(step, candidates=candidates))
