"""What every part of `EntropicMemory` stands on: the open file, and the bridge to async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from ecs_plugins.common.aio import run_sync
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.store.core import Core
from ecs_plugins.memory.store.editing import Editing
from ecs_plugins.memory.store.maintenance import Maintenance
from ecs_plugins.memory.store.running import Running

P = ParamSpec("P")
S = TypeVar("S", bound="Opened")
T = TypeVar("T")


def bridged(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Awaitable[T]]:
    """The async form of a method: the same call in a worker thread."""

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_sync(method, self, *args, **kwargs)

    return call


class Opened:
    """An open memory.

    Args:
        core: The open file.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._editing = Editing(core)
        self._maintenance = Maintenance(core)
        self._running = Running(core, self._editing)

    @property
    def config(self) -> MemoryConfig:
        """What is kept."""
        return self._core.config

    @property
    def path(self) -> str:
        """The file."""
        return self._core.database.path
