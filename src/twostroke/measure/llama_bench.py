"""Any llama-bench program as a peer: run once per measurement with one repetition, so that runs alternate.

Works with llama.cpp's and its forks', whose options and reports differ. What a report says of the model, the threads
and the backend must be what was asked. It never trusts a program to have been built for this CPU: the features are
asked of the library the program loads.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twostroke.errors import ConfigError, TwostrokeError
from twostroke.measure.cell import Cell, Kind

MAX_SHOWN = 500  # characters of what it says
ACCELERATORS = ("cuda", "vulkan", "metal", "sycl", "rpc")  # fields of older reports, true where it runs there
NOT_THERE = (None, False, "0")  # rpc is a string
TRIAL = Cell(Kind.PREFILL, prompt=1)


class LlamaBench:
    """One program and model; every measurement is a process of its own."""

    def __init__(self, program: Path, model: Path, *, threads: int) -> None:
        self.name = program.name
        self._program = program
        self._model = model
        self._threads = threads
        options = self._run(["--help"])
        if "--n-prompt" not in options:
            raise ConfigError(f"--vs is {program}: its --help has no --n-prompt, it is no llama-bench")
        self._has_depth = "--n-depth" in options
        self._has_late_decode = re.search(r"^\s*-gp\b", options, re.MULTILINE) is not None
        self.features = features_of(program)
        report = self._report(TRIAL)  # shows that it loads the model, and who it is
        self.version = f"{program}, build {report.get('build_number')} ({report.get('build_commit')})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing runs between measurements."""

    def refusal(self, cell: Cell) -> str | None:
        if cell.batch > 1:
            return f"{self.name} runs one sequence at a time"
        if cell.depth and not self._has_depth and (cell.kind is Kind.PREFILL or not self._has_late_decode):
            return f"{self.name} has no option for the depth of {cell.kind}"
        return None

    def measure(self, cell: Cell) -> float:
        """Seconds of its one repetition; its own warm-up before it is not counted."""
        report = self._report(cell)
        samples = report.get("samples_ns")
        if not isinstance(samples, list) or len(samples) != 1:
            raise TwostrokeError(f"{self.name} reports samples_ns {samples!r}: one repetition was asked for")
        return float(samples[0]) * 1e-9

    def _report(self, cell: Cell) -> Mapping[str, Any]:
        said = self._run(
            ["-m", str(self._model), "-t", str(self._threads), "-r", "1", "-o", "json", *self._load_options(cell)]
        )
        try:
            reports = json.loads(said)
        except ValueError:
            raise TwostrokeError(f"{self.name} answered {said[:MAX_SHOWN]!r}, which is not JSON") from None
        if not isinstance(reports, list) or len(reports) != 1 or not isinstance(reports[0], dict):
            raise TwostrokeError(f"{self.name} answered {said[:MAX_SHOWN]!r}: one test was asked for")
        self._check(reports[0], cell)
        return reports[0]

    def _load_options(self, cell: Cell) -> list[str]:
        if cell.kind is Kind.REQUESTS:
            return ["-p", "0", "-n", "0", "-pg", f"{cell.prompt},{cell.generate}"]
        if cell.depth and not self._has_depth:
            return ["-p", "0", "-n", "0", "-gp", f"{cell.depth},{cell.generate}"]
        depth = ["-d", str(cell.depth)] if cell.depth else []
        return ["-p", str(cell.prompt), "-n", str(cell.generate), *depth]

    def _check(self, report: Mapping[str, Any], cell: Cell) -> None:
        expected: dict[str, object] = {
            "model_filename": str(self._model),
            "n_threads": self._threads,
            "n_prompt": cell.prompt,
            "n_gen": cell.generate,
            "n_depth": cell.depth,
        }
        if cell.depth and not self._has_depth:
            expected |= {"n_prompt": cell.depth, "n_depth": 0}
        for field, value in expected.items():
            if report.get(field, 0) != value:
                raise TwostrokeError(f"{self.name} reports {field} {report.get(field)!r}, asked for was {value!r}")
        elsewhere = [name for name in ACCELERATORS if report.get(name) not in NOT_THERE]
        if elsewhere or report.get("backends", "CPU") not in ("CPU", "BLAS,CPU", "BLAS"):
            raise TwostrokeError(
                f"{self.name} runs on {', '.join(elsewhere) or report['backends']}: "
                "comparisons are of CPUs, build it without"
            )

    def _run(self, arguments: Sequence[str]) -> str:
        try:
            done = subprocess.run(
                [self._program, *arguments],
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except OSError as error:
            raise ConfigError(f"--vs is {self._program}: it cannot be run: {error.strerror}") from None
        if done.returncode != 0:
            words = done.stderr.strip()[-MAX_SHOWN:] or "it said nothing"
            raise TwostrokeError(f"{self.name} ended with status {done.returncode}: {words}")
        return done.stdout


def features_of(program: Path) -> str:
    """What the libllama this program loads says of itself; empty where it is built in, or cannot be asked."""
    try:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
    found = re.search(r"libllama\.\S+ => (\S+)", listed)
    if found is None:
        return ""
    command = [sys.executable, "-m", "twostroke.measure.llama_features", found.group(1)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
