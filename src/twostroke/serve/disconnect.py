"""Who waits for a reply may leave: the one watch for that. Used by answers and by downloads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from starlette.types import Receive


@contextlib.asynccontextmanager
async def watching(receive: Receive, on_leave: Callable[[], None]) -> AsyncIterator[None]:
    """Inside the block a disconnect calls `on_leave`, once.

    A client that closes only its sending half counts as gone: on the wire it looks like one that left.
    """
    watcher = asyncio.create_task(_watch(receive, on_leave))
    try:
        yield
    finally:
        watcher.cancel()


async def _watch(receive: Receive, on_leave: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    on_leave()
