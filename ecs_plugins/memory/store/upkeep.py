"""When sleep phases fall due, and the one background thread that runs what may run later."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.memory.admission import sleep_due
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.store_config import StoreConfig

logger = logging.getLogger(__name__)

Job = Callable[[threading.Event], None]


def is_due(space: Space, config: MemoryConfig, store: StoreConfig) -> bool:
    """Whether a namespace should sleep now.

    The adaptive schedule counts what founded a new hot item rather than what was said: a stream
    of repeats lets it wait, a full hot tier does not, though at least a quarter of
    ``sleep_every`` messages lie between two sleep phases.
    """
    if store.sleep == "manual":
        return False
    if store.schedule == "every":
        return sleep_due(space.since_sleep, config)
    crowded = space.hot.count >= config.hot_capacity and 4 * space.since_sleep >= config.sleep_every
    return space.novel >= config.sleep_every or crowded


class Upkeep:
    """A daemon thread for jobs; a job that is waiting already is not queued twice.

    Jobs get an event that is set when the memory closes, and give up soon after.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[str, Job] | None] = queue.SimpleQueue()
        self._waiting: set[str] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._idle = threading.Condition(self._lock)
        self._running = 0

    def submit(self, name: str, job: Job) -> None:
        """Run a job soon, unless one of that name is waiting."""
        with self._lock:
            if self._stop.is_set() or name in self._waiting:
                return
            self._waiting.add(name)
            self._running += 1
            self._jobs.put((name, job))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ecs-memory-upkeep", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while (entry := self._jobs.get()) is not None:
            name, job = entry
            with self._lock:
                self._waiting.discard(name)
            try:
                if not self._stop.is_set():
                    job(self._stop)
            except EcsPluginsError as error:
                logger.warning("%s failed and will be tried again: %s", name, error)
            except Exception:
                logger.exception("%s failed", name)
            finally:
                with self._idle:
                    self._running -= 1
                    self._idle.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; returns whether that was so in time."""
        with self._idle:
            return self._idle.wait_for(lambda: self._running == 0, timeout)

    def close(self, timeout: float = 60.0) -> None:
        """Tell the running job to give up, and wait for it."""
        with self._lock:
            self._stop.set()
            thread = self._thread
        self._jobs.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
