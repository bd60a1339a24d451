"""The last part of a reply's time: from the engine's finish until the connection has every byte.

Wraps the responses of answers; their records and the metrics hear of it. Never changes a byte.
"""

from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from twostroke.serve.answers import Answers


class DeliveredReply(Response):
    """A response, and how long its client let it wait once the answers had ended.

    A connection takes bytes as long as its buffers have room, so only a client that reads slower than that shows.
    """

    def __init__(
        self,
        reply: Response,
        answers: Answers,
        *,
        now: Callable[[], float],
        on_sent: Callable[[Answers, float], None],
    ) -> None:
        super().__init__(status_code=reply.status_code)
        self._reply = reply
        self._answers = answers
        self._now = now
        self._on_sent = on_sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        waited_s = 0.0

        async def timed(message: Message) -> None:
            nonlocal waited_s
            began_s = self._now()
            await send(message)
            if self._has_ended:
                waited_s += max(self._now() - max(began_s, self._answers.last_finish[1]), 0.0)

        await self._reply(scope, receive, timed)
        if self._has_ended:
            self._answers.note_sent(sent_s=self._now(), waited_s=waited_s)
            self._on_sent(self._answers, waited_s)

    @property
    def _has_ended(self) -> bool:
        return bool(self._answers.finishes) and not self._answers.num_unfinished
