"""Worker of a loaded model: its thread computes all calls, one round after the other.

* Waiting calls are computed together as long as they fit into one pack of tokens. A round starts at
  once; calls that arrive during it make the next one.
* A round of several packs gives way between them: small calls that wait are computed there.
* A call whose caller was cancelled or whose deadline passed is dropped: between rounds, and
  between the packs of a round that no caller waits for.
* If a merged round fails, its calls are computed one by one, so that each gets its own error.
* Work that cannot be merged (generation) takes its turn like everything else.

A forked child starts a worker of its own, whose OpenMP team is new as well, while the thread that
forked may hold one that no longer exists.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ecs_plugins.common.aio import abandoned, check_awaited
from ecs_plugins.errors import ModelBusyError, ModelError, ModelTimeoutError
from ecs_plugins.lm.scoring.request import EngineResult, TokenRequest

if TYPE_CHECKING:
    from ecs_plugins.lm.scoring.planner import ScoringEngine

T = TypeVar("T")

_EXIT_S = 10.0


class Job(Generic[T]):
    """One call, with the future of its caller."""

    is_small = False
    """True if it fits into one pack of tokens."""

    def __init__(self, deadline_s: float | None) -> None:
        import torch

        self.deadline = None if deadline_s is None else time.monotonic() + deadline_s
        self.threads = torch.get_num_threads()
        self.future: Future[T] = Future()
        self._abandoned = abandoned()

    def left(self) -> float | None:
        """Return the seconds left; None without a deadline."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def over(self) -> bool:
        """Return True if the caller has left; report a deadline that has passed."""
        left = self.left()
        is_abandoned = self._abandoned is not None and self._abandoned.is_set()
        is_late = left is not None and left <= 0
        if is_abandoned:
            self.future.cancel()
        elif is_late:
            self.fail(late())
        return self.future.done()

    def finish(self, result: T) -> None:
        """Give the caller the result, if it still waits."""
        if self._is_awaited():
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Give the caller an error, if it still waits."""
        if not isinstance(error, Exception):
            failure = ModelError(f"the computation was ended by {type(error).__name__}: {error}")
            failure.__cause__ = error
            error = failure
        if self._is_awaited():
            self.future.set_exception(error)

    def _is_awaited(self) -> bool:
        return not self.future.done() and self.future.set_running_or_notify_cancel()


class Call(Job[T]):
    """A call that runs alone, such as a generation."""

    def __init__(self, function: Callable[[], T], deadline_s: float | None) -> None:
        super().__init__(deadline_s)
        self.function = function


class Scoring(Job[list[EngineResult]]):
    """Requests to score, together with others under the same limits."""

    def __init__(
        self,
        engine: ScoringEngine,
        requests: Sequence[TokenRequest],
        window: int,
        token_budget: int,
        deadline_s: float | None,
    ) -> None:
        super().__init__(deadline_s)
        self.engine = engine
        self.requests = requests
        self.limits = (window, token_budget)
        self.tokens = sum(request.tokens for request in requests)
        self.is_small = self.tokens <= token_budget

    def score_with(
        self,
        jobs: Sequence[Job[Any]],
        give_way: Callable[[], None] | None = None,
    ) -> None:
        """Score it and other calls under the same limits, together."""
        together = [job for job in jobs if isinstance(job, Scoring)]
        requests = [request for job in together for request in job.requests]
        window, token_budget = self.limits
        scored = self.engine.score(
            requests,
            window=window,
            token_budget=token_budget,
            stopped=lambda: all(job.over() for job in together),
            give_way=give_way,
        )
        results = iter(scored)
        for job in together:
            job.finish([next(results) for _ in job.requests])

    def by_reference(self) -> list[EngineResult]:
        """Score by the reference path; nothing else may be computed at the same time."""
        return [self.engine.by_reference(request, self.limits[0]) for request in self.requests]


class _Queue:
    """Calls that wait or are computed, and the thread that computes them.

    It holds no model, so that an idle thread keeps none alive.
    """

    def __init__(self) -> None:
        self.computing = threading.RLock()
        self.stopped = False
        self.forget()

    def forget(self) -> None:
        """Forget the calls of the parent process, in a forked child."""
        self.changed = threading.Condition()
        self.jobs: deque[Job[Any]] = deque()
        self.thread: threading.Thread | None = None

    def put(self, job: Job[Any], max_waiting: int) -> None:
        """Add a call, if there are not too many already."""
        with self.changed:
            if len(self.jobs) >= max_waiting:
                raise ModelBusyError(
                    f"{len(self.jobs)} calls wait for the model already; try again later, or raise "
                    "max_waiting"
                )
            self.jobs.append(job)
            self.changed.notify_all()
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(
                    target=_serve, args=(self,), name="ecs-plugins-lm", daemon=True
                )
                self.thread.start()

    def next_round(self) -> list[Job[Any]]:
        """Wait for calls and choose those of a round; empty when there is nothing left to serve."""
        with self.changed:
            while True:
                over = [job for job in self.jobs if job.over()]
                for job in over:
                    self.jobs.remove(job)
                if self.jobs:
                    return _together(self.jobs)
                if self.stopped:
                    return []
                self.changed.wait()

    def small_round(self, under_way: Sequence[Job[Any]]) -> list[Job[Any]]:
        """Choose waiting calls that fit into one pack; empty when there are none."""
        with self.changed:
            small = [
                job
                for job in self.jobs
                if isinstance(job, Scoring) and job.is_small and job not in under_way
            ]
            return _together(small) if small else []

    def end_round(self, jobs: Sequence[Job[Any]]) -> None:
        """Remove the calls of a round from the queue."""
        with self.changed:
            for job in jobs:
                self.jobs.remove(job)

    def stop(self) -> None:
        """End the thread once it has computed all waiting calls."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


def _together(jobs: Sequence[Job[Any]]) -> list[Job[Any]]:
    """Return the first call, and the calls that fit into one pack of tokens with it."""
    first = jobs[0]
    if not isinstance(first, Scoring):
        return [first]
    chosen: list[Job[Any]] = [first]
    _, token_budget = first.limits
    room = token_budget - first.tokens
    for job in list(jobs)[1:]:
        if not isinstance(job, Scoring) or job.limits != first.limits:
            continue
        if job.tokens <= room:
            chosen.append(job)
            room -= job.tokens
    return chosen


def _serve(queue: _Queue) -> None:
    """Compute one round after the other."""
    while jobs := queue.next_round():
        with queue.computing:
            _compute(jobs, partial(_give_way, queue, jobs))
        queue.end_round(jobs)
        del jobs  # an idle thread keeps no model alive


def _give_way(queue: _Queue, under_way: Sequence[Job[Any]]) -> None:
    """Compute one round of small calls between two packs of a larger one."""
    if len(under_way) > 1 or under_way[0].is_small:
        return  # it is one pack itself
    jobs = queue.small_round(under_way)
    if jobs:
        _compute(jobs)
        queue.end_round(jobs)
        _use_threads(under_way[0])


def _compute(jobs: Sequence[Job[Any]], give_way: Callable[[], None] | None = None) -> None:
    first = jobs[0]
    _use_threads(first)
    try:
        if isinstance(first, Call):
            first.finish(first.function())
        elif isinstance(first, Scoring):
            first.score_with(jobs, give_way)
    except BaseException as error:
        if len(jobs) == 1:
            first.fail(error)
            return
        # One of them is to blame; each gets its own error or result.
        for job in jobs:
            if not job.over():
                _compute([job])


def _use_threads(job: Job[Any]) -> None:
    """Compute on as many threads as the caller would."""
    import torch

    if torch.get_num_threads() != job.threads:
        torch.set_num_threads(job.threads)


class Worker:
    """Computes for many threads and event loops on one model. Thread-safe."""

    def __init__(self) -> None:
        self._queue = _Queue()
        with _live_lock:
            _live.add(self._queue)
        weakref.finalize(self, self._queue.stop).atexit = False

    def compute(self, job: Job[T], max_waiting: int) -> T:
        """Return the result of a call; requests of other callers may be computed with it.

        Raises:
            ModelBusyError: ``max_waiting`` calls wait already.
            ModelTimeoutError: The deadline passed.
            Exception: Any error of the computation.
        """
        self._queue.put(job, max_waiting)
        try:
            return job.future.result(job.left())
        except concurrent.futures.CancelledError:
            check_awaited()
            raise
        except concurrent.futures.TimeoutError:
            raise late() from None
        finally:
            job.future.cancel()


def late() -> ModelTimeoutError:
    """Return the error of a call whose deadline passed."""
    return ModelTimeoutError(
        "the deadline passed before the model had answered; give it more time (deadline_s), less "
        "to do, or fewer callers"
    )


_live: weakref.WeakSet[_Queue] = weakref.WeakSet()
_live_lock = threading.Lock()
_held: list[_Queue] = []


def _before_fork() -> None:
    # A child must not inherit a model in the middle of a round: wait for its end.
    _live_lock.acquire()
    _held.extend(_live)
    for queue in _held:
        queue.computing.acquire()
        queue.changed.acquire()


def _release() -> None:
    for queue in reversed(_held):
        queue.changed.release()
        queue.computing.release()
    _held.clear()
    _live_lock.release()


def _after_fork_in_child() -> None:
    queues = list(_held)
    _release()
    for queue in queues:
        queue.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_release, after_in_child=_after_fork_in_child
    )


@atexit.register
def _finish() -> None:
    """End all computations before the interpreter exits."""
    for queue in list(_live):
        with queue.changed:
            for job in queue.jobs:
                job.future.cancel()
        queue.stop()
        if queue.thread is not None:
            queue.thread.join(_EXIT_S)
