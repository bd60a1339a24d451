"""llama.cpp as a peer in a benchmark: a program of its own, driven through its low-level C API as llama-bench does.

No sampling, and no Python inside the timed loop other than filling a batch and the call itself. Needs the extra
`bench` (llama-cpp-python).
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from twostroke.core.clock import WallClock
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.peer_lines import answer

BATCH_TOKENS = 2048  # llama-bench's default n_batch; n_ubatch stays at its default of 512


class Batch:
    """A llama_batch over arrays of ours: filled at once, not token by token."""

    def __init__(self, size: int, *, vocab_size: int) -> None:
        self._random = np.random.default_rng(1)
        self._vocab_size = vocab_size
        self._tokens = np.zeros(size, np.int32)
        self._positions = np.zeros(size, np.int32)
        self._sequences = np.zeros(size, np.int32)
        self._wanted = np.zeros(size, np.int8)
        self._counts = np.ones(size, np.int32)
        self._pointers = self._sequences.ctypes.data + self._sequences.itemsize * np.arange(size, dtype=np.uint64)
        ids, flags = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
        self.struct = llama_cpp.llama_batch()
        self.struct.token = pointer_to(self._tokens, ids)
        self.struct.pos = pointer_to(self._positions, ids)
        self.struct.n_seq_id = pointer_to(self._counts, ids)
        self.struct.seq_id = pointer_to(self._pointers, ctypes.POINTER(ids))
        self.struct.logits = pointer_to(self._wanted, flags)

    def fill(self, positions: npt.NDArray[np.int32], sequences: npt.NDArray[np.int32], *, last: int) -> None:
        """Random tokens there; logits are wanted where the position is `last`."""
        count = len(positions)
        self.struct.n_tokens = count
        self._tokens[:count] = self._random.integers(self._vocab_size, size=count)
        self._positions[:count] = positions
        self._sequences[:count] = sequences
        self._wanted[:count] = positions == last


class Peer:
    """One loaded model; a context for the sizes of the latest cell, as llama-bench makes one per test."""

    version: str = llama_cpp.__version__

    def __init__(self, path: str, *, threads: int) -> None:
        llama_cpp.llama_backend_init()
        self.features: str = llama_cpp.llama_print_system_info().decode()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = Batch(BATCH_TOKENS, vocab_size=self._vocab_size)
        self._threads = threads
        self._cell: Cell | None = None
        self._context: Any = None
        self._behind: list[ctypes.Array[ctypes.c_uint8]] = []  # states of the sequences at the cell's depth
        self._clock = WallClock()

    def measure(self, cell: Cell) -> float:
        """Seconds: a prompt in batches of 2048, or steps of one token of every sequence, or one after the other."""
        if cell != self._cell:
            self._open_context(cell)
        self._go_to_depth(cell)
        start_s = self._clock.now()
        if cell.prompt:
            self._prefill(cell.prompt, start=cell.depth, sequences=range(cell.batch))
        # the prompt's logits give a request its first token
        num_steps = cell.generate - (cell.kind is Kind.REQUESTS)
        for step in range(num_steps):
            self._decode(cell.depth + cell.prompt + step, batch=cell.batch)
        return self._clock.now() - start_s

    def _open_context(self, cell: Cell) -> None:
        if self._context is not None:
            llama_cpp.llama_free(self._context)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = (cell.depth + cell.prompt + cell.generate) * cell.batch
        params.n_batch = BATCH_TOKENS
        params.n_seq_max = cell.batch
        params.n_threads = params.n_threads_batch = self._threads
        params.swa_full = False
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise SystemExit(f"llama.cpp cannot make a context of {params.n_ctx} tokens")
        self._cell, self._behind = cell, []

    def _go_to_depth(self, cell: Cell) -> None:
        """What lies behind the timed part is computed once per cell and restored later, as llama-bench does."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)
        for sequence, state in enumerate(self._behind):
            if llama_cpp.llama_state_seq_set_data(self._context, state, len(state), sequence) == 0:
                raise SystemExit("llama.cpp cannot restore the state of a sequence")
        if cell.depth and not self._behind:
            for sequence in range(cell.batch):
                self._prefill(cell.depth, start=0, sequences=range(sequence, sequence + 1))
            self._behind = [self._state_of(sequence) for sequence in range(cell.batch)]

    def _state_of(self, sequence: int) -> ctypes.Array[ctypes.c_uint8]:
        size = llama_cpp.llama_state_seq_get_size(self._context, sequence)
        state: ctypes.Array[ctypes.c_uint8] = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self._context, state, size, sequence)
        return state

    def _prefill(self, count: int, *, start: int, sequences: Sequence[int]) -> None:
        positions = np.tile(np.arange(start, start + count, dtype=np.int32), len(sequences))
        owners = np.repeat(np.array(sequences, np.int32), count)
        for at in range(0, len(positions), BATCH_TOKENS):
            part = slice(at, at + BATCH_TOKENS)
            self._run(positions[part], owners[part], last=start + count - 1)

    def _decode(self, position: int, *, batch: int) -> None:
        self._run(np.full(batch, position, np.int32), np.arange(batch, dtype=np.int32), last=position)

    def _run(self, positions: npt.NDArray[np.int32], sequences: npt.NDArray[np.int32], *, last: int) -> None:
        self._batch.fill(positions, sequences, last=last)
        status = llama_cpp.llama_decode(self._context, self._batch.struct)
        if status != 0:
            raise SystemExit(f"llama_decode returned {status}")
        llama_cpp.llama_synchronize(self._context)


def pointer_to(values: npt.NDArray[Any], kind: Any) -> Any:
    """The array's memory as a pointer of ctypes; the array must outlive it."""
    return values.ctypes.data_as(kind)


def quiet_log() -> Any:
    """A log callback that says nothing; the caller keeps it alive."""

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def nothing(level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
        return None

    llama_cpp.llama_log_set(nothing, ctypes.c_void_p(0))
    return nothing


if __name__ == "__main__":
    kept = quiet_log()
    answer(Peer)
