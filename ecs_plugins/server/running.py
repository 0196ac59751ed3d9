"""Running a service until it is told to stop: uvicorn, without what silent clients could hold."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ecs_plugins.server.loading import Loading
from ecs_plugins.server.service import STOP_SECONDS, Service

SILENT_SECONDS = 10.0
"""How long a connection may go without a request; uvicorn waits for headers for ever."""
CONNECTIONS = 768
"""Connections that are held; one more closes the one that has been silent longest."""
_LAST_SECONDS = 0.5
_LATE_SECONDS = 0.1
_KEEP_ALIVE_SECONDS = 30


class TimedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is closed when no request comes, however slowly its headers trickle."""

    _timer: asyncio.TimerHandle | None = None
    _last_request: object = None
    _silent_since = 0.0

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._silent_since = self.loop.time()
        self._timer = self.loop.call_later(SILENT_SECONDS, self._close_if_silent)
        if len(self.connections) > CONNECTIONS:
            self._close_the_most_silent()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def is_silent(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def _close_if_silent(self) -> None:
        if self.is_silent and self.cycle is self._last_request:
            # What has arrived is read first, in case that the loop was late and not the client.
            self._timer = self.loop.call_later(_LATE_SECONDS, self._close_if_still_silent)
            return
        self._wait_on()

    def _close_if_still_silent(self) -> None:
        if self.is_silent and self.cycle is self._last_request:
            self.transport.close()
        else:
            self._wait_on()

    def _wait_on(self) -> None:
        self._last_request = self.cycle
        self._silent_since = self.loop.time()
        self._timer = self.loop.call_later(SILENT_SECONDS, self._close_if_silent)

    def _close_the_most_silent(self) -> None:
        silent = [each for each in self.connections if each.is_silent]
        if silent:
            min(silent, key=lambda each: each._silent_since).transport.close()


class _Server(uvicorn.Server):
    """A server that tells its service to stop, and stops if nothing can be loaded."""

    def __init__(
        self, config: uvicorn.Config, service: Service, loading: Loading[Any] | None
    ) -> None:
        super().__init__(config)
        self._service = service
        self._loading = loading

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
        # What was sent before clients could know is still on its way, and is refused in words.
        await asyncio.sleep(_LAST_SECONDS)
        await super().shutdown(sockets)


def run(service: Service, host: str, port: int, loading: Loading[Any] | None = None) -> None:
    """Serve until a signal comes; then requests under way have `STOP_SECONDS`.

    Raises:
        BaseException: What ``loading`` could not load.
    """
    config = uvicorn.Config(
        service,
        host=host,
        port=port,
        http=TimedProtocol,
        ws="none",
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
