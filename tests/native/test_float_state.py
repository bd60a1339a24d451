"""The caller's floating-point control word: no result depends on it, and every call gives it back."""

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.native.program_builders import AttentionModel, Heads, make_step
from tests.sample.sampling_builders import make_row
from twostroke import _native
from twostroke.errors import KernelError
from twostroke.program.reader import Precision
from twostroke.sample.sampler import Sampler

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64") or platform.libc_ver()[0] != "glibc",
    reason="reads the control word as glibc lays it out",
)

ISAS = _native.usable_isas()
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)
IS_ARM = platform.machine() == "aarch64"  # FPCR, which is not MXCSR
DEFAULT = 0 if IS_ARM else 0x1F80  # every exception masked
if IS_ARM:
    ROUNDING = {"down": 2 << 22, "up": 1 << 22, "zero": 3 << 22}
else:
    ROUNDING = {"down": 1 << 13, "up": 2 << 13, "zero": 3 << 13}
TOWARDS = {name: DEFAULT | bits for name, bits in ROUNDING.items()}
FLUSHES = DEFAULT | (1 << 24 if IS_ARM else 0x8000 | 0x0040)  # denormals written and read as zero
WORDS = {**TOWARDS, "flush": FLUSHES, "both": FLUSHES | ROUNDING["zero"]}
EVERY_WORD = pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
_FLAGS = 0 if IS_ARM else 0x3F  # what has happened, not how to compute: Python's own sums set them
_WORD_AT = 0 if IS_ARM else 28  # bytes into glibc's fenv_t


def _environment() -> bytearray:
    """glibc's fenv_t of this thread."""
    place = bytearray(64)
    assert ctypes.CDLL("libm.so.6").fegetenv(_at(place)) == 0
    return place


def _at(place: bytearray) -> "ctypes.Array[ctypes.c_char]":
    return (ctypes.c_char * len(place)).from_buffer(place)


def control_word() -> int:
    return int.from_bytes(_environment()[_WORD_AT : _WORD_AT + 4], "little") & ~_FLAGS


@contextmanager
def calling_under(word: int) -> Iterator[None]:
    """This thread computes under another word; the block must leave it as it was set."""
    libm, before, changed = ctypes.CDLL("libm.so.6"), _environment(), _environment()
    changed[_WORD_AT : _WORD_AT + 4] = word.to_bytes(4, "little")
    assert libm.fesetenv(_at(changed)) == 0
    try:
        assert control_word() == word
        yield
        assert control_word() == word
    finally:
        libm.fesetenv(_at(before))


def test_the_word_of_this_thread_is_seen_and_put_back() -> None:
    before = control_word()
    tiny = np.array([1e-40], np.float32)
    with calling_under(FLUSHES):
        assert not (tiny * np.float32(1)).any()
    assert (tiny * np.float32(1)).any()
    assert control_word() == before


@EVERY_ISA
@EVERY_WORD
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_has_the_same_bits_under_every_word(isa: str, word: int, precision: Precision, threads: int) -> None:
    model = AttentionModel(Heads(3, 1, 16, softcap=2.0), num_ids=60)
    reader = model.make_reader(precision=precision, isa=isa, threads=threads)
    rows = [(range(40), 0, [0, 1, 2]), ([7], 0, [3])]
    wanted = model.run(reader, rows)
    with calling_under(word):
        got = model.run(reader, rows)
    assert np.array_equal(got.view(np.uint32), wanted.view(np.uint32))


@EVERY_ISA
@pytest.mark.parametrize("threads", [1, 3])
def test_denormals_are_zero_to_a_step_on_every_thread(isa: str, threads: int) -> None:
    model = AttentionModel(Heads(6, 6, 16), num_ids=100)
    model.embedding[:] = 1e-40
    model.embedding[0] = np.finfo(np.float32).tiny
    reader = model.make_reader(isa=isa, threads=threads)
    rows = [([id], 0, [id]) for id in range(12)]
    got = model.run(reader, rows)
    assert (got[0] == np.finfo(np.float32).tiny).all()
    assert not got[1:].any()


def refuse_a_step() -> None:
    model = AttentionModel(Heads(2, 1, 8), num_ids=40)
    reader = model.make_reader(num_blocks=2)
    with pytest.raises(KernelError, match="has id 99"):
        reader.run(make_step([([99], 0, [0])]))


def fail_on_worker(index: int) -> None:
    pool = _native.Pool(2)
    with pytest.raises(RuntimeError, match="as asked"):
        pool.count_shares(8, 4, index)


def refuse_logits() -> None:
    sampler = Sampler(4)
    with pytest.raises(ValueError, match="a row per state"):
        sampler.sample(np.zeros((2, 4), np.float32), [make_row(sampler)])


def sample_a_broken_row() -> None:
    sampler = Sampler(4)
    (token,) = sampler.sample(np.full((1, 4), np.nan, np.float32), [make_row(sampler, temperature=1.0)])
    assert token.error is not None


def sample_on_threads() -> None:
    sampler = Sampler(20_000, pool=_native.Pool(2))
    rows = [make_row(sampler, sequence_id=row, temperature=1.0) for row in range(20)]
    tokens = sampler.sample(np.zeros((20, 20_000), np.float32), rows)
    assert all(token.error is None for token in tokens)


def pack_and_multiply() -> None:
    weight = _native.Pool(2).pack_weight("F32", np.zeros(4 * 64, np.uint8), 1, 64)
    for isa in ISAS:
        _native.linear(weight, np.ones((2, 64), np.float32), isa)


def probe() -> None:
    assert _native.Probe(ISAS[0], 2, 4096).read() == 4096


CALLS: dict[str, Callable[[], None]] = {
    "worker 0 fails": lambda: fail_on_worker(0),
    "worker 1 fails": lambda: fail_on_worker(1),
    "logits refused": refuse_logits,
    "a broken row": sample_a_broken_row,
    "sampling on threads": sample_on_threads,
    "packing and linear": pack_and_multiply,
    "probes": probe,
    "a refused step": refuse_a_step,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@EVERY_WORD
def test_every_call_gives_the_word_back(call: Callable[[], None], word: int) -> None:
    with calling_under(word):
        call()


@EVERY_ISA
@EVERY_WORD
@pytest.mark.parametrize("num_threads", [0, 2])
def test_draws_are_the_same_under_every_word(isa: str, word: int, num_threads: int) -> None:
    pool = _native.Pool(num_threads) if num_threads else None
    sampler = Sampler(5_000, isa=isa, pool=pool)
    rows = [
        make_row(sampler, sequence_id=row, seed=row, temperature=0.7, top_p=0.9, logprobs=3, repetition_penalty=1.3)
        for row in range(60)
    ]
    logits = np.random.default_rng(4).normal(0, 2, (60, 5_000)).astype(np.float32)
    wanted = sampler.sample(logits, rows)
    with calling_under(word):
        assert sampler.sample(logits, rows) == wanted


@EVERY_ISA
def test_the_sampler_tells_denormal_logits_apart_whatever_the_caller_does(isa: str) -> None:
    sampler = Sampler(40, isa=isa)
    logits = np.zeros((1, 40), np.float32)
    logits[0, [5, 20, 33]] = np.array([1, 3, 2], np.uint32).view(np.float32)
    with calling_under(FLUSHES):
        (token,) = sampler.sample(logits, [make_row(sampler, temperature=0.0)])
    assert token.token_id == 20
