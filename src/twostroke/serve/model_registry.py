"""The models behind one server: which there are, which are loaded, who uses them, when they go.

Lives on one event loop. A model is loaded at its first use: all that want it wait for that one load, other models
go on answering. It goes once it was idle for its keep-alive time, or when another one needs its memory, the least
recently used first; never while it is used. Names of requests are looked up, never opened.
"""

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from twostroke.core.clock import WallClock
from twostroke.core.peaks import Peaks
from twostroke.errors import CapacityError, ConfigError
from twostroke.footprint import Footprint
from twostroke.model.facts import ModelFacts
from twostroke.params import SamplingParams
from twostroke.serve.keep_alive import FOREVER_S
from twostroke.serve.load_errors import as_load_error, no_room
from twostroke.serve.model_slot import ModelEntry, ModelSlot
from twostroke.serve.served_model import ServedModel

logger = logging.getLogger("twostroke")


class Loader(Protocol):
    """From a model's source to the model, on a thread beside the event loop."""

    def footprint(self, source: str) -> Footprint:
        """Least memory it takes. Raises TwostrokeError."""

    def load(self, source: str, *, memory_bytes: int) -> ServedModel:
        """Raises TwostrokeError."""

    def peaks(self, model: ServedModel) -> Peaks | None:
        """What the machine can do for it, where that is known."""

    def default_params(self, source: str) -> SamplingParams:
        """What an absent field means, known without loading. Raises TwostrokeError."""

    def facts(self, source: str, *, with_arrays: bool = False) -> ModelFacts:
        """What the model's file says, read without loading. Raises TwostrokeError."""


class PulledNames(Protocol):
    """Models that are on this machine beside those the server was started with."""

    def names(self) -> Sequence[str]: ...
    def find(self, name: str) -> ModelEntry | None: ...


class ModelUse:
    """A model that stays loaded until `end`, which may be called twice; `load_s` is how long it was waited for."""

    def __init__(self, slot: ModelSlot, *, load_s: float, on_end: Callable[[ModelSlot], None]) -> None:
        self.slot = slot
        self.model = slot.loaded
        self.load_s = load_s
        self._on_end: Callable[[ModelSlot], None] | None = on_end

    def end(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self.slot)


class ModelRegistry:
    """`entries` are served by name, the first where no name is given; `pulled` are found beside them.

    `on_change` is called beside the event loop once a model was loaded or let go, but for the first, loaded before.
    """

    def __init__(
        self,
        entries: Sequence[ModelEntry],
        *,
        loader: Loader,
        free_bytes: Callable[[], int],
        keep_alive_s: float = FOREVER_S,
        pulled: PulledNames | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._slots = [ModelSlot(entry) for entry in entries]
        self._by_name = {name: slot for slot in self._slots for name in slot.entry.names}
        self._found: dict[str, ModelSlot] = {}  # of those pulled
        _refuse_same_names(entries)
        self._loader = loader
        self._pulled = pulled
        self._on_change = on_change
        self._keep_alive_s = keep_alive_s
        self._free_bytes_now = free_bytes
        self._budget_bytes = free_bytes()
        self._clock = WallClock()
        self._ends = itertools.count(1)
        self._latest_turn: asyncio.Task[None] | None = None

    # Names

    @property
    def first(self) -> ModelSlot:
        return self._slots[0]

    @property
    def slots(self) -> tuple[ModelSlot, ...]:
        """The models the server was started with, then others that were asked for."""
        return (*self._slots, *self._found.values())

    def names(self) -> list[str]:
        """All that a request may ask for. Looks into folders: not for the event loop."""
        known = [name for slot in self._slots for name in slot.entry.names]
        pulled = [] if self._pulled is None else self._pulled.names()
        return list(dict.fromkeys([*known, *pulled]))

    def find(self, name: str) -> ModelSlot | None:
        """The model of that name. Looks into folders: not for the event loop."""
        slot = self._by_name.get(name)
        if slot is not None or self._pulled is None:
            return slot
        entry = self._pulled.find(name)
        if entry is None:
            return None
        return self._by_name.get(entry.name) or self._found.setdefault(entry.name, ModelSlot(entry))

    def default_params(self, slot: ModelSlot) -> SamplingParams:
        """What an absent field means. May read files: not for the event loop."""
        model = slot.model
        return self._loader.default_params(slot.entry.source) if model is None else model.default_params

    def facts(self, slot: ModelSlot, *, with_arrays: bool = False) -> ModelFacts:
        """What the model's file says. Reads files: not for the event loop. Raises TwostrokeError or OSError."""
        if with_arrays:
            return self._loader.facts(slot.entry.source, with_arrays=True)
        if slot.facts is None or not slot.facts.is_current:
            slot.facts = self._loader.facts(slot.entry.source)
        return slot.facts

    def is_pulled(self, slot: ModelSlot) -> bool:
        """Whether it is served because it is on this machine, not because the server was started with it."""
        return slot not in self._slots

    # Uses

    async def take(self, slot: ModelSlot, *, keep_alive_s: float | None = None) -> ModelUse:
        """Load it if it is not, and keep it until the use ends; `keep_alive_s` holds from then on.

        Raises ApiError where it cannot be loaded: the next request tries again.
        """
        start_s, waits = self._clock.now(), slot.model is None
        slot.num_uses += 1
        slot.clear_timer()
        try:
            if waits:
                await asyncio.shield(self._loading(slot))
        except BaseException:  # cancelled while it waited too
            self._end_use(slot)
            raise
        if keep_alive_s is not None:
            slot.keep_alive_s = keep_alive_s
        return ModelUse(slot, load_s=self._clock.now() - start_s if waits else 0.0, on_end=self._end_use)

    def _loading(self, slot: ModelSlot) -> "asyncio.Task[None]":
        if slot.loading is None:
            slot.keep_alive_s = self._keep_alive_s
            slot.loading = self._in_turn(partial(self._load, slot))
        return slot.loading

    @contextlib.asynccontextmanager
    async def using(self, slot: ModelSlot, *, keep_alive_s: float | None = None) -> AsyncIterator[ServedModel]:
        """The same for a block."""
        use = await self.take(slot, keep_alive_s=keep_alive_s)
        try:
            yield use.model
        finally:
            use.end()

    async def unload(self, slot: ModelSlot) -> None:
        """Let it go: now where it is idle, else with the end of its last use."""
        slot.keep_alive_s = 0.0
        await self._in_turn(partial(self._unload_if_idle, slot))

    def _end_use(self, slot: ModelSlot) -> None:
        slot.num_uses -= 1
        if slot.is_idle:
            self._rest(slot)

    def _rest(self, slot: ModelSlot) -> None:
        """Nobody uses it: its keep-alive time begins."""
        slot.last_use = next(self._ends)
        if slot.keep_alive_s == 0:
            self._expire(slot)
        elif math.isfinite(slot.keep_alive_s):
            slot.set_timer(asyncio.get_running_loop().call_later(slot.keep_alive_s, self._expire, slot))

    def _expire(self, slot: ModelSlot) -> None:
        self._in_turn(partial(self._unload_if_idle, slot))

    # Loads and unloads, one after another

    def load_first(self) -> None:
        """The first model, before there is an event loop. Raises what the loader raises."""
        source = self.first.entry.source
        need = self._loader.footprint(source)
        if need.total_bytes > self._budget_bytes:
            raise CapacityError(no_room(self.first.name, need, free_bytes=self._budget_bytes, others=()))
        self.first.keep_alive_s = self._keep_alive_s
        self._open(self.first, need, self._budget_bytes)

    def begin_keep_alive(self) -> None:
        """Of the first model, which may never be used; called once there is an event loop."""
        if self.first.is_idle:
            self._rest(self.first)

    def close(self) -> None:
        """Free every model; called after the event loop has ended."""
        for slot in self.slots:
            model, slot.model = slot.model, None
            if model is not None:
                model.close()

    def _in_turn(self, work: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
        """Do it after what was asked before: two at once would count on the same memory."""
        self._latest_turn = asyncio.get_running_loop().create_task(_after(self._latest_turn, work))
        return self._latest_turn

    async def _load(self, slot: ModelSlot) -> None:
        try:
            need = await asyncio.to_thread(self._loader.footprint, slot.entry.source)
            await self._make_room(slot, need)
            await asyncio.to_thread(self._open, slot, need, self._free_bytes())
            await asyncio.to_thread(self._on_change)
        except Exception as error:
            raise as_load_error(error, slot.entry) from error
        finally:
            slot.loading = None
        if slot.is_idle:  # all that waited have left
            self._rest(slot)

    def _open(self, slot: ModelSlot, need: Footprint, memory_bytes: int) -> None:
        model = self._loader.load(slot.entry.source, memory_bytes=memory_bytes)
        model.observe_steps(slot.metrics.observe_step)
        model.observe_steps(slot.watchdog.observe_step)
        slot.memory_bytes = need.weight_bytes + model.kv_bytes
        slot.peaks = self._loader.peaks(model)
        slot.model = model

    async def _make_room(self, slot: ModelSlot, need: Footprint) -> None:
        idle = sorted((each for each in self.slots if each.is_idle), key=lambda each: each.last_use)
        reach = self._free_bytes() + sum(each.memory_bytes for each in idle)
        if need.total_bytes > reach:  # none goes in vain
            busy = [each.name for each in self.slots if each.model is not None and each.num_uses]
            if need.total_bytes > self._budget_bytes:
                busy = []  # nor would their end help
            raise CapacityError(no_room(slot.name, need, free_bytes=reach, others=busy))
        for each in idle:
            if need.total_bytes <= self._free_bytes():
                return
            if each.is_idle:
                logger.warning("%s is unloaded: %s needs its memory", each.name, slot.name)
                await self._unload_if_idle(each)

    def _free_bytes(self) -> int:
        """What there was at the start, less what is promised to loaded models; no more than there is now."""
        promised = sum(slot.memory_bytes for slot in self.slots if slot.model is not None)
        return max(0, min(self._budget_bytes - promised, self._free_bytes_now()))

    async def _unload_if_idle(self, slot: ModelSlot) -> None:
        if not slot.is_idle:
            return
        leaving, slot.model = [slot.loaded], None
        slot.clear_timer()
        await asyncio.to_thread(lambda: leaving.pop().close())  # nothing here holds it then
        await asyncio.to_thread(self._on_change)


async def _after(turn: "asyncio.Task[None] | None", work: Callable[[], Awaitable[None]]) -> None:
    if turn is not None:
        await asyncio.wait({turn})
    await work()


def _refuse_same_names(entries: Sequence[ModelEntry]) -> None:
    names = [name for entry in entries for name in entry.names]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            raise ConfigError(f"two models are called {name!r}: clients could not tell them apart, rename one")
