"""The answers of one HTTP request on their way from the engine's thread to the event loop.

Made by a route, read by its reply. Cancels what still runs when the client leaves, reads too slowly or
the server ends; never waits on the engine's thread.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from starlette.types import Receive

from twostroke.core.event import Event, FinishEvent
from twostroke.core.snapshot import Snapshot
from twostroke.errors import TwostrokeError
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class ServedModel(Protocol):
    """What the server asks of an LLM."""

    @property
    def model_name(self) -> str: ...
    @property
    def default_params(self) -> SamplingParams: ...
    def now(self) -> float: ...
    def snapshot(self) -> Snapshot: ...
    def submit(
        self,
        prompt: Any,
        params: SamplingParams | None = None,
        *,
        on_event: Callable[[Event], None] | None = None,
        arrival_s: float | None = None,
    ) -> Cancellable: ...


class Answers:
    """Events of all choices, in the order they happened; `index` says whose. Lives on one event loop."""

    def __init__(self, *, max_pending: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._max_pending = max_pending
        self._handles: list[Cancellable] = []
        self._unfinished = 0
        self._is_cancelled = False
        self._is_slow = False

    async def submit(
        self, model: ServedModel, prompts: Sequence[Any], params: SamplingParams, *, arrival_s: float
    ) -> None:
        """Start one request per prompt; tokenising happens beside the event loop. All start or none does."""
        try:
            for index, prompt in enumerate(prompts):
                handle = await asyncio.to_thread(
                    model.submit, prompt, params, on_event=self.listener(index), arrival_s=arrival_s
                )
                self._handles.append(handle)
                self._unfinished += 1
        except BaseException:
            self.cancel()
            raise
        if self._is_cancelled:
            self.cancel()

    def listener(self, index: int) -> Callable[[Event], None]:
        """What the engine's thread calls with each event of one choice."""

        def hand_over(event: Event) -> None:  # on the engine's thread
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._take, index, event)

        return hand_over

    def _take(self, index: int, event: Event) -> None:
        if self._pending.qsize() >= self._max_pending and not isinstance(event, FinishEvent):
            self._is_slow = True
            self.cancel()
            return
        self._pending.put_nowait((index, event))

    def cancel(self) -> None:
        """End what still runs; each choice still gets its finish event. May be called twice."""
        self._is_cancelled = True
        for handle in self._handles:
            with contextlib.suppress(TwostrokeError):  # the model is closed: it has ended them itself
                handle.cancel()

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """Everything until the last choice has finished. Raises ApiError when the client read too slowly."""
        while self._unfinished:
            index, event = await self._pending.get()
            if self._is_slow:
                raise ApiError(
                    f"{self._max_pending} tokens waited to be read: read faster or ask for fewer", status=503
                )
            if isinstance(event, FinishEvent):
                self._unfinished -= 1
            yield index, event

    @contextlib.asynccontextmanager
    async def cancelled_when_client_leaves(self, receive: Receive) -> AsyncIterator[None]:
        """Inside the block a disconnect cancels the answers; leaving it early cancels them too.

        A client that closes only its sending half counts as gone: on the wire it looks like one that left.
        """
        watcher = asyncio.create_task(self._watch(receive))
        try:
            yield
        finally:
            watcher.cancel()
            if self._unfinished:
                self.cancel()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.cancel()
