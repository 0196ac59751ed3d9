"""Sleep phases in the database: candidates, writes and records."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.consolidation import replay
from ecs_plugins.memory.records import ERASED, RecordedDecision, ReplayedDecision, SleepReport
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.queries import recent_queries
from ecs_plugins.memory.store.tiers import NO_LIMIT, Metadata, TierRow, earliest, shared
from ecs_plugins.memory.store.values import check, crc, dump
from ecs_plugins.memory.types import (
    ColdMemory,
    FreeEnergy,
    HotItem,
    QueryEvent,
    SleepDecision,
    SleepPlan,
    Tier,
)
from ecs_plugins.storage.base import Connection


@dataclass(frozen=True, slots=True)
class SleepView:
    """A namespace as of one transaction, with vectors: the input of a sleep phase.

    Attributes:
        cold: Cold memories by row number; with room for every hot item, only those near to one.
    """

    space: Space
    hot: Sequence[TierRow]
    cold: Mapping[int, ColdMemory]
    queries: Sequence[QueryEvent]


DECISION = TypeAdapter(SleepDecision)
_REPORT = TypeAdapter(SleepReport)


_NEAR = 16
"""Most memories near to a hot item that a sleep phase compares with it."""

_RECORD = 1000
"""Approximate bytes of a memory without its vector."""

_TIE = 1e-6
_MARGIN = 0.05
"""The mean of a cluster may be nearer to a memory than each of its items, by this cosine."""

_STATES = """
    SELECT row, {state} FROM tiers
    WHERE namespace = ? AND live = 1 AND tier = ?
    ORDER BY row
"""
_CHECKED_STATES = _STATES.format(state="evidence_crc")
_UNCHECKED_STATES = _STATES.format(
    state="CAST(evidence AS TEXT) || ' ' || CAST(pinned AS TEXT) || ' ' || CAST(judged AS TEXT)"
)


_item = attrgetter("item")


class TierCache:
    """One tier of a namespace as it was last read, with vectors and members.

    A row never changes but in its evidence, its pin and its judgement, so only rows in which these
    differ are read again.

    Attributes:
        size: Approximate bytes in memory.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.size = 0
        self._states: dict[int, object] = {}
        self._rows: dict[int, TierRow] = {}

    def read(
        self, connection: Connection, space: Space, tier: Tier, store: MemoryStore
    ) -> dict[int, TierRow]:
        """Return the rows of the tier by number, oldest row first."""
        sql = _CHECKED_STATES if store.database.has_checksums else _UNCHECKED_STATES
        states: dict[int, object] = dict(connection.execute(sql, (space.id, tier)).fetchall())
        changed = [row for row, _ in states.items() - self._states.items()]
        rows = self._rows | tiers.by_rows(
            connection, space.id, changed, store.dimension, members=tier == "hot"
        )
        current = dict(zip(states, map(rows.__getitem__, states), strict=True))
        self._rows = current
        self._states = states
        self.size = len(states) * (_RECORD + 4 * store.dimension)
        return current


def _tier(
    store: MemoryStore, connection: Connection, space: Space, tier: Tier
) -> dict[int, TierRow]:
    """Return the rows of a tier by number; unchanged ones are not read again."""
    cache = store.tier_caches.get(
        (space.id, tier), lambda: TierCache(space.epoch), lambda known: known.epoch == space.epoch
    )
    rows: dict[int, TierRow] = cache.read(connection, space, tier, store)
    return rows


def view(store: MemoryStore, connection: Connection, space: Space) -> SleepView:
    """Return the hot tier, the cold memories that matter, and the recent queries of a namespace."""
    config = store.config
    hot = [*_tier(store, connection, space, "hot").values()]
    hot.sort(key=lambda each: (each.item.evidence.created, each.row))
    has_room = space.count["cold"] + len(hot) <= config.cold_capacity
    if has_room and config.rule == "default":
        return SleepView(space, hot, _near(store, connection, space, hot), ())
    rows = _tier(store, connection, space, "cold")
    cold: dict[int, Any] = dict(zip(rows, map(_item, rows.values()), strict=True))
    return SleepView(space, hot, cold, recent_queries(connection, space.id))


def _near(
    store: MemoryStore, connection: Connection, space: Space, hot: Sequence[TierRow]
) -> dict[int, ColdMemory]:
    """Return the cold memories near to a hot item."""
    if not hot or not space.count["cold"]:
        return {}
    index = store.indexes.current(connection, space)
    vectors = np.stack([row.item.vector for row in hot])
    is_near = vectors @ vectors.T >= store.config.merge_threshold
    floors = store.config.merge_threshold - np.where(is_near.sum(axis=1) > 1, _MARGIN, _TIE)
    found: set[int] = set()
    for vector, floor in zip(vectors, floors, strict=True):
        rows, cosines = index.nearest(vector, _NEAR, narrow=True)
        found.update(rows[cosines >= floor].tolist())
    found.difference_update(row.row for row in hot)
    if not found:
        return {}
    near = tiers.by_rows(connection, space.id, found, store.dimension, among=["cold"])
    return {row: near[row].memory for row in sorted(near)}


def can_apply(connection: Connection, space: Space, seen: SleepView, plan: SleepPlan) -> bool:
    """Return True if nothing that a plan changes has changed since its view.

    Messages that were added meanwhile are left to the next sleep phase.
    """
    if space.revision == seen.space.revision:
        return True
    before = seen.space
    if (space.cycle, space.count["cold"]) != (before.cycle, before.count["cold"]):
        return False
    names = {*plan.consumed, *(each.target_id for each in plan.decisions)}
    names.update(item.id for item in plan.judged)
    names.update(memory.id for memory in (*plan.updated, *plan.removed))
    items: dict[int, HotItem | ColdMemory] = {row.row: row.item for row in seen.hot}
    items.update(seen.cold)
    changing = {row: item for row, item in items.items() if item.id in names}
    now = tiers.by_rows(connection, space.id, changing)
    return all(
        row in now
        and now[row].item.evidence == item.evidence
        and now[row].is_pinned == getattr(item, "pinned", False)
        for row, item in changing.items()
    )


_BEGUN = """
    INSERT INTO sleeps (namespace, at, config, report, report_crc) VALUES (?, ?, ?, '{}', 0)
    RETURNING id
"""


def apply(
    connection: Connection, space: Space, seen: SleepView, plan: SleepPlan, config: MemoryConfig
) -> SleepReport:
    """Apply a plan to tiers, provenance and decisions, and return the changes."""
    now = time.time()
    before = dict(space.count)
    settings = dump(config.to_json())
    (sleep,) = connection.execute(_BEGUN, (space.id, now, settings)).fetchone()
    hot = {row.item.id: row for row in seen.hot}
    _write_cold(connection, space, plan, hot, seen.cold, sleep, now)
    consumed = [hot[name] for name in plan.consumed]
    tiers.delete(connection, space, consumed)
    tiers.forget_provenance(connection, plan.consumed)
    for item in plan.judged:
        tiers.update(connection, hot[item.id].row, item, hot[item.id].judged)
    _record(connection, space, sleep, plan.decisions)
    space.since_sleep = space.step - seen.space.step
    space.cycle += 1
    kinds: Counter[str] = Counter(decision.kind for decision in plan.decisions)
    return SleepReport(
        id=sleep,
        namespace=space.namespace,
        at=now,
        counts=dict(kinds),
        hot=(before["hot"], space.count["hot"]),
        cold=(before["cold"], space.count["cold"]),
        temperature=plan.temperature,
        seed=plan.seed,
        config_version=plan.config_version,
    )


def _write_cold(
    connection: Connection,
    space: Space,
    plan: SleepPlan,
    hot: Mapping[str, TierRow],
    memories: Mapping[int, ColdMemory],
    sleep: int,
    now: float,
) -> None:
    cold = {memory.id: row for row, memory in memories.items()}
    joined, judged = _consequences(plan.decisions)
    changed = [cold[memory.id] for memory in (*plan.removed, *plan.updated)]
    gone = tiers.by_rows(connection, space.id, changed)
    tiers.retire(connection, space, [(row, memories[row].vector) for row in gone], sleep)
    of_message = {member: row for row in hot.values() for member in row.hot.members}
    for memory in (*plan.updated, *plan.inserted):
        members = joined.get(memory.id, [])
        behind = {of_message[name].row: of_message[name] for name in members}
        old = gone.get(cold.get(memory.id, 0))
        version = _version(memory, old, behind.values(), now)
        terms = judged.get(memory.id, version.judged)
        version = replace(version, judged=terms, born=sleep)
        tiers.insert(connection, space, version, members)
    # What was contested and stayed keeps the free energy that it was judged at.
    for name, terms in judged.items():
        row = cold.get(name)
        if row is not None and row not in gone:
            tiers.update(connection, row, memories[row], terms)


def _consequences(
    decisions: Iterable[SleepDecision],
) -> tuple[dict[str, list[str]], dict[str, FreeEnergy]]:
    """Return the merged messages of each memory and the free energies."""
    joined: dict[str, list[str]] = {}
    judged: dict[str, FreeEnergy] = {}
    for each in decisions:
        target = each.target_id
        if each.kind in ("insert", "replace"):
            joined.setdefault(each.candidate_id, []).extend(each.members)
        elif each.kind == "reinforce" and target is not None:
            joined.setdefault(target, []).extend(each.members)
        if each.candidate is not None:
            judged[each.candidate_id] = each.candidate
        if each.victim is not None and target is not None:
            judged[target] = each.victim
    return joined, judged


def _version(
    memory: ColdMemory, old: TierRow | None, behind: Iterable[TierRow], now: float
) -> TierRow:
    """Return the next version of a memory that hot items joined."""
    metadata: Metadata | None = None
    expires = None
    if old is not None:
        metadata = old.metadata
        expires = old.expires
    for row in behind:
        metadata = row.metadata if metadata is None else shared(metadata, row.metadata)
        expires = earliest(expires, row.expires)
    new = TierRow(memory, metadata or {}, created=now, changed=now, expires=expires)
    if old is None:
        return new
    return replace(
        new,
        created=old.created,
        version=old.version + 1,
        judged=old.judged,
    )


# The record


def write_report(connection: Connection, report: SleepReport) -> None:
    """Keep the report of a sleep phase."""
    written = _REPORT.dump_json(report).decode()
    connection.execute(
        "UPDATE sleeps SET report = ?, report_crc = ? WHERE id = ?",
        (written, crc(written), report.id),
    )


def reports(connection: Connection, space: int) -> list[SleepReport]:
    """Return the reports of a namespace's sleep phases, newest first."""
    rows = connection.execute(
        "SELECT id, report, report_crc FROM sleeps WHERE namespace = ? ORDER BY id DESC", (space,)
    )
    found = []
    for number, report, checksum in rows:
        check(f"sleep {number}", "report", checksum, (report,))
        found.append(_REPORT.validate_json(report))
    return found


_OF_SLEEP = {"seed", "config_version", "entropy_weight", "temperature"}
"""Fields of a decision that all decisions of a sleep phase share; its own row holds them."""

_DECIDED = """
    INSERT INTO decisions (sleep, namespace, position, record, record_crc) VALUES (?, ?, ?, ?, ?)
    RETURNING id
"""


def _record(
    connection: Connection, space: Space, sleep: int, decisions: Iterable[SleepDecision]
) -> None:
    """Write decisions and the ids by which they are found."""
    naming = []
    for each in decisions:
        record = DECISION.dump_json(each, exclude_none=True, exclude=_OF_SLEEP).decode()
        values = (sleep, space.id, each.index, record, crc(record))
        (number,) = connection.execute(_DECIDED, values).fetchone()
        named = {*each.members}
        if each.kind in ("insert", "replace"):
            named.add(each.candidate_id)
        if each.target_id is not None:
            named.add(each.target_id)
        named -= {"", ERASED}
        naming += [(item, number) for item in named]
    connection.executemany("INSERT INTO decision_items (item, decision) VALUES (?, ?)", naming)


def decisions(
    connection: Connection,
    space: int,
    *,
    sleep: int | None = None,
    item: str | None = None,
    limit: int | None = None,
) -> list[RecordedDecision]:
    """Return the recorded decisions of a namespace, newest sleep phase first."""
    sql = (
        "SELECT s.id, s.at, s.config, s.report, d.erased, d.id, d.record, d.record_crc"
        " FROM decisions d JOIN sleeps s ON s.id = d.sleep WHERE d.namespace = ?"
    )
    values: list[object] = [space]
    if sleep is not None:
        sql += " AND d.sleep = ?"
        values.append(sleep)
    if item is not None:
        sql += " AND d.id IN (SELECT decision FROM decision_items WHERE item = ?)"
        values.append(item)
    sql += " ORDER BY d.sleep DESC, d.position LIMIT ?"
    values.append(NO_LIMIT if limit is None else limit)
    recorded = []
    shared_by: dict[int, dict[str, Any]] = {}
    rows = connection.execute(sql, values)
    for number, at, config, report, erased, name, record, checksum in rows:
        check(f"decision {name}", "record", checksum, (record,))
        if number not in shared_by:
            of_sleep = json.loads(config) | json.loads(report)
            shared_by[number] = {field: of_sleep[field] for field in _OF_SLEEP}
        decision = DECISION.validate_python(json.loads(record) | shared_by[number])
        recorded.append(RecordedDecision(number, at, bool(erased), decision))
    return recorded


def replayed(recorded: Sequence[RecordedDecision]) -> list[ReplayedDecision]:
    """Return each decision with the decision recomputed from its record."""
    recomputed = [replay(each.decision) for each in recorded]
    compared = []
    for each, again in zip(recorded, recomputed, strict=True):
        agrees = again == each.decision
        compared.append(ReplayedDecision(each, again, agrees))
    return compared
