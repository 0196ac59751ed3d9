"""The one bridge from the synchronous core to ``async`` callers.

Work runs in bounded thread pools of this package, not in the event loop's default executor, which
other libraries fill with their own work. Models and memories have a pool each, so that a recall of
milliseconds never waits behind scorings of seconds. The pools belong to the process, so they serve
any number of event loops, and a forked child makes new ones.

How many threads each has may be set: ``ECS_PLUGINS_MODEL_THREADS``, ``ECS_PLUGINS_MEMORY_THREADS``.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from ecs_plugins.errors import ConfigurationError

P = ParamSpec("P")
T = TypeVar("T")

MAX_WORKERS = 8  # threads of a pool that nobody sized

_abandoned: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "ecs_plugins_abandoned", default=None
)
_lock = threading.Lock()
_pools: dict[str, ThreadPoolExecutor] = {}


def _pool(kind: str) -> ThreadPoolExecutor:
    with _lock:
        if kind not in _pools:
            variable = f"ECS_PLUGINS_{kind}_THREADS"
            size = os.environ.get(variable, str(MAX_WORKERS))
            if not size.isdecimal() or not int(size):
                raise ConfigurationError(f"{variable} is {size!r}; it must be a positive number")
            _pools[kind] = ThreadPoolExecutor(int(size), thread_name_prefix=f"ecs-{kind.lower()}")
        return _pools[kind]


def _forget_after_fork() -> None:
    # The parent's threads do not exist in the child, and its lock may have been held.
    global _lock
    _pools.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


async def _run(kind: str, fn: Callable[[], T]) -> T:
    context, event = contextvars.copy_context(), threading.Event()
    context.run(_abandoned.set, event)
    try:
        return await asyncio.get_running_loop().run_in_executor(_pool(kind), context.run, fn)
    except asyncio.CancelledError:
        event.set()
        raise


async def run_sync(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn``, which may ask a model, in a worker thread and await what it returns.

    Context variables of the caller are visible in ``fn``; what ``fn`` sets stays there. If the
    awaiting task is cancelled before a worker took the call, it never runs; a call that has
    begun can see it by `abandoned`, and what it still returns is dropped.

    Raises:
        Exception: Whatever ``fn`` raises.
    """
    return await _run("MODEL", functools.partial(fn, *args, **kwargs))


async def run_memory(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """As `run_sync`, for what embeds, reads and writes."""
    return await _run("MEMORY", functools.partial(fn, *args, **kwargs))


def abandoned() -> threading.Event | None:
    """Set once nobody awaits the present call any more; None outside of `run_sync`."""
    return _abandoned.get()


def bridged(
    method: Callable[Concatenate[Any, P], T], *, asks_model: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The async form of a method, off the event loop; a recall by ``shaper`` asks a model too."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        run = run_sync if asks_model or kwargs.get("shaper") else run_memory
        return await run(method, self, *args, **kwargs)

    return call
