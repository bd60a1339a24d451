"""A download that a client asked for and hears of: in a thread of its own, ended when the client leaves."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from twostroke.errors import ModelNotFoundError, TermsError, TwostrokeError
from twostroke.serve.api_error import ApiError
from twostroke.serve.disconnect import watching
from twostroke.serve.ollama.lines import KEEP_ALIVE, NDJSON, encode_line

logger = logging.getLogger("twostroke")
OnProgress = Callable[[int, int | None], None]
Fetch = Callable[[OnProgress], None]


class PullCancelled(TwostrokeError):
    """Raised inside the download, where its progress is told."""


class Pull:
    """One download. Lives on one event loop; `fetch` runs beside it."""

    def __init__(self, name: str, fetch: Fetch) -> None:
        self.name = name
        self._fetch = fetch
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._progress: tuple[int, int | None] | None = None  # the latest alone: nobody needs the others
        self._is_cancelled = False
        self._task = asyncio.ensure_future(asyncio.to_thread(self._run))
        self._task.add_done_callback(self._note_end)

    def _run(self) -> None:
        self._fetch(self._hear)

    def _hear(self, num_done: int, num_all: int | None) -> None:
        """Called on the download's thread."""
        if self._is_cancelled:
            raise PullCancelled(f"the download of {self.name} was cancelled")
        self._loop.call_soon_threadsafe(self._note, num_done, num_all)

    def _note(self, num_done: int, num_all: int | None) -> None:
        self._progress = (num_done, num_all)
        self._news.set()

    def _note_end(self, task: "asyncio.Future[None]") -> None:
        if not task.cancelled():
            task.exception()  # looked at even where nobody waits for it any more
        self._news.set()

    def cancel(self) -> None:
        """End the download when it next tells its progress."""
        self._is_cancelled = True

    @property
    def has_ended(self) -> bool:
        return self._task.done()

    async def started(self) -> None:
        """Wait until bytes come, or for the end. Raises ApiError where there is nothing to come."""
        await self._news.wait()
        if self._task.done():
            self._check()

    async def ended(self) -> None:
        """Wait for the end. Raises ApiError."""
        await asyncio.wait([self._task])
        self._check()

    def _check(self) -> None:
        error = self._task.exception()
        if error is not None:
            raise _told(self.name, error) from error

    async def statuses(self, idle_s: float) -> AsyncIterator[dict[str, Any] | None]:
        """What to tell the client, to the success; None where nothing came for `idle_s`. Raises ApiError."""
        yield {"status": "pulling manifest"}
        while not self._task.done():
            try:
                async with asyncio.timeout(idle_s):
                    await self._news.wait()
            except TimeoutError:
                yield None
                continue
            self._news.clear()
            progress, self._progress = self._progress, None  # before the client has it: more may come meanwhile
            if progress is not None:
                yield self._status(*progress)
        self._check()
        if self._progress is not None:
            yield self._status(*self._progress)
        yield {"status": "success"}

    def _status(self, num_done: int, num_all: int | None) -> dict[str, Any]:
        total = {} if num_all is None else {"total": num_all}
        return {"status": f"pulling {self.name}", **total, "completed": num_done}


class PullReply(Response):
    """Streams the statuses of a download, which ends when the client leaves or sending fails."""

    def __init__(self, pull: Pull, *, idle_s: float) -> None:
        super().__init__(media_type=NDJSON, headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self._pull = pull
        self._idle_s = idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with watching(receive, self._pull.cancel):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for line in self._lines():
                    await send({"type": "http.response.body", "body": line, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._pull.cancel()

    async def _lines(self) -> AsyncIterator[bytes]:
        try:
            async for status in self._pull.statuses(self._idle_s):
                yield KEEP_ALIVE if status is None else encode_line(status)
        except ApiError as error:
            yield encode_line(error.ollama_body)


def _told(name: str, error: BaseException) -> ApiError:
    """What a client is told: nothing of our folders and indexes, which the log has."""
    if isinstance(error, ModelNotFoundError):
        return ApiError(f"model {name!r:.200} not found: {error}", status=404, param="model")
    if isinstance(error, TermsError):
        return ApiError(str(error), status=403, param="model")
    if isinstance(error, PullCancelled):
        return ApiError(str(error), status=499)
    logger.error("the download of %s failed: %s", name, error)
    return ApiError(f"{name} could not be fetched: the server's log says why", status=502)
