"""llama.cpp as a peer in a benchmark: a process of its own, driven through its low-level C API as llama-bench does.

Reads one JSON command a line from standard input and answers with one JSON line. No sampling and no
Python inside the timed loop other than the call itself. Needs the extra `bench` (llama-cpp-python).
"""

import ctypes
import json
import os
import random
import sys
from typing import Any, TextIO

import llama_cpp

from twostroke.core.clock import WallClock

BATCH_TOKENS = 2048  # llama-bench's default n_batch; n_ubatch stays at its default of 512


class Peer:
    """One loaded model and context."""

    def __init__(self, path: str, *, threads: int, context: int, sequences: int) -> None:
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context * sequences
        params.n_batch = min(BATCH_TOKENS, context * sequences)
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise SystemExit(f"llama.cpp cannot make a context of {params.n_ctx} tokens")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(params.n_batch, 0, 1)
        self._batch_tokens = params.n_batch
        self._random = random.Random(1)
        self._clock = WallClock()

    def measure(self, *, prompt: int, generate: int, depth: int, batch: int) -> dict[str, float]:
        """Seconds for `prompt` tokens behind `depth`, then for `generate` steps behind depth alone, as llama-bench."""
        prefill_s = decode_s = 0.0
        if prompt:
            self._clear_to(depth, batch)
            start_s = self._clock.now()
            self._prefill(prompt, start=depth, batch=batch)
            prefill_s = self._clock.now() - start_s
        if generate:
            self._clear_to(depth, batch)
            start_s = self._clock.now()
            for step in range(generate):
                self._decode(depth + step, batch)
            decode_s = self._clock.now() - start_s
        return {"prefill_s": prefill_s, "decode_s": decode_s}

    def _clear_to(self, depth: int, batch: int) -> None:
        llama_cpp.llama_memory_clear(self._memory, True)
        if depth:
            self._prefill(depth, start=0, batch=batch)

    def _prefill(self, count: int, *, start: int, batch: int) -> None:
        for sequence in range(batch):
            for at in range(0, count, self._batch_tokens):
                size = min(self._batch_tokens, count - at)
                positions = range(start + at, start + at + size)
                self._run([(position, sequence, at + i == count - 1) for i, position in enumerate(positions)])

    def _decode(self, position: int, batch: int) -> None:
        self._run([(position, sequence, True) for sequence in range(batch)])

    def _run(self, entries: list[tuple[int, int, bool]]) -> None:
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, (position, sequence, wants_logits) in enumerate(entries):
            batch.token[i] = self._random.randrange(self._vocab_size)
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wants_logits
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            raise SystemExit(f"llama_decode returned {status}")
        llama_cpp.llama_synchronize(self._context)


def quiet_log() -> Any:
    """A log callback that says nothing; the caller keeps it alive."""

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def nothing(level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
        return None

    llama_cpp.llama_log_set(nothing, ctypes.c_void_p(0))
    return nothing


def main(commands: TextIO, answers: TextIO) -> None:
    """The first line loads (path, threads, context, sequences), every further one measures; end of input ends."""
    kept = quiet_log()
    peer = Peer(**json.loads(commands.readline()))
    features = llama_cpp.llama_print_system_info().decode()
    print(json.dumps({"version": llama_cpp.__version__, "features": features}), file=answers, flush=True)
    for line in commands:
        print(json.dumps(peer.measure(**json.loads(line))), file=answers, flush=True)
    del kept


if __name__ == "__main__":
    # whatever the library prints must not mix with the answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.stdin, answers)
