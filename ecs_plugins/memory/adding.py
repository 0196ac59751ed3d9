"""Adder of messages: adds chunks, sleeps between them when due, and retries on conflict.

Work that no caller waits for goes to a background thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ecs_plugins.memory.outdating import OutdatingRunner
from ecs_plugins.memory.sleep import SleepRunner
from ecs_plugins.memory.store import additions, intake
from ecs_plugins.memory.store.memory_store import FLUSH_AT, MemoryStore
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.types import Namespace


class Adder:
    """Adds messages to the namespaces of an open memory."""

    def __init__(
        self, store: MemoryStore, sleeper: SleepRunner, outdating: OutdatingRunner | None
    ) -> None:
        self._store = store
        self._outdating = outdating
        self._sleeper = sleeper

    def add(
        self,
        namespace: Namespace,
        messages: Sequence[NewMessage],
        *,
        key: str | None,
        pinned: bool,
    ) -> list[str]:
        """Store messages, each once under an idempotency key; see `EntropicMemory.add`."""
        if self._outdating is not None:
            self._outdating.follow(namespace)
        request = None if key is None else additions.request(key, messages)
        while True:
            batch = intake.prepared(self._store, namespace, messages, request, pinned=pinned)
            try:
                self._store_all(namespace, batch)
            except additions.OvertakenError:
                continue  # others stored a part of it meanwhile: add the rest
            self._sleeper.judge_later(namespace)
            self.tend()
            return batch.ids

    def _store_all(self, namespace: Namespace, batch: intake.MessageBatch) -> None:
        store = self._store
        every = store.config.sleep_every
        while batch.messages:
            since = intake.add(store, namespace, batch)
            if store.settings.sleep != "manual" and since >= every:
                store.database.on_end(partial(self._sleeper.fall_asleep, namespace, since))

    def tend(self) -> None:
        """Hand work that no caller waits for to the background thread."""
        submit = self._sleeper.background.submit
        store = self._store
        for index in store.indexes.take_worn():
            submit(f"rebuilding index {id(index)}", index.rebuild)
        for namespace in store.pending.namespaces(FLUSH_AT):  # a recall waits for no writer
            submit(f"writing hits in {namespace}", partial(self._sleeper.write_hits, namespace))
