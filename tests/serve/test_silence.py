"""Silence is told once per idle stretch, by one timer, and never after the end."""

from tests.serve.time_builders import StillLoop, run_on
from twostroke.serve.silence import Silence


def test_silence_is_told_after_each_idle_stretch_and_not_before() -> None:
    loop, told = StillLoop(), list[float]()

    async def listen() -> None:
        silence = Silence(10.0, lambda: told.append(loop.now_s))
        for now_s in (5.0, 9.9, 10.0, 19.9, 20.5, 31.0):
            await loop.wait_until(now_s)
        silence.close()
        await loop.wait_until(99.0)

    run_on(loop, listen())
    assert told == [10.0, 20.5, 31.0]


def test_what_is_heard_moves_it_without_a_timer_of_its_own() -> None:
    loop, told = StillLoop(), list[float]()

    async def listen() -> None:
        silence = Silence(10.0, lambda: told.append(loop.now_s))
        for tenth in range(1, 100):
            loop.now_s = tenth / 10
            silence.hear()
        assert loop.num_timers == 1
        await loop.wait_until(10.0)
        assert (told, loop.num_timers) == ([], 2)
        await loop.wait_until(19.9)
        assert told == [19.9]
        silence.close()

    run_on(loop, listen())
