"""One sleep phase against the database: read, decide outside, write in one transaction.

The decision is computed on a consistent view without holding any lock. The transaction that
carries it out first checks that nobody changed the namespace meanwhile; if somebody did, the
sleep phase starts again, and after a few times it decides inside the transaction, with the
summaries that are already written. So the store stands before a sleep phase or after it.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.consolidation import consolidate
from ecs_plugins.memory.namespaces import Namespace, encode
from ecs_plugins.memory.records import SleepReport
from ecs_plugins.memory.store import cold_memories, hot_items, rows, spaces
from ecs_plugins.memory.store.cold_memories import ColdRow
from ecs_plugins.memory.store.database import Database
from ecs_plugins.memory.store.decisions import record_decisions
from ecs_plugins.memory.store.hot_items import HotRow
from ecs_plugins.memory.store.known_memories import ColdTier, KnownMemories
from ecs_plugins.memory.store.rows import dump, next_row
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.summaries import Summariser
from ecs_plugins.memory.types import (
    ColdMemory,
    FreeEnergy,
    QueryEvent,
    SleepDecision,
    SleepPlan,
    UtilityFunction,
)
from ecs_plugins.memory.utility import QUERY_WINDOW

_OPTIMISTIC_ATTEMPTS = 3


def seed_of(config: MemoryConfig, namespace: Namespace, cycle: int) -> int:
    """The seed of a sleep phase, from the base seed, the namespace and how many there were."""
    text = f"{config.seed}:{encode(namespace)}:{cycle}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])


@dataclass(frozen=True, slots=True)
class _View:
    """What a sleep phase decides on."""

    space: Space
    hot: Sequence[HotRow]
    cold: ColdTier
    queries: Sequence[QueryEvent]


class Sleeping:
    """Runs the sleep phases of one namespace.

    Args:
        database: Where.
        config: The settings.
        dimension: Length of the vectors.
        utility: Replaces the configured utility.
        known: The memories that were read before.
    """

    def __init__(
        self,
        database: Database,
        *,
        config: MemoryConfig,
        dimension: int,
        utility: UtilityFunction | None,
        known: KnownMemories,
    ) -> None:
        self._known = known
        self._database = database
        self._config = config
        self._dimension = dimension
        self._utility = utility

    def run(self, namespace: Namespace, summariser: Summariser | None) -> SleepReport | None:
        """Sleep once; None if nothing was ever stored in the namespace."""
        started = time.perf_counter()
        attempts = 0
        while True:
            attempts += 1
            view: _View | None = None
            if attempts <= _OPTIMISTIC_ATTEMPTS:
                with self._database.read() as connection:
                    view = self._view(connection, namespace)
                if view is None:
                    return None
                plan = self._decide(view, summariser)
            elif summariser is not None:
                summariser.may_generate = False
            with self._database.write() as connection:
                if view is None:
                    view = self._view(connection, namespace)
                    if view is None:
                        return None
                    plan = self._decide(view, summariser)
                elif not _unchanged(connection, view.space):
                    continue
                report, written = self._apply(connection, view, plan, summariser, attempts, started)
            self._known.note(view.space, written)
            return report

    def _view(self, connection: sqlite3.Connection, namespace: Namespace) -> _View | None:
        space = spaces.find(connection, namespace)
        if space is None:
            return None
        return _View(
            space,
            hot_items.hot_tier(connection, space.id, self._dimension, members=True),
            self._known.tier(connection, space, self._dimension),
            recent_queries(connection, space.id),
        )

    def _decide(self, view: _View, summariser: Summariser | None) -> SleepPlan:
        return consolidate(
            [row.item for row in view.hot],
            [row.memory for row in view.cold.rows],
            config=self._config,
            step=view.space.step,
            seed=seed_of(self._config, view.space.namespace, view.space.cycle),
            queries=view.queries,
            utility=self._utility,
            summarise=summariser,
        )

    def _apply(
        self,
        connection: sqlite3.Connection,
        view: _View,
        plan: SleepPlan,
        summariser: Summariser | None,
        attempts: int,
        started: float,
    ) -> tuple[SleepReport, Sequence[ColdRow]]:
        space, now = view.space, time.time()
        before = (space.hot.count, space.cold.count)
        cursor = connection.execute(
            "INSERT INTO sleeps (namespace, at, config, report) VALUES (?, ?, ?, '{}')",
            (space.id, now, dump(self._config.to_json())),
        )
        assert cursor.lastrowid is not None
        applying = _Applying(connection, view, plan, sleep=cursor.lastrowid, now=now)
        applying.apply()
        space.since_sleep = space.novel = 0
        space.cycle += 1
        space.save(connection)
        report = SleepReport(
            id=cursor.lastrowid,
            namespace=space.namespace,
            at=now,
            counts=dict(Counter(decision.kind for decision in plan.decisions)),
            hot=(before[0], space.hot.count),
            cold=(before[1], space.cold.count),
            temperature=plan.temperature,
            seed=plan.seed,
            config_version=plan.config_version,
            attempts=attempts,
            problems=() if summariser is None else tuple(summariser.problems),
            summary_tokens=(0, 0) if summariser is None else summariser.tokens,
            seconds=time.perf_counter() - started,
        )
        connection.execute(
            "UPDATE sleeps SET report = ? WHERE id = ?", (dump(asdict(report)), report.id)
        )
        return report, applying.written


def _unchanged(connection: sqlite3.Connection, space: Space) -> bool:
    current = spaces.find(connection, space.namespace)
    return current is not None and current.revision == space.revision


class _Applying:
    """Carries out one plan within one transaction.

    Attributes:
        written: The new rows of the cold tier.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        view: _View,
        plan: SleepPlan,
        *,
        sleep: int,
        now: float,
    ) -> None:
        self._connection = connection
        self._space = view.space
        self._plan = plan
        self._sleep = sleep
        self._now = now
        self._cold = {row.memory.id: row for row in view.cold.rows}
        self._hot = {row.item.id: row for row in view.hot}
        self._of_message = {member: row for row in view.hot for member in row.item.members}
        self._joined: dict[str, list[str]] = {}
        self._judged: dict[str, FreeEnergy] = {}
        self.written: Sequence[ColdRow] = ()
        for decision in plan.decisions:
            self._take(decision)

    def _take(self, decision: SleepDecision) -> None:
        if decision.kind in ("insert", "replace"):
            self._joined.setdefault(decision.candidate_id, []).extend(decision.members)
        elif decision.kind == "reinforce" and decision.target_id is not None:
            self._joined.setdefault(decision.target_id, []).extend(decision.members)
        if decision.candidate is not None:
            self._judged[decision.candidate_id] = decision.candidate
        if decision.victim is not None and decision.target_id is not None:
            self._judged[decision.target_id] = decision.victim

    def apply(self) -> None:
        """Write tiers, provenance and decisions."""
        plan, space = self._plan, self._space
        self._write_cold()
        self._keep_judgements()
        consumed = [self._hot[name].row for name in plan.consumed]
        hot_items.consume(self._connection, space.id, consumed, self._sleep)
        if consumed:
            space.rewrote("hot", -len(consumed))
        self._connection.executemany(
            "UPDATE hot_items SET judged = ? WHERE row = ?",
            ((item.judged, self._hot[item.id].row) for item in plan.judged),
        )
        record_decisions(self._connection, space, self._sleep, plan.decisions)

    def _write_cold(self) -> None:
        plan, connection = self._plan, self._connection
        gone = [self._cold[memory.id].row for memory in (*plan.removed, *plan.updated)]
        first = next_row(connection, "memories")
        self.written = new = [
            self._version(memory, row)
            for row, memory in enumerate((*plan.updated, *plan.inserted), start=first)
        ]
        cold_memories.retire_cold(connection, gone, self._sleep)
        cold_memories.insert_all(connection, new)
        cold_memories.join(
            connection,
            (
                (message, row.memory.id, row.version)
                for row in new
                for message in self._joined.get(row.memory.id, ())
            ),
        )
        if gone:
            self._space.rewrote("cold", -len(plan.removed))
        if plan.inserted:
            self._space.appended("cold", len(plan.inserted))

    def _version(self, memory: ColdMemory, row: int) -> ColdRow:
        """The next version of a memory."""
        old = self._cold.get(memory.id)
        metadata: rows.Metadata | None = None if old is None else old.metadata
        expires = None if old is None else old.expires
        members = self._joined.get(memory.id, ())
        for hot in {self._of_message[m].row: self._of_message[m] for m in members}.values():
            metadata = hot.metadata if metadata is None else rows.shared(metadata, hot.metadata)
            expires = rows.earliest(expires, hot.expires)
        return ColdRow(
            row=row,
            version=1 if old is None else old.version + 1,
            space=self._space.id,
            live=True,
            born=self._sleep,
            died=None,
            memory=memory,
            metadata=metadata or {},
            created=self._now if old is None else old.created,
            changed=self._now,
            expires=expires,
            judged=self._judged.get(memory.id, None if old is None else old.judged),
        )

    def _keep_judgements(self) -> None:
        """Note the free energy of memories that were contested and stayed."""
        changed = {memory.id for memory in (*self._plan.removed, *self._plan.updated)}
        self._connection.executemany(
            "UPDATE memories SET energy = ?, entropy = ?, free_energy = ? WHERE row = ?",
            (
                (terms.energy, terms.entropy, terms.total, self._cold[name].row)
                for name, terms in self._judged.items()
                if name in self._cold and name not in changed
            ),
        )


def recent_queries(connection: sqlite3.Connection, space: int) -> list[QueryEvent]:
    """The recent queries of a namespace, oldest first."""
    rows = connection.execute(
        "SELECT step, vector, text, answer FROM queries WHERE namespace = ?"
        " ORDER BY id DESC LIMIT ?",
        (space, QUERY_WINDOW),
    ).fetchall()
    return [
        QueryEvent(step, np.frombuffer(vector, dtype="<f4"), text, answer)
        for step, vector, text, answer in reversed(rows)
    ]
