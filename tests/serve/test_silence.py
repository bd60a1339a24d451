"""Silence is told once per idle stretch, by one timer, and never after the end."""

import asyncio
from typing import Any

from twostroke.serve.silence import Silence


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time moves when a test says so, and that counts its timers."""

    now_s = 0.0
    num_timers = 0

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        self.num_timers += 1
        return super().call_at(when, callback, *args, context=context)


async def wait_until(loop: Loop, now_s: float) -> None:
    """Let time pass, and what is due happen."""
    loop.now_s = now_s
    for _ in range(3):
        await asyncio.sleep(0)


def test_silence_is_told_after_each_idle_stretch_and_not_before() -> None:
    loop, told = Loop(), list[float]()

    async def listen() -> None:
        silence = Silence(10.0, lambda: told.append(loop.now_s))
        for now_s in (5.0, 9.9, 10.0, 19.9, 20.5, 31.0):
            await wait_until(loop, now_s)
        silence.close()
        await wait_until(loop, 99.0)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(listen())
    assert told == [10.0, 20.5, 31.0]


def test_what_is_heard_moves_it_without_a_timer_of_its_own() -> None:
    loop, told = Loop(), list[float]()

    async def listen() -> None:
        silence = Silence(10.0, lambda: told.append(loop.now_s))
        for tenth in range(1, 100):
            loop.now_s = tenth / 10
            silence.hear()
        assert loop.num_timers == 1
        await wait_until(loop, 10.0)
        assert (told, loop.num_timers) == ([], 2)
        await wait_until(loop, 19.9)
        assert told == [19.9]
        silence.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(listen())
