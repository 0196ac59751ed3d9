"""Sleep phases in the database: what they decide on, what they write, and their record."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.contest import replay
from ecs_plugins.memory.records import ERASED, RecordedDecision, ReplayedDecision, SleepReport
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.queries import recent_queries
from ecs_plugins.memory.store.tiers import NO_LIMIT, Metadata, TierRow, earliest, shared
from ecs_plugins.memory.store.values import check, crc, dump
from ecs_plugins.memory.types import ColdMemory, FreeEnergy, QueryEvent, SleepDecision, SleepPlan
from ecs_plugins.storage.base import Connection


@dataclass(frozen=True, slots=True)
class SleepView:
    """What a sleep phase decides on: a namespace as of one transaction, with vectors.

    Of the cold tier it knows memories by row number: few of the rows will change.
    """

    space: Space
    hot: Sequence[TierRow]
    cold: Mapping[int, ColdMemory]
    queries: Sequence[QueryEvent]


DECISION = TypeAdapter(SleepDecision)
_REPORT = TypeAdapter(SleepReport)


def view(connection: Connection, space: Space, dimension: int) -> SleepView:
    """Both tiers and the recent queries of a namespace."""
    hot = tiers.tier_rows(connection, space.id, "hot", dimension)
    cold = tiers.tier_rows(connection, space.id, "cold", dimension)
    numbered = {row.row: row.memory for row in cold}
    queries = recent_queries(connection, space.id)
    return SleepView(space, hot, numbered, queries)


_BEGUN = """
    INSERT INTO sleeps (namespace, at, config, report, report_crc) VALUES (?, ?, ?, '{}', 0)
    RETURNING id
"""


def apply(
    connection: Connection, space: Space, seen: SleepView, plan: SleepPlan, config: MemoryConfig
) -> SleepReport:
    """Carry out the plan made on a view: tiers, provenance and decisions; returns what was done."""
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
        tiers.update(connection, hot[item.id], item)
    _record(connection, space, sleep, plan.decisions)
    space.since_sleep = 0
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
    tiers.retire(connection, space, gone.values(), sleep)
    of_message = {member: row for row in hot.values() for member in row.hot.members}
    versions = []
    for memory in (*plan.updated, *plan.inserted):
        members = joined.get(memory.id, [])
        behind = {of_message[name].row: of_message[name] for name in members}
        old = gone.get(cold.get(memory.id, 0))
        version = _version(memory, old, behind.values(), now)
        terms = judged.get(memory.id, version.judged)
        version = replace(version, judged=terms, born=sleep)
        versions.append((version, members))
    tiers.insert_all(connection, space, versions)
    # What was contested and stayed keeps the free energy that it was judged at.
    contested = []
    for name, terms in judged.items():
        row = cold.get(name)
        if row is not None and row not in gone:
            contested.append((row, memories[row], terms))
    tiers.update_all(connection, contested)


def _consequences(
    decisions: Iterable[SleepDecision],
) -> tuple[dict[str, list[str]], dict[str, FreeEnergy]]:
    """Which messages joined which memory, and what was judged at which free energy."""
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
    """The next version of a memory that hot items joined."""
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
    """The reports of a namespace's sleep phases, newest first."""
    rows = connection.execute(
        "SELECT id, report, report_crc FROM sleeps WHERE namespace = ? ORDER BY id DESC", (space,)
    )
    found = []
    for number, report, checksum in rows:
        check(f"sleep {number}", "report", checksum, (report,))
        found.append(_REPORT.validate_json(report))
    return found


_DECIDED = """
    INSERT INTO decisions (sleep, namespace, position, record, record_crc) VALUES (?, ?, ?, ?, ?)
    RETURNING id
"""


def _record(
    connection: Connection, space: Space, sleep: int, decisions: Iterable[SleepDecision]
) -> None:
    """Write decisions and the ids by which they are found."""
    for each in decisions:
        record = DECISION.dump_json(each).decode()
        values = (sleep, space.id, each.index, record, crc(record))
        (number,) = connection.execute(_DECIDED, values).fetchone()
        named = {each.candidate_id, *each.members}
        if each.target_id is not None:
            named.add(each.target_id)
        named -= {"", ERASED}
        connection.executemany(
            "INSERT INTO decision_items (item, decision) VALUES (?, ?)",
            [(item, number) for item in named],
        )


def decisions(
    connection: Connection,
    space: int,
    *,
    sleep: int | None = None,
    item: str | None = None,
    limit: int | None = None,
) -> list[RecordedDecision]:
    """Recorded decisions of a namespace, newest sleep phase first, each in its order."""
    sql = (
        "SELECT s.id, s.at, s.undone, d.erased, d.id, d.record, d.record_crc FROM decisions d"
        " JOIN sleeps s ON s.id = d.sleep WHERE d.namespace = ?"
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
    for number, at, undone, erased, name, record, checksum in connection.execute(sql, values):
        check(f"decision {name}", "record", checksum, (record,))
        decision = DECISION.validate_json(record)
        is_undone = undone is not None
        recorded.append(RecordedDecision(number, at, is_undone, bool(erased), decision))
    return recorded


def replayed(recorded: Sequence[RecordedDecision]) -> list[ReplayedDecision]:
    """Each decision beside what follows from its own record."""
    recomputed = [replay(each.decision) for each in recorded]
    compared = []
    for each, again in zip(recorded, recomputed, strict=True):
        agrees = again == each.decision
        compared.append(ReplayedDecision(each, again, agrees))
    return compared
