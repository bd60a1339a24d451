"""The server process: its address, its signals, its end. Called by the command line on the main thread."""

import asyncio
import contextlib
import errno
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import uvicorn

from twostroke.core.clock import WallClock
from twostroke.errors import ConfigError
from twostroke.model.shelf import Shelf
from twostroke.preferred_thread import preferred_thread
from twostroke.serve.app import create_app
from twostroke.serve.hosts import host_names
from twostroke.serve.http_protocol import HttpProtocol
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.routes import Routes

SHUTDOWN_S = 5  # after answers were cancelled, for their connections to close
TURN_S = 0.0005  # of a thread in Python: a fraction of a decode step, where Python's own 5 ms are several
MAX_PORT = 65_535


class _Server(uvicorn.Server):
    """Lets running answers end before it does: SIGTERM gives them time, SIGINT and a second signal none.

    It listens as long as they run, so that whoever asks is told that it closes.
    """

    def __init__(self, config: uvicorn.Config, *, models: ModelRegistry, routes: Routes, drain_s: float) -> None:
        super().__init__(config)
        self._models = models
        self._routes = routes
        self._drain_s = drain_s
        self._clock = WallClock()
        self._drain_began_s: float | None = None
        self._owed: list[asyncio.Task[None]] = []  # requests from before the drain that have no whole reply yet

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGINT or self.should_exit:
            self._drain_s = 0.0
            self._routes.cancel_all()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._models.begin_keep_alive()
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Whether to close: ten times a second."""
        return await super().on_tick(counter) and self._has_drained()

    def _has_drained(self) -> bool:
        now_s = self._clock.now()
        if self._drain_began_s is None:
            self._drain_began_s, self._owed = now_s, list(self.server_state.tasks)
            self._routes.is_draining = True
        self._owed = [task for task in self._owed if not task.done()]
        return not self._owed or now_s >= self._drain_began_s + self._drain_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._routes.is_draining = True
        self._routes.cancel_all()  # what is left has had its time
        await super().shutdown(sockets)
        await self._routes.booked()  # the log tells every request that ended


def listen(host: str = "127.0.0.1", port: int = 8000) -> socket.socket:
    """The address, taken: clients that connect wait until `serve` answers. Port 0 takes a free one.

    Taken before a model is loaded, so that nobody waits for a load to hear that the port is in use. Raises
    ConfigError when the address cannot be used.
    """
    if not 0 <= port <= MAX_PORT:
        raise ConfigError(f"port {port} does not exist: take one from 1 to {MAX_PORT}, or 0 for any free one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, UnicodeError) as error:  # the latter for what is no host name at all
        why = "another program listens there" if getattr(error, "errno", None) == errno.EADDRINUSE else str(error)
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise ConfigError(f"cannot listen on {shown}: {why}; choose another address or port") from None
    # Connections inherit it. Without it a token waits until the client has acknowledged the one before, up to 40 ms:
    # asyncio turns Nagle's algorithm off only where a socket was made with the protocol's number.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(
    models: ModelRegistry,
    listener: socket.socket,
    *,
    api_key: str | None = None,
    allowed_hosts: Sequence[str] = (),
    limits: LimitsConfig | None = None,
    on_ready: Callable[[str], None] | None = None,
    shelf: Shelf | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then let running answers end and return. Call it on the main thread.

    `allowed_hosts` are names clients may call it by beside its own, `on_ready` hears the address once requests are
    answered. With `shelf` Ollama's API is spoken too.
    """
    limits = limits or LimitsConfig()
    host, port = listener.getsockname()[:2]
    hosts = host_names(host, others=allowed_hosts, has_key=api_key is not None)
    app = create_app(models, api_key=api_key, limits=limits, hosts=hosts, shelf=shelf)
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        http=HttpProtocol,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    server = _Server(config, models=models, routes=app.state.routes, drain_s=limits.drain_s)
    with _signals_end(server), _short_turns(), preferred_thread():
        if on_ready is not None:
            on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        server.run(sockets=[listener])


@contextlib.contextmanager
def _short_turns() -> Iterator[None]:
    """Let threads that compute in Python give way sooner: the event loop and the engine wait behind them."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


@contextlib.contextmanager
def _signals_end(server: uvicorn.Server) -> Iterator[None]:
    """Catch what comes before the server listens for signals, and what it raises again after it ended."""

    def end(number: int, frame: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
