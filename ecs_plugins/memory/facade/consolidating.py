"""`EntropicMemory` asleep: running sleep phases, undoing them, and accounting for them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ecs_plugins.memory.facade.opened import Opened, bridged
from ecs_plugins.memory.namespaces import DEFAULT_NAMESPACE, checked
from ecs_plugins.memory.records import RecordedDecision, ReplayedDecision, SleepReport
from ecs_plugins.memory.store import spaces
from ecs_plugins.memory.store.decisions import decisions, replayed
from ecs_plugins.memory.store.undoing import sleeps, undo


class Consolidating(Opened):
    """Runs, undoes, lists and recomputes sleep phases."""

    def sleep(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> SleepReport | None:
        """Run one sleep phase now; None if nothing was ever stored in the namespace.

        Raises:
            ModelError: The language model failed, with ``on_summary_error="raise"``.
            StorageError: It could not be written. In both cases nothing has changed.
        """
        return self._running.sleep(checked(namespace))

    def sleep_all(self) -> list[SleepReport]:
        """Run a sleep phase in every namespace to which something was added since its last one."""
        with self._core.database.read() as connection:
            waiting = [each.namespace for each in spaces.listed(connection) if each.since_sleep]
        return [report for each in waiting if (report := self.sleep(each)) is not None]

    def undo(self, sleep_id: int) -> None:
        """Put both tiers back to where they were before a namespace's latest sleep phase.

        Raises:
            InvalidInputError: There is no such sleep phase, it was undone, or a later one stands.
        """
        with self._core.writing() as connection:
            undo(
                connection,
                sleep_id,
                config=self.config,
                dimension=self._core.dimension,
                retention=self._core.store.log_retention,
                now=time.time(),
            )

    def sleeps(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[SleepReport]:
        """The reports of a namespace's sleep phases, newest first."""
        with self._core.reading(checked(namespace)) as (connection, space):
            return [] if space is None else sleeps(connection, space.id)

    def replay(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[ReplayedDecision]:
        """Recompute every decision of a namespace from what was recorded about it."""
        return replayed(self.decisions(namespace))

    def decisions(
        self,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        *,
        sleep_id: int | None = None,
        item_id: str | None = None,
        limit: int | None = None,
    ) -> list[RecordedDecision]:
        """Recorded decisions, the newest sleep phase first; of one sleep phase or item if given."""
        with self._core.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return decisions(
                connection,
                space.id,
                sleep=sleep_id,
                item=item_id,
                limit=-1 if limit is None else limit,
            )

    asleep = bridged(sleep)
    asleep_all = bridged(sleep_all)
    aundo = bridged(undo)
    asleeps = bridged(sleeps)
    areplay = bridged(replay)
    adecisions = bridged(decisions)
