"""A thread that erases what has expired, every few minutes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Self

_log = logging.getLogger(__name__)


class Sweeping(Future[None]):
    """A thread that sweeps; awaited at its start, it is itself."""

    def __await__(self) -> Generator[None, None, Self]:
        return self
        yield


class Sweeper:
    """At most one such thread at a time.

    Args:
        is_over: Whether there is nothing to sweep any more.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self, sweep: Callable[[], object], seconds: float) -> Future[None]:
        """Sweep every so many seconds, in place of the thread before.

        Returns:
            A future that is done when the thread is; cancelling it stops the thread.
        """
        self.stop()
        done = Sweeping()
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(seconds) and not self._is_over():
                try:
                    sweep()
                except Exception:
                    _log.warning("what has expired could not be erased yet", exc_info=True)
            if done.set_running_or_notify_cancel():
                done.set_result(None)

        done.add_done_callback(lambda _: stop.set())
        self._stop = stop
        self._thread = threading.Thread(target=run, name="ecs-ttl-sweeper", daemon=True)
        self._thread.start()
        return done

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the thread, if there is one; whether it ended within so many seconds."""
        self._stop.set()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()
