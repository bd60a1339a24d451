"""Types of the native extension; the definitions are in native/bindings_*.cpp."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

@final
class Weight:
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    def packed_panel(self, panel: int) -> npt.NDArray[np.uint8]: ...
    def unpack_row(self, row: int) -> npt.NDArray[np.float32]: ...

@final
class WeightArena:
    """Memory for the packed matrices of a model."""

    def __init__(self, num_bytes: int) -> None: ...
    @staticmethod
    def map(file: int, offset: int, num_bytes: int) -> WeightArena: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def is_mapped(self) -> bool: ...
    @property
    def huge_bytes(self) -> int: ...
    @property
    def data(self) -> npt.NDArray[np.uint8]: ...
    def checksums(self, pool: Pool) -> npt.NDArray[np.uint64]: ...
    def weight(self, tensor_type: str, rows: int, cols: int, offset: int) -> Weight: ...

def checksum(data: npt.NDArray[np.uint8]) -> int: ...
def packed_bytes(tensor_type: str, rows: int, cols: int) -> int: ...
def pack_weight(tensor_type: str, data: npt.NDArray[np.uint8], rows: int, cols: int) -> Weight: ...
def linear(weight: Weight, x: npt.NDArray[np.float32], isa: str) -> npt.NDArray[np.float32]: ...
def linear_panel(
    tensor_type: str,
    panel: npt.NDArray[np.uint8],
    cols: int,
    input: tuple[npt.NDArray[Any], ...],
    out: npt.NDArray[np.float32],
    num_rows: int,
    isa: str,
) -> None: ...
def quantise_a8(
    x: npt.NDArray[np.float32], isa: str
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.int32]]: ...
def to_bf16(x: npt.NDArray[np.float32], isa: str) -> npt.NDArray[np.uint16]: ...
def usable_isas() -> list[str]: ...

@final
class Pool:
    def __init__(self, num_threads: int, num_past_runs: int = 0) -> None: ...
    @property
    def num_threads(self) -> int: ...
    def pack_weight(
        self,
        tensor_type: str,
        data: npt.NDArray[np.uint8],
        rows: int,
        cols: int,
        arena: WeightArena | None = None,
        offset: int = 0,
    ) -> Weight: ...
    def count_shares(
        self, num_items: int, num_rounds: int, throwing_worker: int, num_workers: int = 0
    ) -> list[int]: ...
    def find_workers(self, num_workers: int) -> list[int]: ...

@final
class KVStore:
    def __init__(self, precision: str, block_size: int, groups: list[tuple[int, int, int, int]]) -> None: ...
    def block_bytes(self, group: int) -> int: ...
    def copy_block(self, group: int, source: int, target: int) -> None: ...

@final
class Program:
    def __init__(
        self,
        pool: Pool,
        store: KVStore,
        isa: str,
        limits: tuple[int, int, int, int],
        values: list[tuple[int, int, int, int]],
        rope_tables: list[tuple[list[float], float]],
        output_width: int = 0,
    ) -> None: ...
    def add(
        self,
        *,
        op: str,
        name: str,
        inputs: list[int],
        outputs: list[int],
        weights: list[Weight],
        vectors: list[npt.NDArray[np.float32]],
        ints: list[int],
        floats: list[float],
    ) -> None: ...
    def finish(self, groups: list[tuple[int, int]]) -> None: ...
    def step(
        self,
        token_ids: npt.NDArray[np.int32],
        row_starts: npt.NDArray[np.int32],
        row_positions: npt.NDArray[np.int32],
        block_tables: list[npt.NDArray[np.int32]],
        selected: npt.NDArray[np.int32],
        logits: npt.NDArray[np.float32],
        wanted: npt.NDArray[np.uint32] | None = None,
        num_workers: int = 0,
        candidates: Candidates | None = None,
    ) -> str: ...
    @property
    def brings_candidates(self) -> bool: ...
    def first_reads(self, worker: int) -> list[list[tuple[int, int]]]: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def num_handovers(self) -> int: ...

def row_rmsnorm(
    isa: str,
    x: npt.NDArray[np.float32],
    weight: npt.NDArray[np.float32],
    eps: float,
    out: npt.NDArray[np.float32],
) -> None: ...
def row_rope(
    isa: str,
    x: npt.NDArray[np.float32],
    cos: npt.NDArray[np.float32],
    sin: npt.NDArray[np.float32],
    pairs: bool,
    out: npt.NDArray[np.float32],
) -> None: ...
def row_glu(
    isa: str, gelu: bool, gate: npt.NDArray[np.float32], up: npt.NDArray[np.float32], out: npt.NDArray[np.float32]
) -> None: ...
def row_add(isa: str, a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None: ...
def row_scale(isa: str, x: npt.NDArray[np.float32], factor: float, out: npt.NDArray[np.float32]) -> None: ...
def row_softcap(isa: str, x: npt.NDArray[np.float32], cap: float, out: npt.NDArray[np.float32]) -> None: ...

@final
class Probe:
    def __init__(self, isa: str, num_threads: int, num_bytes: int) -> None: ...
    def compute(self, unit: str, rounds: int) -> int: ...
    def read(self) -> int: ...

@final
class LinearProbe:
    """One linear on all threads of a pool of its own, ready to run over and over."""

    def __init__(self, isa: str, num_threads: int, weight: Weight, x: npt.NDArray[np.float32]) -> None: ...
    def run(self) -> int: ...

def count_cycles(rounds: int) -> int: ...
def end_of_strings(data: npt.NDArray[np.uint8], start: int, length: int) -> tuple[int, int]: ...
def read_strings(data: npt.NDArray[np.uint8], start: int, length: int) -> list[str]: ...

@final
class BPE:
    """A byte-pair model; safe to share between threads."""

    def __init__(
        self,
        pieces: list[str],
        rules: npt.NDArray[np.int32],
        *,
        spelling: Sequence[bytes] = (),
        prefix: str = "",
        unk_id: int | None = None,
        byte_fallback: bool = False,
        fuse_unk: bool = False,
        ignore_merges: bool = False,
    ) -> None: ...
    def encode(self, pieces: list[str]) -> list[int]: ...
    def id_of(self, piece: str) -> int: ...

@final
class PatternVocabulary:
    """A vocabulary for patterns; read once, shared by all."""

    def __init__(self, tokens: Sequence[bytes], *, end_ids: Sequence[int]) -> None: ...

@final
class Pattern:
    """A pattern over a vocabulary; answers that follow it share its masks."""

    def __init__(
        self,
        vocabulary: PatternVocabulary,
        *,
        positions: npt.NDArray[np.int32],
        first_stages: Sequence[int],
        steps: npt.NDArray[np.int32],
        labels: npt.NDArray[np.bool_],
        few_nodes: int,
    ) -> None: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def num_walked(self) -> int: ...

@final
class PatternPlace:
    """Where one answer is in a pattern."""

    def __init__(self, pattern: Pattern) -> None: ...
    def mask(self) -> bytes: ...
    @property
    def is_forced(self) -> bool: ...
    def advance(self, token_id: int) -> None: ...
    def copy(self) -> PatternPlace: ...

@final
class SamplingState:
    """What the sampler knows of one sequence: its wishes, the key of its noise and the tokens so far."""

    position: int
    def __init__(
        self,
        prompt_token_ids: Sequence[int],
        *,
        seed: int,
        choice_index: int,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repetition_penalty: float,
        presence_penalty: float,
        frequency_penalty: float,
        num_logprobs: int | None,
        logit_bias: Sequence[tuple[int, float]] = (),
        late_ids: Sequence[int] = (),
        num_late: int = 0,
        penalty_last_n: int = -1,
        typical_p: float = 1.0,
        top_n_sigma: float = 0.0,
        dynatemp_range: float = 0.0,
        dynatemp_exponent: float = 1.0,
        xtc_probability: float = 0.0,
        xtc_threshold: float = 0.1,
        mirostat_tau: float = 0.0,
        mirostat_eta: float = 0.1,
        dry_multiplier: float = 0.0,
        dry_base: float = 1.75,
        dry_allowed_length: int = 2,
        dry_penalty_last_n: int = -1,
        dry_breakers: Sequence[Sequence[int]] = (),
        no_repeat_ngram_size: int = 0,
        bad_words: Sequence[Sequence[int]] = (),
        order: Sequence[str] = (),
    ) -> None: ...
    @property
    def surprise_limit(self) -> float: ...
    def append(self, token_id: int) -> None: ...
    def allow(self, words: npt.NDArray[np.uint32]) -> None: ...

@final
class Candidates:
    """What a head hands on of the logits of a step's rows: panels of 32 that tokens are chosen from."""

    def __init__(self, vocab_size: int, *, num_threads: int) -> None: ...
    def plan(self, states: Sequence[SamplingState | None]) -> int: ...
    def take(
        self, tile: npt.NDArray[np.float32], *, panel: int, first_row: int = 0, worker: int = 0, isa: str
    ) -> None: ...
    def wants_all(self, row: int) -> bool: ...
    def top(self, row: int) -> float: ...
    def found(self, row: int) -> list[tuple[int, list[float]]]: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_whole(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

@final
class Sampler:
    def __init__(self, vocab_size: int, *, isa: str, pool: Pool | None) -> None: ...
    def sample(
        self,
        logits: npt.NDArray[np.float32],
        states: list[SamplingState],
        at: Sequence[int] | None = None,
        candidates: Candidates | None = None,
    ) -> tuple[list[int], list[tuple[int, float]], list[tuple[int, float, list[tuple[int, float]]]]]: ...

def log_of(x: float) -> float: ...
def gumbel(word: int) -> float: ...
