"""Runs a service on uvicorn, with bounds on connections, while its model is being loaded."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ecs_plugins.errors import ModelBusyError
from ecs_plugins.server.service import STOP_SECONDS, Service

T = TypeVar("T")

_log = logging.getLogger(__name__)

SILENT_SECONDS = 10.0
"""Seconds that a connection may go without a request; uvicorn waits for headers for ever."""
CONNECTIONS = 768
"""Most connections, if the process may have twice as many file descriptors."""
_LOG_SECONDS = 60.0  # between two reports of connections that cannot be accepted
_LAST_SECONDS = 0.5
_KEEP_ALIVE_SECONDS = 30


def most_connections() -> int:
    """Return the smaller of `CONNECTIONS` and half of the process's file descriptors."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return CONNECTIONS
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if descriptors < 0 else max(1, min(CONNECTIONS, descriptors // 2))


class Loading(Generic[T]):
    """Result of a function that runs in a thread.

    Args:
        make: The function, such as one that loads a model.

    Attributes:
        error: The error of the function, if it failed.
        seconds: How long the function took.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self.error: BaseException | None = None
        self.seconds = 0.0

    @classmethod
    def done(cls, value: T) -> Loading[T]:
        """Return a finished loading of a value."""
        loading = cls(lambda: value)
        loading._run()
        return loading

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="ecs-loading", daemon=True).start()

    @property
    def ready(self) -> bool:
        """True if the function has returned."""
        return bool(self._made)

    def get(self) -> T:
        """Return the result.

        Raises:
            ModelBusyError: The function has not returned yet.
        """
        if not self._made:
            raise ModelBusyError("the model is being loaded; try again in some seconds")
        return self._made[0]

    def _run(self) -> None:
        started = time.monotonic()
        try:
            made = self._make()
            self.seconds = time.monotonic() - started
            self._made.append(made)
        except BaseException as error:  # raised where the server runs
            self.error = error


class TimedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Connection that is closed when it stays silent, or when it is the most silent of too many."""

    _timer: asyncio.TimerHandle | None = None
    _last_request: object = None
    _silent_since = 0.0

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > most_connections():
            silent = [each for each in self.connections if each.is_silent]
            min(silent, key=lambda each: each._silent_since).transport.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def is_silent(self) -> bool:
        """True if no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._last_request = self.cycle
        self._silent_since = self.loop.time()
        self._timer = self.loop.call_later(SILENT_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.is_silent and self.cycle is self._last_request:
            self.transport.close()
        else:
            self._wait()


class _Server(uvicorn.Server):
    """Server that tells its service to stop, and stops if nothing can be loaded."""

    def __init__(
        self, config: uvicorn.Config, service: Service, loading: Loading[Any] | None
    ) -> None:
        super().__init__(config)
        self._service = service
        self._loading = loading
        self._next_report = 0.0

    @override
    async def startup(self, sockets: Any = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().startup(sockets)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log errors of the loop; errors of new connections once a minute."""
        if "accept" not in str(context.get("message", "")):
            loop.default_exception_handler(context)
        elif time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + _LOG_SECONDS
            _log.error("new connections cannot be accepted: %s", context.get("exception"))

    @override
    async def on_tick(self, counter: int) -> bool:
        if self._loading is not None and self._loading.error is not None:
            return True
        return await super().on_tick(counter)

    @override
    async def shutdown(self, sockets: Any = None) -> None:
        for server in self.servers:
            server.close()
        self._service.stop()
        # Requests that are on their way are refused with a message.
        await asyncio.sleep(_LAST_SECONDS)
        await super().shutdown(sockets)


def run(service: Service, host: str, port: int, loading: Loading[Any] | None = None) -> None:
    """Serve until a signal comes; then requests under way have `STOP_SECONDS`.

    Raises:
        BaseException: The error of ``loading``, if it failed.
    """
    config = uvicorn.Config(
        service,
        host=host,
        port=port,
        http=TimedProtocol,
        ws="none",
        # asyncio accepts so many at a time, before it closes any.
        backlog=max(8, most_connections() // 4),
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        log_level="info",
        timeout_graceful_shutdown=round(STOP_SECONDS) + 1,
        server_header=False,
    )
    if loading is not None:
        loading.start()
    with suppress(KeyboardInterrupt):
        _Server(config, service, loading).run()
    if loading is not None and loading.error is not None:
        raise loading.error
