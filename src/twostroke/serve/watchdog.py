"""Looks whether a model's engine still makes steps while it owes answers; where it does not, tells whoever waits.

Started with the first request of an idle model, asleep when nothing runs. Counts its own looks, not the clock: a
process that was stopped and goes on has lost nothing.
"""

import asyncio
import logging

from twostroke.core.account import StepRecord
from twostroke.serve.answers import Answers

logger = logging.getLogger("twostroke")
NUM_LOOKS = 10  # without a step between them: the engine stands still


class Watchdog:
    """One model's. `is_stalled` until the next step or the next end."""

    def __init__(self) -> None:
        self.is_stalled = False
        self._running: set[Answers] = set()
        self._num_steps = 0
        self._task: asyncio.Task[None] | None = None

    def observe_step(self, record: StepRecord) -> None:
        """Called on the engine's thread after every step."""
        self._num_steps += 1
        self.is_stalled = False

    def watch(self, answers: Answers, *, stall_s: float) -> None:
        """The engine was asked for them: without a step for `stall_s` it stands still."""
        self._running.add(answers)
        answers.observe_end(self._observe_end)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(stall_s))

    def _observe_end(self, answers: Answers) -> None:
        """An end comes from the engine too, with or without a step before it."""
        self._running.discard(answers)
        self.is_stalled = False

    async def _watch(self, stall_s: float) -> None:
        num_looks, num_steps = 0, self._num_steps
        while self._running:
            await asyncio.sleep(stall_s / NUM_LOOKS)
            is_owing = any(answers.is_asked for answers in self._running)
            has_moved = self._num_steps != num_steps
            num_looks = 0 if has_moved or not is_owing else num_looks + 1
            num_steps = self._num_steps
            if num_looks >= NUM_LOOKS:
                self._give_up(stall_s)
                return

    def _give_up(self, stall_s: float) -> None:
        self.is_stalled = True
        owing = [answers for answers in self._running if answers.is_asked]
        logger.error("no step of the engine for %g s: %d requests are told so", stall_s, len(owing))
        for answers in owing:
            answers.give_up()
