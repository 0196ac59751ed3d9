"""The one background thread of an open memory: it runs what may run later."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from ecs_plugins.errors import EcsPluginsError

logger = logging.getLogger(__name__)

Job = Callable[[threading.Event], None]


class BackgroundThread:
    """Runs jobs one after the other; a job that is not done yet is not queued twice.

    Jobs get an event that is set when the memory closes, and give up soon after.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, without a thread: also in a forked child, where there is none."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="ecs-memory")
        self._jobs: dict[str, Future[None]] = {}

    def submit(self, name: str, job: Job) -> None:
        """Run a job soon, unless one of that name is waiting."""
        with self._lock:
            self._jobs = {known: each for known, each in self._jobs.items() if not each.done()}
            waiting = name in self._jobs and not self._jobs[name].running()
            if not waiting and not self._stop.is_set():
                self._jobs[name] = self._executor.submit(self._run, name, job)

    def _run(self, name: str, job: Job) -> None:
        try:
            if not self._stop.is_set():
                job(self._stop)
        except EcsPluginsError as error:
            logger.warning("%s failed and will be tried again: %s", name, error)
        except Exception:
            logger.exception("%s failed", name)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; returns whether that was so in time."""
        with self._lock:
            jobs = list(self._jobs.values())
        return not wait(jobs, timeout).not_done

    def close(self) -> None:
        """Tell the running job to give up, and wait for it."""
        with self._lock:
            self._stop.set()
        self._executor.shutdown()
