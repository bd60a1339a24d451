"""One model of a server and where it stands: not loaded, loading, loaded, used by so many. Owned by the registry."""

import asyncio
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from twostroke.core.clock import unix_time_s
from twostroke.core.peaks import Peaks
from twostroke.model.facts import ModelFacts
from twostroke.serve.metrics import ModelMetrics
from twostroke.serve.served_model import ServedModel
from twostroke.serve.watchdog import Watchdog


class ModelState(StrEnum):
    NOT_LOADED = "not_loaded"
    LOADING = "loading"
    LOADED = "loaded"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What clients may call a model, the name that is told first; `source` is what the loader hears, never told."""

    names: tuple[str, ...]
    source: str

    @property
    def name(self) -> str:
        return self.names[0]


def served_models(sources: Sequence[str], aliases: Sequence[str] = ()) -> list[ModelEntry]:
    """Entries of models as a user wrote them; aliases are more names of the first."""
    names = [served_name(source) for source in sources]
    more = [tuple(aliases), *[()] * len(sources)]
    return [ModelEntry((name, *own), source) for name, own, source in zip(names, more, sources, strict=False)]


def served_name(source: str) -> str:
    """What clients call a model: its name, or the last part of a path, so that no folder is told."""
    is_path = os.path.exists(os.path.expanduser(source))
    return os.path.basename(os.path.normpath(source)) if is_path else source


class ModelSlot:
    """Facts of one model. Its numbers go on counting from one load to the next."""

    def __init__(self, entry: ModelEntry) -> None:
        self.entry = entry
        self.metrics = ModelMetrics()
        self.watchdog = Watchdog()
        self.model: ServedModel | None = None
        self.peaks: Peaks | None = None  # of the machine, where they are known
        self.memory_bytes = 0  # weights, and all that the KV store may grow to
        self.num_uses = 0
        self.last_use = 0  # when the latest ended, in ends
        self.keep_alive_s = math.inf
        self.expires_s: int | None = None  # in Unix time, where it is idle and will go
        self.facts: ModelFacts | None = None  # what its file said when somebody last asked
        self.loading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def state(self) -> ModelState:
        if self.model is not None:
            return ModelState.LOADED
        return ModelState.NOT_LOADED if self.loading is None else ModelState.LOADING

    @property
    def is_idle(self) -> bool:
        """Loaded, and nobody would miss it."""
        return self.model is not None and not self.num_uses

    @property
    def loaded(self) -> ServedModel:
        assert self.model is not None, f"{self.name} is {self.state}: take it first"
        return self.model

    def set_timer(self, timer: asyncio.TimerHandle) -> None:
        self.clear_timer()
        self._timer, self.expires_s = timer, unix_time_s() + math.ceil(self.keep_alive_s)

    def clear_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.expires_s = None, None
