"""Looking into a memory: one item, its history, its explanation, the state and soundness of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ecs_plugins.memory.consolidation import free_energies
from ecs_plugins.memory.energy import SUPERSEDED
from ecs_plugins.memory.prior import worth
from ecs_plugins.memory.records import Explanation, Memory, NamespaceStats, Verification
from ecs_plugins.memory.store import claims, namespaces, tiers
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.derivation import alive
from ecs_plugins.memory.store.erasure import unknown
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.messages import Message
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.queries import recent_queries
from ecs_plugins.memory.store.schema import columns
from ecs_plugins.memory.store.seam import SpaceIndexes
from ecs_plugins.memory.store.sleeps import decisions, replayed
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.store.values import crc
from ecs_plugins.memory.types import TIERS, FreeEnergy, Namespace, UtilityFunction
from ecs_plugins.storage.base import Connection

Check = Callable[[], Iterable[str]]


def history(connection: Connection, name: str) -> list[Memory]:
    """Every stored version of a memory, oldest first."""
    rows = [row for row in tiers.versions(connection, name) if row.tier == "cold"]
    if not rows:
        return []
    namespace = namespaces.space_by_id(connection, rows[0].space).namespace
    joined = tiers.provenance(connection, [name]).get(name, {})
    valid = claims.validity(connection, [name])[name]
    return [
        _memory(row, namespace, [each for each in joined if joined[each] <= row.version], valid)
        for row in rows
    ]


def stands_in(connection: Connection, name: str, space: Space) -> bool:
    """Whether an id is that of a message or an item of a namespace."""
    found = connection.execute(
        "SELECT 1 FROM messages WHERE id = ?1 AND namespace = ?2"
        " UNION SELECT 1 FROM tiers WHERE id = ?1 AND namespace = ?2",
        (name, space.id),
    )
    return found.fetchone() is not None


def _memory(
    row: TierRow, namespace: Namespace, provenance: Iterable[str], valid: claims.Validity
) -> Memory:
    return Memory(
        id=row.memory.id,
        version=row.version,
        live=row.live,
        namespace=namespace,
        text=row.memory.text,
        metadata=row.metadata,
        support=row.memory.evidence.support,
        provenance=tuple(provenance),
        pinned=row.memory.pinned,
        created=row.created,
        changed=row.changed,
        expires=row.expires,
        born=row.born,
        died=row.died,
        free_energy=row.judged,
        valid_from=valid.since,
        valid_until=valid.until,
        superseded_by=valid.by,
    )


def cold(connection: Connection, space: Space, store: MemoryStore) -> list[Memory]:
    """The cold tier, oldest row first, without what has expired."""
    rows = tiers.tier_rows(connection, space.id, "cold")
    found = {row.item.id: row for row in alive(connection, rows, time.time(), store)}
    held = claims.validity(connection, found)
    return [_memory(found[name], space.namespace, held[name].behind, held[name]) for name in found]


def explain(
    connection: Connection, name: str, store: MemoryStore, utility: UtilityFunction | None
) -> Explanation:
    """All that is on record about a memory, a hot item or a message."""
    from ecs_plugins.common.pages import rendered  # what renders takes long to import

    message = log.get(connection, name)
    rows = tiers.versions(connection, name)
    space = _space_of(connection, name, message, rows)
    judged = _judged(connection, space, store, utility)
    ranked = sorted(judged, key=lambda each: judged[each].total)
    terms = judged.get(name)
    live = [row for row in rows if row.live]
    text = _text_of(message, live or rows)
    is_informed = utility is None and store.config.utility == "informed"
    explanation = Explanation(
        id=name,
        text=text,
        tier=live[-1].tier if live else None,
        free_energy=terms,
        rank=None if terms is None else ranked.index(name) + 1,
        versions=tuple(history(connection, name)),
        decisions=tuple(decisions(connection, space.id, item=name)),
        provenance=_said_behind(connection, name),
        prior=worth(text) if is_informed and terms is not None else None,
    )
    page = rendered(
        "explanation.txt.j2", found=explanation, count=len(ranked), superseded=SUPERSEDED
    )
    return replace(explanation, lines=tuple(page.splitlines()))


def _space_of(
    connection: Connection, name: str, message: Message | None, rows: Sequence[TierRow]
) -> Space:
    """The namespace of a message or an item."""
    if rows:
        return namespaces.space_by_id(connection, rows[0].space)
    if message is None:
        raise unknown(name)
    space = namespaces.find_space(connection, message.namespace)
    assert space is not None
    return space


def _text_of(message: Message | None, rows: Sequence[TierRow]) -> str:
    """What the latest version of an item says, or a message that is in no tier."""
    if rows:
        return rows[-1].item.text
    return message.text if message else ""


def _said_behind(connection: Connection, name: str) -> tuple[tuple[str, str | None], ...]:
    """The messages behind an item, or a message itself, and what the log has of their texts."""
    members = tiers.provenance(connection, [name]).get(name, (name,))
    texts: list[tuple[str, str | None]] = []
    for member in members:
        message = log.get(connection, member)
        texts.append((member, message.text if message else None))
    return tuple(texts)


def _judged(
    connection: Connection, space: Space, store: MemoryStore, utility: UtilityFunction | None
) -> dict[str, FreeEnergy]:
    """The free energy of every memory of the cold tier, as of now."""
    rows = tiers.tier_rows(connection, space.id, "cold", store.dimension)
    memories = claims.judged(connection, [row.memory for row in rows])
    energies = free_energies(
        memories,
        config=store.config,
        step=space.step,
        queries=recent_queries(connection, space.id),
        utility=utility,
    )
    return {memory.id: terms for memory, terms in zip(memories, energies, strict=True)}


def namespace_stats(connection: Connection, prefix: Namespace | None) -> list[NamespaceStats]:
    """How full each namespace is."""
    found = []
    for space in namespaces.list_spaces(connection, prefix):
        messages, pinned, sleeps = connection.execute(
            "SELECT (SELECT count(*) FROM messages WHERE namespace = ?1),"
            " (SELECT count(*) FROM tiers WHERE namespace = ?1 AND live = 1 AND pinned = 1),"
            " (SELECT count(*) FROM sleeps WHERE namespace = ?1 AND undone IS NULL)",
            (space.id,),
        ).fetchone()
        hot, cold = space.count["hot"], space.count["cold"]
        counts = (messages, hot, cold, pinned, sleeps, space.since_sleep)
        found.append(NamespaceStats(space.namespace, *counts))
    return found


def count_items(connection: Connection, prefix: Namespace | None, now: float) -> int:
    """How many items there are in and below a namespace that have not expired."""
    where, bounds = namespaces.under(prefix, "namespace")
    sql = f"SELECT count(*) FROM items WHERE {where} AND (expires IS NULL OR expires > ?)"
    count: int = connection.execute(sql, (*bounds, now)).fetchone()[0]
    return count


def verify(connection: Connection, store: MemoryStore) -> Verification:
    """Check contents, counts, provenance, decisions, items and indexes of a file.

    A flipped bit may make a value anything, or a page unreadable: what cannot be checked is a
    problem, and the rest is checked.
    """
    indexes = store.indexes
    problems = [*_tried("the database", partial(store.database.integrity, connection))]
    for table in CHECKED:
        content = partial(_content_problems, connection, table, store.dimension, store.epoch)
        problems += _tried(f"the table {table}", content)
    problems += _tried("the provenance", partial(_reference_problems, connection))
    problems += _tried("the namespaces", partial(_namespace_problems, connection, indexes))
    counted = "SELECT " + " + ".join(
        f"(SELECT count(*) FROM {table})" for table in (*CHECKED, "decisions")
    )
    try:
        checked = connection.execute(counted).fetchone()[0]
    except Exception:
        checked = 0
    return Verification(tuple(problems), checked)


def _tried(what: str, check: Check) -> Iterator[str]:
    """The problems that a check finds, its own failure included."""
    try:
        yield from check()
    except Exception as error:
        yield f"{what} cannot be checked: {type(error).__name__}: {error}"


def _content_problems(
    connection: Connection, table: str, dimension: int, epoch: int
) -> Iterator[str]:
    for row in rows(connection, table):
        # A vector of an earlier epoch waits to be replaced by the next search.
        current = row.get("epoch", epoch) == epoch
        yield from damage(table, row, dimension if current else 0)


def _reference_problems(connection: Connection) -> Iterator[str]:
    for text, sql in _REFERENCES.items():
        yield from (text.format(name) for (name,) in connection.execute(sql))


def _namespace_problems(connection: Connection, indexes: SpaceIndexes) -> Iterator[str]:
    for space in namespaces.list_spaces(connection):
        checks: dict[str, Check] = {
            "decisions": partial(_record_problems, connection, space),
            "items": partial(_tier_problems, connection, space),
            "index": partial(indexes.problems, connection, space),
        }
        for what, check in checks.items():
            yield from _tried(f"the {what} of {space.namespace}", check)


def _record_problems(connection: Connection, space: Space) -> Iterator[str]:
    for each in replayed(decisions(connection, space.id)):
        if not each.agrees and not each.recorded.erased:
            yield (
                f"decision {each.recorded.decision.index} of sleep {each.recorded.sleep} does not "
                "follow from its record"
            )


CHECKED = {
    "messages": ("message {id}", ("text", "vector")),
    "tiers": ("item {id}", ("text", "vector")),
    "items": ("item {key!r}", ("value",)),
    "item_vectors": ("item {item} at {path}", ("vector",)),
}
"""The tables whose rows have checksums: what a row is called, and which columns have one."""


def rows(
    connection: Connection,
    table: str,
    where: str = "TRUE",
    values: Sequence[object] = (),
    *,
    before: str = "",
) -> Iterator[dict[str, Any]]:
    """The rows of a table as they are stored, by column."""
    names = columns()[table]
    found = connection.execute(
        f"{before} SELECT {', '.join(names)} FROM {table} WHERE {where}", values
    )
    return (dict(zip(names, row, strict=True)) for row in found)


def damage(table: str, row: Mapping[str, Any], dimension: int = 0) -> list[str]:
    """What of a row does not match its checksum; with a dimension, of which length a vector is."""
    name, parts = CHECKED.get(table, ("", ()))
    return [
        f"the {part} of {name.format(**row)} does not match its checksum"
        for part in parts
        if not isinstance(row[part], str | bytes)
        or crc(row.get("asked", "") + row[part] if part == "text" else row[part])
        != row[f"{part}_crc"]
        or (part == "vector" and dimension and len(row[part]) != 4 * dimension)
    ]


_REFERENCES = {
    "message {} is behind an item that is gone": (
        "SELECT p.message FROM provenance p LEFT JOIN tiers t ON t.id = p.item WHERE t.id IS NULL"
    ),
    "hot item {} rests on no message": (
        "SELECT t.id FROM tiers t WHERE t.tier = 'hot' AND NOT EXISTS ("
        "SELECT 1 FROM provenance p JOIN messages m ON m.id = p.message WHERE p.item = t.id)"
    ),
    "item {} is live in two versions": (
        "SELECT id FROM tiers WHERE live = 1 GROUP BY id HAVING count(*) > 1"
    ),
}


def _tier_problems(connection: Connection, space: Space) -> Iterator[str]:
    for tier in TIERS:
        found = len(tiers.tier_rows(connection, space.id, tier))
        if found != space.count[tier]:
            yield (
                f"{space.namespace}: the {tier} tier holds {found} items and counts "
                f"{space.count[tier]}"
            )
