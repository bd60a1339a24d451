"""Sends a load and gathers what comes back: so many requests at once, or each when it is due.

An open loop never waits for answers: a server that falls behind meets all the requests its users would send. Ctrl-C
ends a load early; what was sent is still told.
"""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from twostroke.traffic.outcome import Outcome
from twostroke.traffic.prompts import PromptMaker
from twostroke.traffic.server import Server
from twostroke.traffic.workload import Item


@dataclass(frozen=True, slots=True)
class Ready:
    """An item with the bytes to send: nothing is left to do when its time comes."""

    place: int
    item: Item
    body: bytes

    def outcome(self) -> Outcome:
        return Outcome(place=self.place, wanted_prompt=self.item.prompt_tokens, wanted_output=self.item.output_tokens)


async def prepare(items: Sequence[Item], *, prompts: PromptMaker, server: Server) -> list[Ready]:
    """Every request's body."""
    ready = []
    for place, item in enumerate(items):
        body = server.body(await prompts.text_of(item), output_tokens=item.output_tokens)
        ready.append(Ready(place, item, body))
    return ready


async def closed_loop(ready: Sequence[Ready], *, server: Server, concurrency: int) -> list[Outcome]:
    """All of them in order, `concurrency` at once: each answer's end sends the next. Outcomes in order of sending."""
    outcomes: list[Outcome] = []
    coming = iter(ready)

    async def send_in_turn() -> None:
        for each in coming:
            outcomes.append(outcome := each.outcome())
            await server.answer(each.body, outcome)

    await _until_interrupted([send_in_turn() for _ in range(concurrency)])
    return outcomes


async def open_loop(ready: Sequence[Ready], *, server: Server) -> list[Outcome]:
    """Each when it is due, or a pause after the end of the one it follows. Outcomes in order of sending."""
    outcomes: list[Outcome] = []
    clock = server.client.clock
    ends: list[asyncio.Future[float]] = [asyncio.get_running_loop().create_future() for _ in ready]
    start_s = clock.now()

    async def send(each: Ready) -> None:
        if each.item.follows is not None:
            due_s = await ends[each.item.follows] + each.item.pause_s
        else:
            due_s = start_s + (each.item.due_s or 0.0)
        while (left_s := due_s - clock.now()) > 0:  # an event loop rounds to its own milliseconds, down too
            await asyncio.sleep(left_s)
        outcome = each.outcome()
        outcome.due_s = due_s
        outcomes.append(outcome)
        await server.answer(each.body, outcome)
        ends[each.place].set_result(outcome.end_s)

    await _until_interrupted([send(each) for each in ready])
    return outcomes


async def _until_interrupted(work: Sequence[Coroutine[None, None, None]]) -> None:
    """Run all of it; SIGINT cancels what is left."""
    loop = asyncio.get_running_loop()
    tasks = [asyncio.ensure_future(each) for each in work]

    def stop() -> None:
        for task in tasks:
            task.cancel()

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        results = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)
    for result in results:
        if isinstance(result, Exception):  # a mistake of ours, never the server's
            raise result
