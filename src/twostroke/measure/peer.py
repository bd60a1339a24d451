"""Another engine, asked for one measurement at a time. It sleeps while we run.

`open_peer` knows them: programs of ours that drive an installed module through lines of JSON, and every other
program as a llama-bench.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from twostroke.errors import ConfigError, TwostrokeError
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.llama_bench import LlamaBench

LAST_WORDS_S = 5.0  # for a peer that closed its output to say why
MAX_SHOWN = 500  # characters of what a peer says


class Peer(AbstractContextManager["Peer"], Protocol):
    """What a comparison asks of the other engine."""

    name: str
    version: str
    features: str  # of the CPU, in its own words; empty where it does not say

    def refusal(self, cell: Cell) -> str | None:
        """Why it cannot time this cell; None where it can."""

    def measure(self, cell: Cell) -> float:
        """Seconds. Raises TwostrokeError with the peer's last words if it ended."""


@dataclass(frozen=True, slots=True)
class PeerProgram:
    """A program of ours that speaks for a module, and what that module cannot do."""

    module: str
    program: str
    refusal: Callable[[Cell], str | None]


def _openvino_refusal(cell: Cell) -> str | None:
    if cell.kind is Kind.PREFILL and cell.depth:
        return "openvino does not tell the time of a prompt behind another"
    if cell.kind is not Kind.REQUESTS and cell.batch > 1:
        return "openvino does not tell the phases of a batch apart"
    return None


PEERS = {
    "llama.cpp": PeerProgram("llama_cpp", "twostroke.measure.llama_cpp_peer", lambda cell: None),
    "openvino": PeerProgram("openvino_genai", "twostroke.measure.openvino_peer", _openvino_refusal),
}


def open_peer(name: str, model: Path, *, threads: int) -> Peer:
    """A known peer, or a llama-bench at this path. Raises ConfigError where there is neither."""
    if name in PEERS:
        return PeerProcess(name, model, threads=threads)
    program = shutil.which(name)
    if program is None:
        raise ConfigError(f"--vs is {name!r}: known peers are {', '.join(PEERS)} and every path to a llama-bench")
    return LlamaBench(Path(program), model, threads=threads)


class PeerProcess:
    """Speaks JSON lines with a peer program; a context manager that ends it."""

    def __init__(self, name: str, model: Path, *, threads: int, peers: Mapping[str, PeerProgram] = PEERS) -> None:
        peer = peers[name]
        if importlib.util.find_spec(peer.module) is None:
            raise ConfigError(
                f"--vs {name} needs the module {peer.module}: in the clone of twostroke, pip install '.[bench]'"
            )
        self.name = name
        self.refusal = peer.refusal
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - close() ends it. A file, as nobody empties a pipe meanwhile
        self._process = subprocess.Popen(
            [sys.executable, "-m", peer.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
            encoding="utf-8",
        )
        try:
            about = self._ask(path=str(model), threads=threads)
            self.version = f"{peer.module} {self._value(about, 'version')}"
            self.features = str(self._value(about, "features")).strip()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program, whatever it does. May be called twice."""
        self._process.kill()
        self._process.communicate()
        self._words.close()

    def measure(self, cell: Cell) -> float:
        """Seconds of one measurement. Raises TwostrokeError with the peer's last words if it ended."""
        return float(self._value(self._ask(**asdict(cell)), "seconds"))

    def _value(self, answer: Mapping[str, Any], key: str) -> Any:
        if key not in answer:
            raise TwostrokeError(f"{self.name} answered {str(answer)[:MAX_SHOWN]}, which has no {key!r}")
        return answer[key]

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it ended: the missing answer below tells why
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise TwostrokeError(f"{self.name} ended: {self._last_words() or 'it said nothing'}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise TwostrokeError(f"{self.name} answered {line[:MAX_SHOWN]!r}, which is not JSON") from None
        if not isinstance(answer, dict):
            raise TwostrokeError(f"{self.name} answered {line[:MAX_SHOWN]!r}, which is no object")
        return answer

    def _last_words(self) -> str:
        try:
            self._process.wait(timeout=LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._words.seek(0)
        return self._words.read().decode(errors="replace").strip()[-MAX_SHOWN:]
