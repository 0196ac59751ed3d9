"""The one background thread of an open memory: it runs what may run later."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from ecs_plugins.errors import EcsPluginsError

logger = logging.getLogger(__name__)

Job = Callable[[threading.Event], None]


class BackgroundThread:
    """A daemon thread for jobs; a job that is waiting already is not queued twice.

    Jobs get an event that is set when the memory closes, and give up soon after.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, without a thread: also in a forked child, where there is none."""
        self._jobs: queue.SimpleQueue[tuple[str, Job] | None] = queue.SimpleQueue()
        self._waiting: set[str] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._unfinished = 0

    def submit(self, name: str, job: Job) -> None:
        """Run a job soon, unless one of that name is waiting."""
        with self._changed:
            if self._stop.is_set() or name in self._waiting:
                return
            self._waiting.add(name)
            self._unfinished += 1
            self._jobs.put((name, job))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ecs-memory-background", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while (entry := self._jobs.get()) is not None:
            name, job = entry
            with self._changed:
                self._waiting.discard(name)
            try:
                if not self._stop.is_set():
                    job(self._stop)
            except EcsPluginsError as error:
                logger.warning("%s failed and will be tried again: %s", name, error)
            except Exception:
                logger.exception("%s failed", name)
            finally:
                with self._changed:
                    self._unfinished -= 1
                    self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; returns whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._unfinished == 0, timeout)

    def close(self, timeout: float = 60.0) -> None:
        """Tell the running job to give up, and wait for it."""
        with self._changed:
            self._stop.set()
            thread = self._thread
        self._jobs.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
