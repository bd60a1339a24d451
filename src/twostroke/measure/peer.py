"""Another engine in a process of its own, asked for one measurement at a time. It sleeps while we run."""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twostroke.errors import ConfigError, TwostrokeError

LAST_WORDS_S = 5.0  # for a peer that closed its output to say why
MAX_SHOWN = 500  # characters of what a peer says
PEERS = {"llama.cpp": ("llama_cpp", "twostroke.measure.llama_cpp_peer")}  # name -> (module it needs, program)


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds of one measurement: all prompts, then all decode steps."""

    prefill_s: float
    decode_s: float


class PeerProcess:
    """Speaks JSON lines with a peer program; a context manager that ends it."""

    def __init__(
        self,
        name: str,
        model: Path,
        *,
        threads: int,
        context: int,
        sequences: int,
        peers: Mapping[str, tuple[str, str]] = PEERS,
    ) -> None:
        module, program = _find(name, peers)
        self.name = name
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - close() ends it. A file, as nobody empties a pipe meanwhile
        self._process = subprocess.Popen(
            [sys.executable, "-m", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
            encoding="utf-8",
        )
        try:
            about = self._ask(path=str(model), threads=threads, context=context, sequences=sequences)
            self.version = f"{module} {self._value(about, 'version')}"
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

    def measure(self, *, prompt: int, generate: int, depth: int, batch: int) -> PhaseTimes:
        """One measurement. Raises TwostrokeError with the peer's last words if it ended."""
        answer = self._ask(prompt=prompt, generate=generate, depth=depth, batch=batch)
        return PhaseTimes(prefill_s=self._value(answer, "prefill_s"), decode_s=self._value(answer, "decode_s"))

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


def _find(name: str, peers: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    if name not in peers:
        raise ConfigError(f"--vs is {name!r}: known peers are {', '.join(peers)}")
    module, program = peers[name]
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"--vs {name} needs the module {module}: in the clone of twostroke, pip install '.[bench]'")
    return module, program
