"""The one bridge from the synchronous core to ``async`` callers.

Work runs in a bounded thread pool of this package, not in the event loop's default executor,
which other libraries fill with their own work. The pool belongs to the process, so it serves
any number of event loops, and a forked child makes a new one.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

MAX_WORKERS = 8
"""Threads that wait for a model; the model itself decides how many of them it serves at once."""

_abandoned: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "ecs_plugins_abandoned", default=None
)
_lock = threading.Lock()
_executor: ThreadPoolExecutor | None = None


def _shared_executor() -> ThreadPoolExecutor:
    global _executor
    with _lock:
        if _executor is None:
            _executor = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="ecs-plugins")
        return _executor


def _forget_after_fork() -> None:
    # The parent's threads do not exist in the child, and its lock may have been held.
    global _executor, _lock
    _executor = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


async def run_sync(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn`` in a worker thread and await what it returns.

    Context variables of the caller are visible in ``fn``; what ``fn`` sets stays there. If the
    awaiting task is cancelled before a worker took the call, it never runs; a call that has
    begun can see it by `abandoned`, and what it still returns is dropped.

    Raises:
        Exception: Whatever ``fn`` raises.
    """
    context, event = contextvars.copy_context(), threading.Event()
    context.run(_abandoned.set, event)
    call = functools.partial(context.run, fn, *args, **kwargs)
    try:
        return await asyncio.get_running_loop().run_in_executor(_shared_executor(), call)
    except asyncio.CancelledError:
        event.set()
        raise


def abandoned() -> threading.Event | None:
    """Set once nobody awaits the present call any more; None outside of `run_sync`."""
    return _abandoned.get()


def bridged(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Awaitable[T]]:
    """The async form of a method: the same call in a worker thread."""

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_sync(method, self, *args, **kwargs)

    return call
