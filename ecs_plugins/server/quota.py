"""How much each client may have remembered: a server's disk is everybody's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ecs_plugins.common.aio import run_memory
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.memory.types import Namespace


@dataclass(frozen=True, slots=True)
class Quota:
    """What one client may have remembered.

    Attributes:
        items: Statements.
        bytes: Of all statements, in UTF-8.
        bytes_of_one: Of one statement.
    """

    items: int = 10_000
    bytes: int = 16 << 20
    bytes_of_one: int = 16 << 10


@dataclass(slots=True)
class _Used:
    items: int
    bytes: int


class Quotas:
    """What every client has remembered, counted once and then kept up to date."""

    def __init__(self, memory: EntropicMemory, quota: Quota) -> None:
        self._memory = memory
        self._quota = quota
        self._used: dict[Namespace, _Used] = {}
        self._locks: dict[Namespace, asyncio.Lock] = {}

    @asynccontextmanager
    async def room_for(self, namespace: Namespace, text: str) -> AsyncIterator[None]:
        """See that there is room for a statement, and count it if the block adds it.

        Raises:
            InvalidInputError: It is too long, or the client has too many or too much.
        """
        size = len(text.encode(errors="replace"))
        if size > self._quota.bytes_of_one:
            raise InvalidInputError(
                f"a statement may have {self._quota.bytes_of_one:,} bytes, got {size:,}; split it"
            )
        async with self._locks.setdefault(namespace, asyncio.Lock()):
            used = self._used.get(namespace)
            if used is None:
                used = self._used[namespace] = await run_memory(self._count, namespace)
            if used.items >= self._quota.items:
                raise InvalidInputError(
                    f"{used.items:,} statements are remembered, which is all there may be; forget "
                    "some first"
                )
            if used.bytes + size > self._quota.bytes:
                raise InvalidInputError(
                    f"statements of {used.bytes:,} bytes are remembered, and there may be "
                    f"{self._quota.bytes:,}; forget some first"
                )
            yield
            used.items += 1
            used.bytes += size

    def changed(self, namespace: Namespace) -> None:
        """Count a client's statements anew, because some have been erased."""
        self._used.pop(namespace, None)

    def _count(self, namespace: Namespace) -> _Used:
        texts = [message.text for message in self._memory.messages(namespace)]
        return _Used(len(texts), sum(len(text.encode()) for text in texts))
