"""One worker per loaded model: concurrent callers are merged into rounds and take turns.

What this module decides:

* Nobody waits for company unless the last round had some. Then the next one waits for as many
  callers as before, for `Concurrency.window_s` or a quarter of the last round at most.
* Between rounds, calls are dropped whose caller was cancelled or whose deadline passed.
* If a merged round fails, its calls are computed one by one, so that each gets its own error.
* Work that cannot be merged (generation) takes its turn like everything else.

All computation happens in the worker's thread. A forked child starts a new one, whose OpenMP
team is new as well, while the thread that forked may hold one that no longer exists.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

import torch

from ecs_plugins.errors import ModelBusyError
from ecs_plugins.lm.concurrency import DEFAULT_CONCURRENCY, Concurrency
from ecs_plugins.lm.scoring.planner import EngineResult
from ecs_plugins.lm.scoring.request import TokenRequest
from ecs_plugins.lm.turns import AnyJob, Call, Job, Scorer, Scoring, Turn, died, late, share_out

T = TypeVar("T")

_EXIT_S = 10.0
_POLL_S = 0.01


class _Queue:
    """Calls that wait or are under way, and the worker that serves them.

    It holds no model, so that an idle worker keeps none alive.
    """

    def __init__(self, computing: threading.RLock) -> None:
        self.computing = computing
        self.changed = threading.Condition()
        self.jobs: deque[AnyJob] = deque()
        self.thread: threading.Thread | None = None
        self.stopped = False
        self.company = 1
        self.round_start = self.round_end = time.monotonic()

    def put(self, job: AnyJob, concurrency: Concurrency) -> bool:
        """Add a call; False if there can be no worker, and the caller has to serve it."""
        limits = [s for s in (concurrency.queue_timeout_s, job.seconds()) if s is not None]
        with self.changed:
            if not self.changed.wait_for(
                lambda: len(self.jobs) < concurrency.max_waiting, min(limits, default=None)
            ):
                left = job.seconds()
                if left is not None and left <= 0:
                    raise late()
                raise ModelBusyError(
                    f"{len(self.jobs)} calls wait for the model already; try again later, or "
                    "raise max_waiting or queue_timeout_s of its Concurrency"
                )
            self.jobs.append(job)
            self.changed.notify_all()
            return self._has_worker()

    def _has_worker(self) -> bool:
        if self.thread is None or not self.thread.is_alive():
            self.thread = threading.Thread(
                target=_serve, args=(self,), name="ecs-plugins-lm", daemon=True
            )
            try:
                self.thread.start()
            except RuntimeError:  # the interpreter shuts down, or there are too many threads
                self.thread = None
                return False
        return True

    def next_round(self) -> list[Turn]:
        """Wait for calls and share out a round; empty when there is nothing left to serve."""
        with self.changed:
            while True:
                self._drop([job for job in self.jobs if job.over()])
                if not self.jobs:
                    if self.stopped:
                        return []
                    self.changed.wait()
                    continue
                pause = self._pause()
                if pause <= 0:
                    break
                self.changed.wait(pause)
            self.round_start = time.monotonic()
            turns = share_out(self.jobs)
            self.company = len(turns)
            return turns

    def end_round(self, turns: Sequence[Turn]) -> None:
        """Those who were served go to the back of the line, or out of it."""
        with self.changed:
            self.round_end = time.monotonic()
            served = [job for job, _ in turns]
            self._drop(served)
            self.jobs.extend(job for job in served if not job.over())
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """The worker died: everybody who waits is told."""
        with self.changed:
            self.thread = None
            for job in self.jobs:
                if not job.over():
                    job.fail(died(error))
            self.jobs.clear()
            self.changed.notify_all()

    def stop(self) -> None:
        """Let the worker go once it has served what waits."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def abandon(self) -> None:
        """Forget everything that the parent process was about; in a forked child."""
        self.changed = threading.Condition()
        self.jobs = deque()
        self.thread = None
        self.company = 1

    def _pause(self) -> float:
        """How long to wait for those who kept this caller company before."""
        if self.company <= len(self.jobs):
            return 0.0
        window = min(self.jobs[0].window_s, (self.round_end - self.round_start) / 4)
        return self.round_end + window - time.monotonic()

    def _drop(self, jobs: Sequence[AnyJob]) -> None:
        for job in jobs:
            if job in self.jobs:
                self.jobs.remove(job)
        if jobs:
            self.changed.notify_all()


def _serve(queue: _Queue, until: Future[Any] | None = None) -> None:
    """The worker: one round after the other."""
    try:
        while (until is None or not until.done()) and (turns := queue.next_round()):
            with queue.computing:
                _compute(turns)
            queue.end_round(turns)
            del turns  # an idle worker keeps no model alive
    except BaseException as error:
        queue.fail(error)


def _compute(turns: Sequence[Turn]) -> None:
    first = turns[0][0]
    if torch.get_num_threads() != first.threads:
        torch.set_num_threads(first.threads)
    if isinstance(first, Call):
        first.run()
        return
    try:
        _score(turns)
    except Exception as error:
        if len(turns) == 1:
            first.fail(error)
            return
        # One of them is to blame, and the others shall not suffer.
        for turn in turns:
            try:
                _score([turn])
            except Exception as own:
                turn[0].fail(own)


def _score(turns: Sequence[Turn]) -> None:
    parts = [part for _, parts in turns for part in parts]
    first = turns[0][0]
    assert isinstance(first, Scoring)
    results = first.engine.score(
        [part.request for part in parts], window=first.window, token_budget=first.tokens
    )
    for part, result in zip(parts, results, strict=True):
        part.owner.put(part, result)
    for job, _ in turns:
        assert isinstance(job, Scoring)
        job.finish()


class Batcher:
    """Merges the calls of many threads and event loops on one model. Thread-safe.

    Args:
        engine: What scores a batch; called by one thread at a time.
        computing: Held while anything is computed.
    """

    def __init__(self, engine: Scorer, computing: threading.RLock) -> None:
        self._engine = engine
        self._queue = _Queue(computing)
        with _live_lock:
            _live.add(self._queue)
        weakref.finalize(self, self._queue.stop).atexit = False

    def score(
        self,
        requests: Sequence[TokenRequest],
        *,
        window: int,
        token_budget: int,
        concurrency: Concurrency = DEFAULT_CONCURRENCY,
    ) -> list[EngineResult]:
        """Score requests; other callers' requests may be computed together with them.

        Raises:
            ModelBusyError: Too many calls wait already.
            ModelTimeoutError: The deadline passed.
            ModelError: The worker died.
            Exception: Whatever the engine raises about these requests.
        """
        if not requests:
            return []
        job = Scoring(self._engine, requests, window, token_budget, concurrency)
        return self._wait(job, concurrency)

    def submit(
        self,
        requests: Sequence[TokenRequest],
        *,
        window: int,
        token_budget: int,
        concurrency: Concurrency = DEFAULT_CONCURRENCY,
    ) -> Future[list[EngineResult]]:
        """Like `score`, without waiting for the result; cancelling the future drops the work."""
        job = Scoring(self._engine, requests, window, token_budget, concurrency)
        if not requests:
            job.finish()
        elif not self._queue.put(job, concurrency):
            _serve(self._queue, job.future)
        return job.future

    async def ascore(
        self,
        requests: Sequence[TokenRequest],
        *,
        window: int,
        token_budget: int,
        concurrency: Concurrency = DEFAULT_CONCURRENCY,
    ) -> list[EngineResult]:
        """Like `score`, for event loops: holds no thread, and cancelling it drops the work."""
        start = time.monotonic()
        end = start + (concurrency.deadline_s or float("inf"))
        patience = concurrency.queue_timeout_s
        while True:
            now = time.monotonic()
            if now >= end:
                raise late()
            left = None if concurrency.deadline_s is None else end - now
            at_once = replace(concurrency, queue_timeout_s=0.0, deadline_s=left)
            try:
                future = self.submit(
                    requests, window=window, token_budget=token_budget, concurrency=at_once
                )
                break
            except ModelBusyError:
                if patience is not None and now - start >= patience:
                    raise
                await asyncio.sleep(_POLL_S)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), left)
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()
            raise late() from None

    def run(self, function: Callable[[], T], concurrency: Concurrency = DEFAULT_CONCURRENCY) -> T:
        """Call ``function`` in the worker, alone and in turn.

        Raises:
            ModelBusyError: Too many calls wait already.
            ModelTimeoutError: The deadline passed.
            ModelError: The worker died.
            Exception: Whatever ``function`` raises.
        """
        call = Call(function, concurrency)
        return self._wait(call, concurrency)

    def _wait(self, job: Job[T], concurrency: Concurrency) -> T:
        if not self._queue.put(job, concurrency):
            _serve(self._queue, job.future)
        future = job.future
        try:
            return future.result(job.seconds())
        except concurrent.futures.TimeoutError:
            if not future.done():
                future.cancel()
                raise late() from None
            return future.result()
        except BaseException:
            future.cancel()
            raise


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
        queue.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_release, after_in_child=_after_fork_in_child
    )


@atexit.register
def _finish() -> None:
    """No computation may be under way while the interpreter is taken apart."""
    for queue in list(_live):
        with queue.changed:
            for job in queue.jobs:
                job.future.cancel()
        queue.stop()
        if (thread := queue.thread) is not None:
            thread.join(_EXIT_S)
