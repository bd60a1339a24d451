"""Looks whether the engine still makes steps while it owes answers; where it does not, tells whoever waits.

Started with the first request of an idle server, asleep when nothing runs. Counts its own looks, not the clock: a
process that was stopped and goes on has lost nothing.
"""

import asyncio
import logging

from twostroke.core.account import StepRecord
from twostroke.serve.records import RequestRecords

logger = logging.getLogger("twostroke")
NUM_LOOKS = 10  # without a step between them: the engine stands still


class Watchdog:
    """One server's. `is_stalled` until the next step."""

    def __init__(self, records: RequestRecords, *, stall_s: float) -> None:
        self.is_stalled = False
        self._records = records
        self._stall_s = stall_s
        self._num_steps = 0
        self._task: asyncio.Task[None] | None = None

    def observe_step(self, record: StepRecord) -> None:
        """Called on the engine's thread after every step."""
        self._num_steps += 1
        self.is_stalled = False

    def wake(self) -> None:
        """A request was taken."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        num_looks, num_steps = 0, self._num_steps
        while self._records.running:
            await asyncio.sleep(self._stall_s / NUM_LOOKS)
            is_owing = any(answers.is_asked for answers in self._records.running)
            has_moved = self._num_steps != num_steps
            num_looks = 0 if has_moved or not is_owing else num_looks + 1
            num_steps = self._num_steps
            if num_looks >= NUM_LOOKS:
                self._give_up()
                return

    def _give_up(self) -> None:
        self.is_stalled = True
        owing = [answers for answers in self._records.running if answers.is_asked]
        logger.error("no step of the engine for %g s: %d requests are told so", self._stall_s, len(owing))
        for answers in owing:
            answers.give_up()
