"""The answers of one HTTP request on their way from the engine's thread to the event loop.

Made by a route, read by its reply. Cancels what still runs when the client leaves, reads too slowly, asks for it or
runs out of time, or when the server ends; never waits on the engine's thread.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import Enum, StrEnum
from typing import Any, TypeVar

from starlette.types import Receive

from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.core.ledger import Ledger, Part
from twostroke.embedding import EmbeddingParams
from twostroke.errors import TwostrokeError
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.disconnect import watching
from twostroke.serve.served_model import Asked, ServedModel
from twostroke.serve.silence import Silence

logger = logging.getLogger("twostroke")


class CancelCause(StrEnum):
    """Who ended answers before their end."""

    CLIENT_LEFT = "client_left"
    SLOW_CLIENT = "slow_client"
    DELETED = "deleted"
    DEADLINE = "deadline"
    CLOSING = "closing"
    STALLED = "stalled"  # the engine makes no more steps
    REFUSED = "refused"  # another answer of the same request was not taken


# Those a client brought about itself have a status that no client library answers by asking again.
_CAUSES = {
    CancelCause.DEADLINE: ("the answer was not complete after timeout_s: ask for less or for more time", 499),
    CancelCause.DELETED: ("the request was cancelled by a DELETE of its id", 499),
    CancelCause.STALLED: ("the engine has stopped making steps, see the server's log: ask again later", 503),
}
_CLOSING = ("the request was cancelled before its end: the server is closing, ask again", 503)


class Sign(Enum):
    """What waits among events and is none."""

    SILENCE = "nothing came for a while"


Observer = Callable[["Answers", int, Event], None]
EndObserver = Callable[["Answers"], None]
Teller = Callable[[int, TokenEvent], bool]  # tells a token at once, or says that it cannot
T = TypeVar("T")


class EventBridge:
    """Carries events from the engine's thread to one event loop: one wake-up for all that wait, not one for each.

    The ledger of an answer that ended is read on a thread of its own, as it looks at every step. Mostly it comes after
    the finish, and no reply waits for it that does not tell it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._passed: deque[tuple[Answers, int, Event | Ledger]] = deque()
        self.num_unread = 0  # answers that ended, without their ledgers
        self._is_woken = False
        self._ledger_reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="twostroke-ledger")

    def put(self, answers: "Answers", index: int, event: Event) -> None:
        """Called on the engine's thread."""
        if isinstance(event, FinishEvent):
            self._ledger_reader.submit(self._read, answers, index, event)
        self._pass_on(answers, index, event)

    def _read(self, answers: "Answers", index: int, event: FinishEvent) -> None:
        try:
            ledger = event.account.read()
        except Exception:  # a mistake of ours: whoever waits gets the end all the same
            logger.exception("the ledger of request %s cannot be read", event.request_id)
            ledger = Ledger({Part.OVERHEAD: event.timing.e2e_s}, ())
        self._pass_on(answers, index, ledger)

    def _pass_on(self, answers: "Answers", index: int, what: Event | Ledger) -> None:
        self._passed.append((answers, index, what))
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_woken = False  # before looking: what is put from now on wakes again
        while self._passed:
            answers, index, what = self._passed.popleft()
            if isinstance(what, Ledger):
                self.num_unread -= 1
                answers.take_ledger(index, what)
            else:
                self.num_unread += isinstance(what, FinishEvent)
                answers.take(index, what)

    async def booked(self) -> None:
        """Wait for the ledgers of all that ended until now: whoever asks behind a reply finds it in the books."""
        await asyncio.wrap_future(self._ledger_reader.submit(lambda: None))
        self._deliver()


class Answers:
    """Events of all answers, in the order they happened; `index` says whose. Lives on one event loop.

    The choices of a prompt have indices in a row. The first is started alone, the others once it has its first
    token: they find its prompt in the cache.
    """

    def __init__(
        self,
        *,
        max_pending: int,
        bridge: EventBridge | None = None,
        request_id: str | None = None,
        observers: Sequence[Observer] = (),
        book_observers: Sequence[EndObserver] = (),
    ) -> None:
        self.request_id = request_id
        self.arrival_s = 0.0
        self.cause: CancelCause | None = None
        self.cancelled_s: float | None = None
        self.asked: dict[int, Asked] = {}
        self.finishes: dict[int, FinishEvent] = {}
        self.ledgers: dict[int, Ledger] = {}  # of those that finished, once they are read, until the finish
        self.sent_s: float | None = None  # when the connection had the whole reply
        self._waited_s = 0.0  # of the time until then
        self.num_unfinished = 0
        self._unread: dict[int, FinishEvent] = {}  # without their ledgers; with `wants_ledger` nobody heard of them yet
        self._early: dict[int, Ledger] = {}  # read before their finishes came
        self._bridge = bridge or EventBridge()
        self._observers = list(observers)
        self._end_observers: list[EndObserver] = []
        self._book_observers = book_observers
        self._wants_ledger = False
        self.has_ended = False  # the engine owes nothing any more
        self.is_booked = False  # and every ledger is there
        self._cancelled = asyncio.Event()
        self._pending: deque[tuple[int, Event] | Sign | None] = deque()
        self._reader: asyncio.Future[None] | None = None  # waits for something to be pending
        self._teller: Teller | None = None  # set while it waits
        self._silence: Silence | None = None
        self._max_pending = max_pending
        self._failure: Exception | None = None
        self._start: Callable[[int], Asked] | None = None
        self._told: Callable[[Exception], Exception] = lambda error: error
        self._now: Callable[[], float] = lambda: 0.0
        self._siblings: dict[int, range] = {}  # first choice -> those that wait for it
        self._is_short = False  # some were cancelled before they began: they have no finish
        self._starting: set[asyncio.Task[None]] = set()
        self._deadline: asyncio.TimerHandle | None = None

    async def submit(
        self,
        model: ServedModel,
        prompts: Sequence[Any],
        params: SamplingParams | EmbeddingParams,
        *,
        arrival_s: float,
        num_choices: int = 1,
        salt: str = "",
        load_s: float = 0.0,
        wants_ledger: bool = False,
        told: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        """Start one request per prompt; tokenising happens beside the event loop. All start or none does.

        `told` is what a client hears of an error of a later choice, whose start nobody waits for; with `wants_ledger`
        finishes wait for their ledgers. Raises ApiError where they were cancelled before, and what the model's door
        raises.
        """
        self.arrival_s = arrival_s
        self._told = told
        self._wants_ledger = wants_ledger
        self._now = model.now
        if self.cause is not None:
            raise self.failure()

        later = params
        if isinstance(params, SamplingParams) and params.max_tokens:
            later = replace(params, prompt_logprobs=None)  # a prompt is scored once

        def start(index: int) -> Asked:
            return model.submit(
                prompts[index // num_choices],
                params if index % num_choices == 0 else later,
                on_event=self.listener(index),
                arrival_s=arrival_s,
                request_id=self._name_of(index, len(prompts) * num_choices),
                choice_index=index % num_choices,
                salt=salt,
                load_s=load_s,
            )

        self._start = start
        self.num_unfinished = len(prompts) * num_choices
        firsts = range(0, self.num_unfinished, num_choices)
        self._siblings = {first: range(first + 1, first + num_choices) for first in firsts}
        for place, first in enumerate(firsts):
            try:
                if self.cause is not None:
                    raise self.failure()
                await self._begin(first)
            except BaseException:
                self._drop(firsts[place:])
                self.cancel(CancelCause.REFUSED)
                self._start = None
                raise

    def _drop(self, firsts: Sequence[int]) -> None:
        """These prompts are not started any more."""
        for first in firsts:
            self.num_unfinished -= 1 + len(self._siblings.pop(first, ()))

    def limit_time(self, timeout_s: float, *, arrival_s: float, now: Callable[[], float]) -> None:
        """What is not complete `timeout_s` after its arrival is cancelled."""
        self._now = now
        left_s = max(0.0, arrival_s + timeout_s - now())
        self._deadline = asyncio.get_running_loop().call_later(left_s, self.cancel, CancelCause.DEADLINE)

    def observe(self, observer: Observer) -> None:
        """Tell it every event from now on, a finish once its ledger is there."""
        self._observers.append(observer)

    def observe_end(self, observer: EndObserver) -> None:
        """Tell it once no event is to come any more, with the last, or at once where that is so; ledgers may be."""
        if self.has_ended:
            observer(self)
        else:
            self._end_observers.append(observer)

    async def unless_cancelled(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of what comes before the answers. Raises ApiError where they are cancelled first."""
        task, cancelled = asyncio.ensure_future(work), asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait({task, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self.failure()
            return task.result()
        finally:
            task.cancel()
            cancelled.cancel()

    def _name_of(self, index: int, num_answers: int) -> str | None:
        if self.request_id is None or num_answers == 1:
            return self.request_id
        return f"{self.request_id}.{index}"

    async def _begin(self, index: int) -> None:
        assert self._start is not None, "submit comes first"
        self.asked[index] = await asyncio.to_thread(self._start, index)
        if self.cause is not None:
            _cancel(self.asked[index])

    def listener(self, index: int) -> Callable[[Event], None]:
        """What the engine's thread calls with each event of one answer."""
        return lambda event: self._bridge.put(self, index, event)

    def take(self, index: int, event: Event) -> None:
        """One event, on the event loop: counted whether or not anybody reads it."""
        if not isinstance(event, FinishEvent):
            self._begin_siblings(index)
            for observe in self._observers:
                observe(self, index, event)
            self._pass_on(index, event)
            return
        self._unread[index] = event
        if not self._wants_ledger:
            self._end(index, event)
        if index in self._early:
            self._enter(index, self._early.pop(index))

    def take_ledger(self, index: int, ledger: Ledger) -> None:
        """That of an answer that finished, before its finish comes or after."""
        if index in self._unread:
            self._enter(index, ledger)
        else:
            self._early[index] = ledger

    def _end(self, index: int, event: FinishEvent) -> None:
        """Its reader hears of it."""
        self.finishes[index] = event
        self.num_unfinished -= 1
        self._begin_siblings(index)
        self._put((index, event))
        self._end_if_complete()

    def _enter(self, index: int, ledger: Ledger) -> None:
        """An answer and its ledger enter the books."""
        event = self._unread[index]
        self.ledgers[index] = ledger
        for observe in self._observers:
            observe(self, index, event)
        if self._wants_ledger:
            self._end(index, event)
        del self._unread[index]
        self._close_books_if_complete()

    def _begin_siblings(self, index: int) -> None:
        waiting = self._siblings.pop(index, None)
        if waiting and self.cause is None:
            task = asyncio.ensure_future(self._begin_all(waiting))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    def _pass_on(self, index: int, event: TokenEvent) -> None:
        """To the teller, or to those that wait for the reader."""
        try:
            is_told = self._teller is not None and not self._pending and self._teller(index, event)
        except Exception as error:  # noqa: BLE001 - the reply's own, as if its reader had raised it
            self._failure = self._failure or error
            self._put(None)
            return
        if is_told:
            if self._silence is not None:
                self._silence.hear()
        elif len(self._pending) >= self._max_pending:
            self.cancel(CancelCause.SLOW_CLIENT)
        else:
            self._put((index, event))

    def _put(self, each: tuple[int, Event] | Sign | None) -> None:
        self._pending.append(each)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def _begin_all(self, indices: Sequence[int]) -> None:
        left = list(indices)
        try:
            while left and self.cause is None:
                await self._begin(left[0])
                left.pop(0)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the reply's to tell
            self._failure = self._failure or self._told(error)
            self.cancel(CancelCause.REFUSED)
        if left:
            self._is_short = True
            self.num_unfinished -= len(left)
            self._put(None)  # who waits for them waits in vain
            self._end_if_complete()

    def _end_if_complete(self) -> None:
        if self.num_unfinished or self.has_ended:
            return
        self.has_ended = True
        self.stop_clock()
        self._start = None  # it holds these answers, which are freed with their reply, not once a collector comes by
        for observe in self._end_observers:
            observe(self)
        self._close_books_if_complete()

    def _close_books_if_complete(self) -> None:
        if not self.has_ended or self._unread or self.is_booked:
            return
        self.is_booked = True
        for observe in self._book_observers:
            observe(self)

    def end_unbegun(self) -> None:
        """What was cancelled before the engine was asked for anything has ended too, without an answer."""
        if self.cause not in (None, CancelCause.REFUSED) and not self.asked:
            self._end_if_complete()

    def stop_clock(self) -> None:
        """No deadline any more: they ended, or will not begin."""
        if self._deadline is not None:
            self._deadline.cancel()

    def cancel(self, cause: CancelCause = CancelCause.CLOSING) -> None:
        """End what still runs; each started answer still gets its finish event. May be called twice."""
        if self.cause is None and not self.has_ended:
            self.cause, self.cancelled_s = cause, self._now()
            self._cancelled.set()
            self.num_unfinished -= sum(len(waiting) for waiting in self._siblings.values())
            self._is_short = any(self._siblings.values())
            self._siblings.clear()
        for index, asked in self.asked.items():
            if index not in self.finishes:
                _cancel(asked)

    @property
    def is_asked(self) -> bool:
        """Whether the engine owes an answer."""
        return any(index not in self.finishes for index in self.asked)

    @property
    def last_finish(self) -> tuple[int, float]:
        """Which answer ended last, and when."""
        times_s = {index: finish.account.finish_s or 0.0 for index, finish in self.finishes.items()}
        last = max(times_s, key=times_s.__getitem__)
        return last, times_s[last]

    def note_sent(self, *, sent_s: float, waited_s: float) -> None:
        """The connection has the whole reply: what came after the last finish joins that answer's ledger.

        waited_s: of it, how long the client did not take what was there.
        """
        self.sent_s, self._waited_s = max(sent_s, self.last_finish[1]), waited_s

    def ledger_until_sent(self, index: int) -> Ledger:
        """That of an answer, with the time until the reply was sent where it ended last."""
        last, finish_s = self.last_finish
        if self.sent_s is None or index != last:
            return self.ledgers[index]
        total_s = self.sent_s - finish_s
        return self.ledgers[index].with_delivery(waited_s=min(self._waited_s, total_s), total_s=total_s)

    def give_up(self) -> None:
        """The engine does not answer: whoever waits hears it now. Should it go on, it ends what it was asked."""
        self.cancel(CancelCause.STALLED)
        self._failure = self._failure or self.failure()
        self._put(None)

    def failure(self) -> ApiError:
        """The error of answers that were cancelled."""
        if self.cause is CancelCause.SLOW_CLIENT:
            return ApiError(f"{self._max_pending} tokens waited to be read: read faster or ask for fewer", status=503)
        if self.cause in _CAUSES:
            message, status = _CAUSES[self.cause]
            return ApiError(message, status=status, code=self.cause)
        message, status = _CLOSING
        return ApiError(message, status=status)

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """Everything until the last answer has finished.

        Raises ApiError when the client read too slowly or answers were cancelled before they began, and whatever the
        start of a later choice raised.
        """
        async for each in self.events_or_silence(None):
            if each is not None:
                yield each

    async def events_or_silence(
        self, idle_s: float | None, *, teller: Teller | None = None
    ) -> AsyncIterator[tuple[int, Event] | None]:
        """The same, and None whenever nothing came for `idle_s`; tokens that `teller` tells do not come."""
        silence = self._silence = None if idle_s is None else Silence(idle_s, self._note_silence)
        try:
            while self.num_unfinished or self._pending:
                if not self._pending:
                    self._reader, self._teller = asyncio.get_running_loop().create_future(), teller
                    await self._reader
                    self._teller = None
                each = self._pending.popleft()
                if self._failure is not None:
                    raise self._failure
                if self.cause is CancelCause.SLOW_CLIENT:
                    raise self.failure()
                if each is Sign.SILENCE:
                    yield None
                elif each is not None:
                    if silence is not None:
                        silence.hear()
                    yield each
            if self._is_short:
                raise self.failure()
        finally:
            self._teller = self._silence = None
            if silence is not None:
                silence.close()

    def _note_silence(self) -> None:
        if not self._pending:  # a reader that is busy with an earlier sign hears no second one
            self._put(Sign.SILENCE)

    @contextlib.asynccontextmanager
    async def cancelled_when_client_leaves(self, receive: Receive) -> AsyncIterator[None]:
        """Inside the block a disconnect cancels the answers; leaving it early cancels them too."""
        try:
            async with watching(receive, lambda: self.cancel(CancelCause.CLIENT_LEFT)):
                yield
        finally:
            if self.num_unfinished:
                self.cancel(CancelCause.CLIENT_LEFT)


def _cancel(asked: Asked) -> None:
    with contextlib.suppress(TwostrokeError):  # the model is closed: it has ended them itself
        asked.cancel()
