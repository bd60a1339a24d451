"""A request on its way: its handle, its events as a stream, or gathered into a Result. Holds no engine state.

Made by LLM; the collector alone is called on the engine's thread.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Self

from twostroke.chat.answer_format import AnswerFormat
from twostroke.chat.reader import AnswerReader
from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.core.report import Result
from twostroke.errors import TwostrokeError

FORKED = "the request runs in the parent process, its answer does not come here: ask after the fork"
HAND_OVER = "hand over to another thread and return"


class Handle:
    """A request on its way. Thread-safe."""

    def __init__(
        self,
        request_id: str,
        *,
        cancel: Callable[[str], None],
        collector: "ResultCollector",
        prompt_token_ids: Sequence[int] = (),
        new_reader: Callable[[], AnswerReader] | None = None,
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = tuple(prompt_token_ids)
        self._cancel = cancel
        self._collector = collector
        self._new_reader = new_reader

    def new_reader(self) -> AnswerReader:
        """What splits the answer's text into reasoning, content and calls; all is content where no chat was asked."""
        return AnswerReader(AnswerFormat()) if self._new_reader is None else self._new_reader()

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    def cancel(self) -> None:
        """Ask the engine to end the request; it finishes as cancelled within one step."""
        self._cancel(self.request_id)

    def result(self, timeout_s: float | None = None) -> Result:
        """Wait for the end. Raises TimeoutError after `timeout_s`."""
        result = self._collector.wait(timeout_s)
        return result if self._new_reader is None else replace(result, answer=self._new_reader().read(result.text))


class EventStream(Iterator[Event]):
    """The events of one request, the finish last. Left before its end, closed or dropped, it cancels the request.

    A context manager. `close` may be called from another thread: the finish event then comes soon.
    """

    def __init__(self, handle: Handle, events: "SimpleQueue[Event]") -> None:
        self._handle = handle
        self._events = events
        self._has_ended = False
        self._process_id = os.getpid()

    def new_reader(self) -> AnswerReader:
        """What splits the events' texts into reasoning, content and calls: `feed` each, then `end`."""
        return self._handle.new_reader()

    def __next__(self) -> Event:
        if self._has_ended:
            raise StopIteration
        _refuse_child_of(self._process_id)
        event = self._events.get()
        self._has_ended = isinstance(event, FinishEvent)
        return event

    def close(self) -> None:
        """Cancel the request if it still runs. May be called twice."""
        if not self._has_ended:
            self._handle.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class ResultCollector:
    """Gathers a request's events into a Result and passes them on to the listener."""

    def __init__(self, listener: Callable[[Event], None] | None) -> None:
        self._listener = listener
        self._tokens: list[TokenEvent] = []
        self._finish: FinishEvent | None = None
        self._done = threading.Event()
        self._process_id = os.getpid()
        self._teller: threading.Thread | None = None  # the engine's thread, once it has called

    def __call__(self, event: Event) -> None:
        self._teller = threading.current_thread()
        if isinstance(event, TokenEvent):
            self._tokens.append(event)
        else:
            self._finish = event
        try:
            if self._listener is not None:
                self._listener(event)
        finally:
            if self._finish is not None:
                self._listener = None  # who listens may hold the handle: neither keeps the other from being freed
                self._done.set()

    def wait(self, timeout_s: float | None) -> Result:
        if self._teller is threading.current_thread() and not self._done.is_set():
            raise TwostrokeError(f"a listener cannot wait for its own request's result: {HAND_OVER}")
        if not self._done.is_set():
            _refuse_child_of(self._process_id)
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"no answer within {timeout_s} s")
        assert self._finish is not None
        return result_of(self._tokens, self._finish)


def _refuse_child_of(process_id: int) -> None:
    """A forked child has no engine thread: it would wait for ever."""
    if os.getpid() != process_id:
        raise TwostrokeError(FORKED)


def result_of(tokens: Sequence[TokenEvent], finish: FinishEvent) -> Result:
    """Everything one request's events say."""
    return Result(
        request_id=finish.request_id,
        text="".join(token.text for token in tokens) + finish.text,
        token_ids=tuple(token.token_id for token in tokens),
        finish_reason=finish.reason,
        usage=finish.usage,
        timing=finish.timing,
        kv=finish.kv,
        account=finish.account,
        seed=finish.seed,
        logprobs=tuple(token.logprob for token in tokens),
        top_logprobs=tuple(token.top_logprobs for token in tokens),
        prompt_logprobs=tokens[0].prompt_logprobs if tokens else finish.prompt_logprobs,
        error=finish.error,
        stop_reason=finish.stop_reason,
        speculation=finish.speculation,
        embedding=finish.embedding,
        beams=finish.beams,
    )
