"""Bridge from the synchronous core to ``async`` callers.

Work runs in bounded thread pools of this package. The event loop's default executor is not used,
because other libraries fill it. Models and memories have separate pools, so a recall of
milliseconds never waits for scorings of seconds. A pool belongs to the process and serves any
number of event loops. A forked child makes new pools.

Environment variables set the number of threads (``ECS_PLUGINS_MODEL_THREADS``,
``ECS_PLUGINS_MEMORY_THREADS``) and the number of calls that may be in progress
(``ECS_PLUGINS_MODEL_WAITING``, ``ECS_PLUGINS_MEMORY_WAITING``). Further calls are refused.
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

from ecs_plugins.errors import ConfigurationError, ModelBusyError, StorageError

P = ParamSpec("P")
T = TypeVar("T")

MAX_WORKERS = 8  # default threads of a pool
MAX_WAITING = 10_000  # default calls in progress

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
    """Count a call as in progress and return its pool."""
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


async def _run(kind: str, fn: Callable[[], T]) -> T:
    context = contextvars.copy_context()
    event = threading.Event()
    context.run(_abandoned.set, event)
    pool = _admit(kind)
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(pool, context.run, fn)
    except asyncio.CancelledError:
        event.set()
        raise
    finally:
        with _lock:
            _under_way[kind] -= 1


async def run_sync(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn``, which may use a model, in a worker thread and await its result.

    ``fn`` sees the context variables of the caller; its own changes stay in the thread. If the
    awaiting task is cancelled before a worker takes the call, it never runs. A running call can
    check `abandoned`, and its result is dropped.

    Raises:
        ModelBusyError: Too many calls are in progress; this one did nothing.
        Exception: Any error of ``fn``.
    """
    call = functools.partial(fn, *args, **kwargs)
    return await _run("MODEL", call)


def run_within(seconds: float, fn: Callable[[], T]) -> T:
    """Call ``fn`` in a new thread and return its result within ``seconds``.

    After the timeout or an interrupt, `abandoned` tells ``fn`` that the caller has left.

    Raises:
        TimeoutError: ``fn`` has not returned in time.
        Exception: Any error of ``fn``.
    """
    left = threading.Event()
    context = contextvars.copy_context()
    context.run(_abandoned.set, left)
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
        left.set()


async def run_memory(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn`` like `run_sync`, in the pool of memories; raise `StorageError` if it is full."""
    call = functools.partial(fn, *args, **kwargs)
    return await _run("MEMORY", call)


def abandoned() -> threading.Event | None:
    """Return the event that is set once the caller has left; None outside of `run_sync`."""
    return _abandoned.get()


def check_awaited() -> None:
    """Stop a call of `run_sync` between two steps if its caller has left.

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
    """Return the async form of a method. A call with ``shaper`` uses the pool of models."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        run = run_sync if asks_model or kwargs.get("shaper") else run_memory
        return await run(method, self, *args, **kwargs)

    return call
