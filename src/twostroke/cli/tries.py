"""`run --best-of N`: several answers drawn side by side; once all have ended the likeliest is told as if it were alone.

Its events come on the engine's thread, like those of one request. `run` calls it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.core.likeliest import Tried, likeliest
from twostroke.core.report import Result
from twostroke.params import SamplingParams

if TYPE_CHECKING:
    from twostroke.handle import Handle
    from twostroke.llm import LLM


class Tries:
    """What LLM.submit returns, for the best of several requests."""

    def __init__(
        self, llm: "LLM", asked: Any, params: SamplingParams, *, num_tries: int, on_event: Callable[[Event], None]
    ) -> None:
        """`params` ask for log-probabilities, by which the best is found."""
        self._on_event = on_event
        self._events: list[list[Event]] = [[] for _ in range(num_tries)]
        self._num_ended = 0
        self._handles: list[Handle] = []
        try:
            for number in range(num_tries):
                listener = self._listener(number)
                self._handles.append(llm.submit(asked, params, on_event=listener, choice_index=number))
        except BaseException:  # Ctrl-C between two of them too
            self.cancel()
            raise

    def cancel(self) -> None:
        for handle in self._handles:
            handle.cancel()

    def result(self, timeout_s: float | None = None) -> Result:
        """The best one's, when all have ended."""
        results = [handle.result(timeout_s) for handle in self._handles]
        return results[self._best()]

    def _listener(self, number: int) -> Callable[[Event], None]:
        def hear(event: Event) -> None:
            self._events[number].append(event)
            if isinstance(event, FinishEvent):
                self._num_ended += 1
                if self._num_ended == len(self._events):
                    for told in self._events[self._best()]:
                        self._on_event(told)

        return hear

    def _best(self) -> int:
        tried = []
        for number, events in enumerate(self._events):
            logprobs = [event.logprob or 0.0 for event in events if isinstance(event, TokenEvent)]
            tried.append(Tried(number, sum(logprobs), len(logprobs)))
        return likeliest(tried, num_told=1)[0]
