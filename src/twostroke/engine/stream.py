"""What every request hears and is accounted for, however its tokens are chosen.

Lives on the engine's thread. output_stream.py tells tokens as they come, beam_stream.py when the search has ended.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from twostroke.core.account import Account, StepRecord
from twostroke.core.event import Event, TokenEvent
from twostroke.core.ledger import StallKind
from twostroke.core.request import Request

logger = logging.getLogger("twostroke")

Listener = Callable[[Event], None]


class TextStream(Protocol):
    """Turns one sequence's ids into text as they come: text.detokenizer.Detokenizer, or a double in tests."""

    def push(self, token_id: int) -> str: ...
    def flush(self) -> str: ...


class Stream:
    """A request's account and its way to the listener."""

    def __init__(self, request: Request, *, listener: Listener) -> None:
        self.request = request
        self.account = Account(request_id=request.request_id, arrival_s=request.arrival_s, before=request.spent)
        self.fault: str | None = None  # what its text or its listener raised: it hears no more tokens, only the end
        self._listener = listener

    def live_through(self, record: StepRecord, absent: StallKind | None) -> None:
        """Remember a step for the account; `absent` says why the request had no row in it."""
        self.account.steps.append((record, absent))

    def hand_over(self, now_s: float) -> None:
        """Tell what the step brought, if it can be told already."""

    def _guarded(self, next_text: Callable[[], str]) -> str:
        """The text; none after a fault. A text that fails ends its own request and no other."""
        if self.fault is not None:
            return ""
        try:
            return next_text()
        except BaseException as error:  # the engine's thread goes on, whatever it is
            self.fault = f"its text failed: {error!r}"
            logger.exception("the text of request %s failed: the request ends", self.request.request_id)
            return ""

    def _tell(self, event: Event) -> None:
        if self.fault is not None and isinstance(event, TokenEvent):
            return
        try:
            self._listener(event)
        except BaseException as error:  # SystemExit too: it must not end the engine's thread
            self.fault = f"its listener raised {error!r}"
            logger.exception("the listener of request %s raised: the request ends", event.request_id)
