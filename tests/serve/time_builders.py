"""Time that stands still until a test moves it: what is due happens then, on a machine of any speed."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StillLoop(asyncio.SelectorEventLoop):
    """A loop whose time moves when a test says so, and that counts its timers."""

    now_s = 0.0
    num_timers = 0

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        self.num_timers += 1
        return super().call_at(when, callback, *args, context=context)

    async def wait_until(self, now_s: float) -> None:
        """Let time pass, and what is due happen."""
        self.now_s = now_s
        for _ in range(5):
            await asyncio.sleep(0)


def run_on(loop: StillLoop, work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)
