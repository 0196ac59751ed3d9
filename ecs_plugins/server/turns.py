"""Fair turns: the order in which a model computes requests.

Clients take turns, so one with many requests does not starve another. Among the requests of a
client a small one goes before a large one that has not waited long. Large ones fill the model by
themselves, so only one of them is computed at a time, and small ones need not wait for several.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, ParamSpec, TypeVar

from ecs_plugins.common.aio import run_holding
from ecs_plugins.errors import ModelBusyError

P = ParamSpec("P")
T = TypeVar("T")
Observer = Callable[[float], object]

SLOTS = 8
"""Requests that are computed at once: as many as there are threads that ask a model."""
LARGE = 40_000
"""Characters from which on a request is large: some 10,000 tokens, seconds of a CPU."""
_CHARACTERS_PER_SECOND = 10_000  # a request that waits this long outweighs so many characters


class _Waiting(NamedTuple):
    """A request in the line of its client; the one that is due first is next."""

    due: float
    is_large: bool
    granted: asyncio.Future[None]


class Turns:
    """Queue of requests that wait or are being computed. For one event loop.

    Attributes:
        waited: Callback, called with the seconds that each request waited.
        computed: Callback, called with the seconds for which each request held a thread.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        self.waited: Observer = lambda _: None
        self.computed: Observer = lambda _: None
        self._free = slots
        self._large_runs = False
        self._lines: dict[str, list[_Waiting]] = {}
        self._closed = False

    async def compute(
        self, client: str, size: int, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Wait for a turn and call ``fn`` in a thread.

        The turn lasts until the thread is free, also if the awaiting task is cancelled.

        Args:
            client: Name of the client that sent the request.
            size: Cost of the request, in characters that the model reads.
            fn: Computes the answer.
            *args: Arguments of ``fn``.
            **kwargs: Keyword arguments of ``fn``.

        Raises:
            ModelBusyError: The server stops.
            Exception: Any error of ``fn``.
        """
        is_large = size > LARGE
        came = time.monotonic()
        await self._wait(client, size, is_large)
        begun = time.monotonic()
        self.waited(begun - came)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            self.computed(time.monotonic() - begun)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._end, is_large)

        return await run_holding(ended, fn, *args, **kwargs)

    def close(self) -> None:
        """Refuse waiting requests and new ones."""
        self._closed = True
        for line in self._lines.values():
            for waiting in line:
                if not waiting.granted.done():
                    waiting.granted.set_exception(_stopping())
        self._lines.clear()

    async def _wait(self, client: str, size: int, is_large: bool) -> None:
        if self._closed:
            raise _stopping()
        due = time.monotonic() + size / _CHARACTERS_PER_SECOND
        granted = asyncio.get_running_loop().create_future()
        self._lines.setdefault(client, []).append(_Waiting(due, is_large, granted))
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self._end(is_large)
            granted.cancel()
            raise

    def _end(self, is_large: bool) -> None:
        self._free += 1
        if is_large:
            self._large_runs = False
        self._grant()

    def _grant(self) -> None:
        """Give free slots to clients in turn."""
        while self._free:
            chosen = self._next()
            if chosen is None:
                return
            self._free -= 1
            if chosen.is_large:
                self._large_runs = True
            chosen.granted.set_result(None)

    def _next(self) -> _Waiting | None:
        """Return the next request that may run; its client goes to the end of the line."""
        for client in list(self._lines):
            line = [waiting for waiting in self._lines.pop(client) if not waiting.granted.done()]
            allowed = [each for each in line if not (each.is_large and self._large_runs)]
            chosen = min(allowed, key=lambda each: each.due, default=None)
            left = [each for each in line if each is not chosen]
            if left:
                self._lines[client] = left
            if chosen is not None:
                return chosen
        return None


def _stopping() -> ModelBusyError:
    return ModelBusyError("the server is being stopped; ask another one")
