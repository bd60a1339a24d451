"""Another engine in a process of its own, asked for one measurement at a time. It sleeps while we run."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twostroke.errors import ConfigError, TwostrokeError

PEERS = {"llama.cpp": ("llama_cpp", "twostroke.measure.llama_cpp_peer")}  # name -> (module it needs, program)


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds of one measurement: all prompts, then all decode steps."""

    prefill_s: float
    decode_s: float


class PeerProcess:
    """Speaks JSON lines with a peer program; a context manager that ends it."""

    def __init__(self, name: str, model: Path, *, threads: int, context: int, sequences: int) -> None:
        module, program = _find(name)
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        about = self._ask(path=str(model), threads=threads, context=context, sequences=sequences)
        self.version = f"{module} {about['version']}"
        self.features = str(about["features"]).strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def measure(self, *, prompt: int, generate: int, depth: int, batch: int) -> PhaseTimes:
        """One measurement. Raises TwostrokeError with the peer's last words if it ended."""
        answer = self._ask(prompt=prompt, generate=generate, depth=depth, batch=batch)
        return PhaseTimes(prefill_s=answer["prefill_s"], decode_s=answer["decode_s"])

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended: the missing answer below tells why
        line = self._process.stdout.readline()
        if not line:
            _, words = self._process.communicate()
            raise TwostrokeError(f"{self.name} ended: {words.strip()[-500:] or 'it said nothing'}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _find(name: str) -> tuple[str, str]:
    if name not in PEERS:
        raise ConfigError(f"--vs is {name!r}: known peers are {', '.join(PEERS)}")
    module, program = PEERS[name]
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"--vs {name} needs the module {module}: install it with pip install 'twostroke[bench]'")
    return module, program
