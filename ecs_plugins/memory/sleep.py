"""Running sleep phases: one per namespace at a time, on a view of it, until one can be applied.

A decision is computed on a consistent view without holding any lock. The transaction that carries
it out first checks that nobody changed the namespace meanwhile; if somebody did, the sleep phase
starts again, and after a few times it decides inside the transaction, with the summaries that are
already written. So the store stands before a sleep phase or after it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.memory.consolidation import consolidate
from ecs_plugins.memory.records import SleepReport
from ecs_plugins.memory.store import sleeps
from ecs_plugins.memory.store.erasure import has_expired, purge
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.sleeps import SleepView
from ecs_plugins.memory.store.tiers import key_of
from ecs_plugins.memory.summaries import Summariser
from ecs_plugins.memory.types import Namespace, SleepPlan, UtilityFunction

logger = logging.getLogger(__name__)

Job = Callable[[threading.Event], None]

_OPTIMISTIC_ATTEMPTS = 3
_RETENTION_EVERY = 3600.0


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


class SleepRunner:
    """Runs the sleep phases of an open memory; ``model`` writes summaries."""

    def __init__(
        self, store: MemoryStore, model: LanguageModel | None, utility: UtilityFunction | None
    ) -> None:
        self._store = store
        self._model = model
        self._utility = utility
        self._retention_due = 0.0
        self.background = BackgroundThread()
        self.reset()
        store.database.at_fork.append(self.reset)

    def reset(self) -> None:
        """Begin anew, with nothing running."""
        self.background.reset()
        self._locks: defaultdict[Namespace, threading.Lock] = defaultdict(threading.Lock)
        self._retry_at: dict[Namespace, int] = {}

    def sleep(self, namespace: Namespace) -> SleepReport | None:
        """Run one sleep phase now; None if nothing was ever stored in the namespace."""
        with self._locks[namespace], self._store.database.claim(key_of(namespace)):
            self._store.flush(namespace)
            if self._purge_due():
                purge(self._store)
            model = self._model if self._store.config.proposal == "summary" else None
            return self._run(namespace, None if model is None else Summariser(self._store, model))

    def _run(self, namespace: Namespace, summariser: Summariser | None) -> SleepReport | None:
        started = time.perf_counter()
        config = self._store.config

        def decide(view: SleepView) -> SleepPlan:
            space = view.space
            seed = f"{config.seed}:{key_of(space.namespace)}:{space.cycle}"
            return consolidate(
                [row.hot for row in view.hot],
                [*view.cold.values()],
                config=config,
                step=space.step,
                seed=int.from_bytes(hashlib.sha256(seed.encode()).digest()[:6]),
                queries=view.queries,
                utility=self._utility,
                summarise=summariser,
            )

        attempts = 0
        while (seen := self._view(namespace)) is not None:
            attempts += 1
            plan = decide(seen) if attempts <= _OPTIMISTIC_ATTEMPTS else None
            if plan is None and summariser is not None:
                summariser.may_generate = False
            with self._store.writing_to(namespace, flush=False) as (connection, space):
                if space is None:
                    return None
                if plan is None:
                    seen = sleeps.view(connection, space, self._store.dimension)
                    plan = decide(seen)
                elif seen.space.revision != space.revision:
                    continue  # others wrote since: nothing has changed
                report = replace(
                    sleeps.apply(connection, space, seen, plan, config),
                    attempts=attempts,
                    problems=() if summariser is None else tuple(summariser.problems),
                    summary_tokens=(0, 0) if summariser is None else summariser.tokens,
                    seconds=time.perf_counter() - started,
                )
                sleeps.write_report(connection, report)
                return report
        return None

    def _view(self, namespace: Namespace) -> SleepView | None:
        with self._store.reading(namespace) as (connection, space):
            if space is None:
                return None
            return sleeps.view(connection, space, self._store.dimension)

    def _purge_due(self) -> bool:
        """Whether something has expired, or the log's retention was last seen to an hour ago."""
        retained = self._store.settings.log_retention is not None
        if retained and time.monotonic() >= self._retention_due:
            self._retention_due = time.monotonic() + _RETENTION_EVERY
            return True
        return has_expired(self._store, time.time())

    def write_hits(self, namespace: Namespace, _: threading.Event) -> None:
        """Write pending hits, a job of the background thread."""
        self._store.flush(namespace, wait=False)

    def fall_asleep(self, namespace: Namespace, since_sleep: int, committed: bool) -> None:
        """Run a sleep phase that is due, here or in the background; a failure is logged.

        What was added is on disk, so ``add`` does not fail when sleeping does; after a failure
        the namespace is left alone for another ``sleep_every`` messages.
        """
        if not committed or since_sleep < self._retry_at.get(namespace, 0):
            return
        if self._store.settings.sleep == "background":
            self.background.submit(
                f"sleep in {namespace}", lambda _: self._try_sleep(namespace, since_sleep)
            )
        elif not self._locks[namespace].locked():
            self._try_sleep(namespace, since_sleep)

    def _try_sleep(self, namespace: Namespace, since_sleep: int) -> None:
        try:
            self.sleep(namespace)
            self._retry_at.pop(namespace, None)
        except EcsPluginsError as error:
            self._retry_at[namespace] = since_sleep + self._store.config.sleep_every
            logger.warning(
                "a sleep phase in %s failed; nothing has changed, it will be tried again: %s",
                namespace,
                error,
            )
