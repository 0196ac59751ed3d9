"""Group commit: threads that wait to write to one namespace share a transaction.

Each would otherwise wait for a commit of each thread before it, and a lock that is free for a
moment goes to the thread that runs, not to the thread that waits longest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ecs_plugins.memory.types import Namespace

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Turn(Generic[T]):
    """Work of a waiting thread; `done` is None until another thread has tried to write it."""

    work: T
    woken: threading.Event = field(default_factory=threading.Event)
    done: bool | None = None


class GroupCommit(Generic[T]):
    """Queues of threads, one per namespace. Thread-safe.

    The first thread of a queue writes the work of all threads in it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Namespace, list[_Turn[T]]] = {}

    def write(
        self, namespace: Namespace, work: T, operate: Callable[[Sequence[T]], object]
    ) -> None:
        """Return once ``operate`` has written this work, in this thread or in another.

        If work of several threads cannot be written together, each writes its own.
        """
        own = _Turn(work)
        with self._lock:
            queue = self._queues.setdefault(namespace, [])
            queue.append(own)
            is_first = queue[0] is own
        try:
            if not is_first:
                own.woken.wait()
            if own.done is None:
                self._lead(namespace, queue, operate)
        finally:  # also if this thread was interrupted, so that the next one does not wait for it
            self._leave(namespace, queue, [own])
        if not own.done:
            operate([work])

    def _lead(
        self,
        namespace: Namespace,
        queue: list[_Turn[T]],
        operate: Callable[[Sequence[T]], object],
    ) -> None:
        """Write the work of all threads in a queue, and wake them and the next leader."""
        with self._lock:
            group = [*queue]
        done = False
        try:
            operate([turn.work for turn in group])
            done = True
        except Exception:
            if len(group) == 1:
                raise
        finally:
            for turn in group:
                turn.done = done
            self._leave(namespace, queue, group)
            for turn in group:
                turn.woken.set()

    def _leave(self, namespace: Namespace, queue: list[_Turn[T]], group: list[_Turn[T]]) -> None:
        """Take turns out of a queue, and wake the first of the others."""
        with self._lock:
            queue[:] = [turn for turn in queue if turn not in group]
            if queue:
                queue[0].woken.set()
            elif self._queues.get(namespace) is queue:
                del self._queues[namespace]
