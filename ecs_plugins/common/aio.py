"""Bridge from the synchronous core to ``async`` callers.

Work runs in bounded thread pools of this package, not in the event loop's default executor, which
other libraries fill with their own work. Models and memories have a pool each, so that a recall of
milliseconds never waits for scorings of seconds. The pools belong to the process, so they serve any
number of event loops, and a forked child makes new ones.

``ECS_PLUGINS_MODEL_THREADS`` and ``ECS_PLUGINS_MEMORY_THREADS`` set the threads of each pool,
``ECS_PLUGINS_MODEL_WAITING`` and ``ECS_PLUGINS_MEMORY_WAITING`` the calls that may be under way;
one more is refused.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from typing_extensions import override

from ecs_plugins.errors import ConfigurationError, ModelBusyError, StorageError

P = ParamSpec("P")
T = TypeVar("T")

MAX_WORKERS = 8
"""Threads of a pool, by default."""
MAX_WAITING = 10_000
"""Calls of a pool that may be under way, by default."""


class _Departure(threading.Event):
    """Set when the caller of a call has left, or the caller of the call around it."""

    def __init__(self) -> None:
        super().__init__()
        self._outer = abandoned()

    @override
    def is_set(self) -> bool:
        return super().is_set() or (self._outer is not None and self._outer.is_set())


_abandoned: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "ecs_plugins_abandoned", default=None
)
_lock = threading.Lock()
_pools: dict[str, ThreadPoolExecutor] = {}
_under_way: Counter[str] = Counter()


def _number(variable: str, default: int) -> int:
    given = os.environ.get(variable)
    if given is None:
        return default
    number = int(given) if given.isdecimal() else 0
    if number == 0:
        raise ConfigurationError(f"{variable} is {given!r}; it must be a positive number")
    return number


def _admit(kind: str) -> ThreadPoolExecutor:
    """Count one more call and return its pool."""
    bound = f"ECS_PLUGINS_{kind}_WAITING"
    with _lock:
        if kind not in _pools:
            size = _number(f"ECS_PLUGINS_{kind}_THREADS", MAX_WORKERS)
            name = f"ecs-{kind.lower()}"
            _pools[kind] = ThreadPoolExecutor(size, thread_name_prefix=name)
        calls = _under_way[kind]
        if calls >= _number(bound, MAX_WAITING):
            busy = ModelBusyError if kind == "MODEL" else StorageError
            raise busy(f"{calls} calls are under way; try again later, or raise {bound}")
        _under_way[kind] += 1
        return _pools[kind]


def _forget_after_fork() -> None:
    # The parent's threads do not exist in the child, and its lock may have been held.
    global _lock
    _pools.clear()
    _under_way.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


async def _run(kind: str, fn: Callable[[], T], ended: Callable[[], object] | None = None) -> T:
    context = contextvars.copy_context()
    departure = _Departure()
    context.run(_abandoned.set, departure)
    try:
        future = _admit(kind).submit(context.run, fn)
    except BaseException:
        if ended is not None:
            ended()
        raise
    if ended is not None:
        # It is also called where the call is cancelled before a thread took it.
        future.add_done_callback(lambda _: ended())
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        departure.set()
        raise
    finally:
        with _lock:
            _under_way[kind] -= 1


async def run_sync(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn``, which may ask a model, in a worker thread and await its result.

    Context variables of the caller are visible in ``fn``; changes of ``fn`` stay there. If the
    awaiting task is cancelled before a worker took the call, it never runs; a call that has
    begun can see it by `abandoned`, and its result is dropped.

    Raises:
        ModelBusyError: Too many calls are under way; this one did nothing.
        Exception: Any error of ``fn``.
    """
    return await _run("MODEL", functools.partial(fn, *args, **kwargs))


async def run_holding(
    ended: Callable[[], object], fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call ``fn`` as `run_sync` does, and call ``ended`` in any thread when its thread is free.

    That may be later than the end of the awaiting task, if the task is cancelled.
    """
    return await _run("MODEL", functools.partial(fn, *args, **kwargs), ended)


def run_within(seconds: float, fn: Callable[[], T]) -> T:
    """Call ``fn`` in a thread of its own and wait at most so long for its result.

    After that, or if the wait is interrupted, ``fn`` can see by `abandoned` that nobody waits.

    Raises:
        TimeoutError: It has not returned in time.
        Exception: Any error of ``fn``.
    """
    departure = _Departure()
    context = contextvars.copy_context()
    context.run(_abandoned.set, departure)
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(context.run(fn))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name="ecs-within", daemon=True).start()
    try:
        return outcome.result(seconds)
    finally:
        departure.set()


async def run_memory(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn`` as `run_sync` does, for work that embeds, reads and writes.

    Raises:
        StorageError: Too many calls are under way; this one did nothing.
        Exception: Any error of ``fn``.
    """
    return await _run("MEMORY", functools.partial(fn, *args, **kwargs))


def abandoned() -> threading.Event | None:
    """Return an event that is set once nobody awaits the present call; None outside of one."""
    return _abandoned.get()


def check_awaited() -> None:
    """End a call that nobody awaits any more, between two of its steps.

    Raises:
        asyncio.CancelledError: The awaiting task has been cancelled.
    """
    event = abandoned()
    if event is not None and event.is_set():
        raise asyncio.CancelledError("nobody waits for this call any more")


def bridged(
    method: Callable[Concatenate[Any, P], T],
    *,
    asks_model: bool = False,
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the async form of a method; a recall with ``shaper`` asks a model too."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        run = run_sync if asks_model or kwargs.get("shaper") else run_memory
        return await run(method, self, *args, **kwargs)

    return call
