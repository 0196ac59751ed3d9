"""`EntropicMemory` looked at: what is in it, where it comes from, whether it is sound."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ecs_plugins.memory.facade.opened import Opened, bridged
from ecs_plugins.memory.namespaces import DEFAULT_NAMESPACE, Namespace, checked
from ecs_plugins.memory.records import Explanation, Memory, MemoryStats
from ecs_plugins.memory.store import inspecting, spaces
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.messages import Message
from ecs_plugins.memory.store.verification import Verification


class Looking(Opened):
    """Lists, explains and verifies what is stored."""

    def get(self, item_id: str) -> Message | Memory | None:
        """A message of the log, or the present version of a memory; None if there is none."""
        with self._core.database.read() as connection:
            message = log.get(connection, item_id)
            if message is not None:
                expired = message.expires is not None and message.expires <= time.time()
                return None if expired else message
            live = [each for each in inspecting.history(connection, item_id) if each.live]
            return live[0] if live else None

    def history(self, memory_id: str) -> list[Memory]:
        """Every stored version of a memory, oldest first."""
        with self._core.database.read() as connection:
            return inspecting.history(connection, memory_id)

    def messages(
        self,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        *,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[Message]:
        """The newest ``limit`` messages with a step below ``before``, oldest first."""
        with self._core.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return log.log(
                connection,
                space.id,
                now=time.time(),
                limit=-1 if limit is None else limit,
                before=before,
            )

    def memories(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[Memory]:
        """The cold tier, oldest memory first."""
        with self._core.reading(checked(namespace)) as (connection, space):
            return [] if space is None else inspecting.cold(connection, space, time.time())

    def explain(self, item_id: str) -> Explanation:
        """Everything on record about a memory or a message.

        Raises:
            InvalidInputError: Nothing of this id is stored.
        """
        with self._core.database.read() as connection:
            return inspecting.explain(
                connection,
                item_id,
                config=self.config,
                dimension=self._core.dimension,
                utility=self._core.utility,
            )

    def namespaces(self, prefix: Sequence[str] | None = None) -> list[Namespace]:
        """All namespaces, or those equal to ``prefix`` or below it, label by label."""
        with self._core.database.read() as connection:
            found = spaces.listed(connection, None if prefix is None else checked(prefix))
        return [space.namespace for space in found]

    def stats(self, prefix: Sequence[str] | None = None) -> MemoryStats:
        """How full the memory is."""
        return self._maintenance.stats(None if prefix is None else checked(prefix))

    def verify(self) -> Verification:
        """Check every promise of the file that can be checked."""
        return self._maintenance.verify()

    aget = bridged(get)
    ahistory = bridged(history)
    amessages = bridged(messages)
    amemories = bridged(memories)
    aexplain = bridged(explain)
    anamespaces = bridged(namespaces)
    astats = bridged(stats)
    averify = bridged(verify)
