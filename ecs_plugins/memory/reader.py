"""`MemoryReader`: reads a memory without changing anything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ecs_plugins.common.aio import bridged
from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.records import (
    Explanation,
    Memory,
    RecordedDecision,
    ReplayedDecision,
    SleepReport,
)
from ecs_plugins.memory.store import inspection, namespaces, sleeps
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.erasing import unknown
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.memory.store.outdated import outdating_ids
from ecs_plugins.memory.store.provenance import Origin
from ecs_plugins.memory.types import DEFAULT_NAMESPACE, Namespace, UtilityFunction
from ecs_plugins.storage.base import Connection


class MemoryReader:
    """The reading half of an `EntropicMemory`.

    A namespace, where one is given beside an id, is whose item it must be: anybody else's is not
    found.
    """

    def __init__(self, store: MemoryStore, utility: UtilityFunction | None) -> None:
        self._store = store
        self._utility = utility

    def get(self, item_id: str, *, namespace: Sequence[str] | None = None) -> Memory | None:
        """Return a message of the log, or the live version of a memory; None if there is none."""
        own = self._own(item_id, namespace)
        if own is None:
            return None
        with self._store.database.read() as connection:
            message = log.get(connection, own)
            if message is not None:
                return None if _has_expired(message) else _marked(connection, message)
            versions = inspection.history(connection, own)
        live = next((each for each in versions if each.live), None)
        if live is None or live.expires is None:
            return live
        # Something behind it may have expired: what is left of it is what is recalled.
        for memory in self.memories(live.namespace):
            if memory.id == own:
                return memory
        return None

    def history(self, memory_id: str, *, namespace: Sequence[str] | None = None) -> list[Memory]:
        """Return every stored version of a memory, oldest first."""
        own = self._own(memory_id, namespace)
        if own is None:
            return []
        with self._store.database.read() as connection:
            return inspection.history(connection, own)

    def messages(
        self,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        *,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[Memory]:
        """Return the newest ``limit`` messages with a step below ``before``, oldest first."""
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return log.log(connection, space.id, now=time.time(), limit=limit, before=before)

    def memories(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[Memory]:
        """Return the cold tier, oldest memory first."""
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return inspection.cold(connection, space, self._store)

    def explain(self, item_id: str, *, namespace: Sequence[str] | None = None) -> Explanation:
        """Return everything on record about a memory or a message.

        Raises:
            InvalidInputError: Nothing of this id is stored.
        """
        item_id = self._required(item_id, namespace)
        with self._store.database.read() as connection:
            return inspection.explain(connection, item_id, self._store, self._utility)

    def namespaces(self, prefix: Sequence[str] | None = None) -> list[Namespace]:
        """Return all namespaces, or those equal to ``prefix`` or below it, label by label."""
        above = None if prefix is None else checked(prefix)
        with self._store.database.read() as connection:
            spaces = namespaces.list_spaces(connection, above)
        return [space.namespace for space in spaces]

    def sleeps(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[SleepReport]:
        """Return the reports of a namespace's sleep phases, newest first."""
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return sleeps.reports(connection, space.id)

    def decisions(
        self,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        *,
        sleep_id: int | None = None,
        item_id: str | None = None,
        limit: int | None = None,
    ) -> list[RecordedDecision]:
        """Return decisions, the newest sleep phase first; of one sleep phase or item if given."""
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return sleeps.decisions(
                connection,
                space.id,
                sleep=sleep_id,
                item=item_id,
                limit=limit,
            )

    def replay(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[ReplayedDecision]:
        """Recompute every decision of a namespace from its record."""
        return sleeps.replayed(self.decisions(namespace))

    def _own(self, item_id: str, namespace: Sequence[str] | None) -> str | None:
        """Return an id in valid Unicode; None if it belongs to another namespace."""
        if not isinstance(item_id, str):
            raise InvalidInputError(f"an id is a text, got {item_id!r:.80}")
        item_id = well_formed(item_id)
        if namespace is None:
            return item_id
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is not None and inspection.stands_in(connection, item_id, space):
                return item_id
        return None

    def _required(self, item_id: str, namespace: Sequence[str] | None) -> str:
        own = self._own(item_id, namespace)
        if own is None:
            raise unknown(item_id)
        return own

    aget = bridged(get)
    ahistory = bridged(history)
    amessages = bridged(messages)
    amemories = bridged(memories)
    aexplain = bridged(explain)
    anamespaces = bridged(namespaces)
    asleeps = bridged(sleeps)
    adecisions = bridged(decisions)
    areplay = bridged(replay)


def _marked(connection: Connection, message: Memory) -> Memory:
    """Return a message with the id of the one that outdates it, if a judge says so."""
    newer = outdating_ids(connection, {message.id: Origin((message.id,))}, time.time())
    return replace(message, outdated_by=newer.get(message.id))


def _has_expired(message: Memory) -> bool:
    return message.expires is not None and message.expires <= time.time()
