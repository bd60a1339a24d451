"""A model file whose answers are known, and the program as a process of its own."""

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import twostroke
from tests.cases.puppet import EOS, build_puppet, byte_token

CONTEXT_KEY = b"llama.context_length" + struct.pack("<I", 4)  # 4: a value of type u32


ANSWER = "The sky,漢."


def make_chain(path: Path, *, prompt_end: str, answer: bytes, loops: bool = False, context: int = 1024) -> Path:
    """A model that answers any prompt ending in `prompt_end` with these bytes, each used once; `loops` never ends."""
    assert len(set(answer)) == len(answer), "the next token depends on the last one alone"
    tokens = [byte_token(byte) for byte in answer]
    table = dict(zip([byte_token(ord(prompt_end)), *tokens], [*tokens, tokens[0] if loops else EOS], strict=True))
    file = build_puppet(table).file
    assert file.count(CONTEXT_KEY) == 1
    start = file.index(CONTEXT_KEY) + len(CONTEXT_KEY)
    path.write_bytes(file[:start] + struct.pack("<I", context) + file[start + 4 :])
    return path


def make_answering(folder: Path) -> str:
    """Answers every prompt that ends in ? with ANSWER."""
    return str(make_chain(folder / "chain.gguf", prompt_end="?", answer=ANSWER.encode()))


def make_endless(folder: Path) -> str:
    """Answers xyxyxy..., for a million tokens of context."""
    return str(make_chain(folder / "endless.gguf", prompt_end="?", answer=b"xy", loops=True, context=1 << 20))


def environment(home: Path, **changes: str) -> dict[str, str]:
    """Ours without settings that would change what is said, plus `changes`."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS")}
    kept = {name: value for name, value in kept.items() if not name.startswith(("LC_", "LANG", "TWOSTROKE_"))}
    source = str(Path(twostroke.__file__).parent.parent)
    return kept | {"TWOSTROKE_HOME": str(home), "TWOSTROKE_THREADS": "1", "PYTHONPATH": source} | changes


@contextmanager
def running(
    arguments: Sequence[str | bytes],
    *,
    env: dict[str, str],
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.PIPE,
    stderr: IO[bytes] | int = subprocess.PIPE,
) -> Iterator[subprocess.Popen[bytes]]:
    """The program as a shell with job control starts it: a process group of its own. It ends with the block."""
    program = [sys.executable, "-m", "twostroke"]
    with subprocess.Popen(
        [*program, *arguments], env=env, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=0, process_group=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(
    arguments: Sequence[str | bytes], *, env: dict[str, str], data: bytes | None = None
) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of the program with `data` piped in."""
    with running(arguments, env=env, stdin=subprocess.DEVNULL if data is None else subprocess.PIPE) as process:
        out, err = process.communicate(data, timeout=60)
    return process.returncode, out, err


def press_ctrl_c_once_caught(*, default: Any = None, is_time: Callable[[], bool] = lambda: True) -> threading.Thread:
    """Ctrl-C as soon as another handler than `default` (that of now) waits for it and `is_time`, however late."""
    default = default or signal.getsignal(signal.SIGINT)

    def press() -> None:
        while signal.getsignal(signal.SIGINT) is default or not is_time():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    return thread
