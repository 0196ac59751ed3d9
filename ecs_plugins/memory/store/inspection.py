"""Looking into a memory: one item, its history, its explanation, the state and soundness of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ecs_plugins.memory.consolidation import free_energies
from ecs_plugins.memory.prior import worth
from ecs_plugins.memory.records import Explanation, Memory, NamespaceStats, Verification
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import namespaces, tiers
from ecs_plugins.memory.store.derivation import alive
from ecs_plugins.memory.store.erasing import unknown
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.outdated import outdating_ids
from ecs_plugins.memory.store.queries import recent_queries
from ecs_plugins.memory.store.schema import columns
from ecs_plugins.memory.store.sleeps import decisions
from ecs_plugins.memory.store.tiers import TierRow, memory_of, origins_of
from ecs_plugins.memory.store.values import UNCHECKED, crc, crc_of, has_length
from ecs_plugins.memory.types import TIERS, FreeEnergy, Namespace, UtilityFunction
from ecs_plugins.storage.base import Connection

Check = Callable[[], Iterable[str]]


_STANDS_IN = """
    SELECT 1 FROM messages WHERE id = ?1 AND namespace = ?2
    UNION
    SELECT 1 FROM tiers WHERE id = ?1 AND namespace = ?2
"""
_COUNTS = """
    SELECT
        (SELECT count(*) FROM messages WHERE namespace = ?1),
        (SELECT count(*) FROM tiers WHERE namespace = ?1 AND live = 1 AND pinned = 1),
        (SELECT count(*) FROM sleeps WHERE namespace = ?1)
"""


def history(connection: Connection, name: str) -> list[Memory]:
    """Return every stored version of a memory, oldest first."""
    rows = [row for row in tiers.versions(connection, name) if row.tier == "cold"]
    if not rows:
        return []
    namespace = namespaces.space_by_id(connection, rows[0].space).namespace
    joined = tiers.provenance(connection, [name]).get(name, {})
    origins = origins_of(connection, [name])
    origin = origins[name]
    newer = outdating_ids(connection, origins, time.time()).get(name)
    memories = []
    for row in rows:
        behind = [each for each, version in joined.items() if version <= row.version]
        memories.append(memory_of(row, namespace, replace(origin, messages=tuple(behind)), newer))
    return memories


def stands_in(connection: Connection, name: str, space: Space) -> bool:
    """Return True if an id belongs to a message or item of a namespace."""
    row = connection.execute(_STANDS_IN, (name, space.id)).fetchone()
    return row is not None


def cold(connection: Connection, space: Space, store: MemoryStore) -> list[Memory]:
    """Return the cold tier, oldest row first, without expired items."""
    rows = tiers.tier_rows(connection, space.id, "cold")
    left = {row.item.id: row for row in alive(connection, rows, time.time(), store)}
    origins = origins_of(connection, [*left])
    newer = outdating_ids(connection, origins, time.time())
    return [
        memory_of(row, space.namespace, origins[name], newer.get(name))
        for name, row in left.items()
    ]


def explain(
    connection: Connection, name: str, store: MemoryStore, utility: UtilityFunction | None
) -> Explanation:
    """Return all that is on record about a memory, a hot item or a message."""
    from ecs_plugins.common.rendering import folded, rendered  # what renders takes long to import

    message = log.get(connection, name)
    rows = tiers.versions(connection, name)
    live = [row for row in rows if row.live]
    text = _text_of(message, live or rows)
    space = _space_of(connection, name, message, rows)
    judged = _judged(connection, space, store, utility)
    ranked = sorted(judged, key=lambda each: judged[each].total)
    rank = prior = None
    if name in judged:
        rank = ranked.index(name) + 1
        if utility is None and store.config.rule == "default":
            prior = worth(text)
    explanation = Explanation(
        id=name,
        text=text,
        tier=live[-1].tier if live else None,
        free_energy=judged.get(name),
        rank=rank,
        versions=tuple(history(connection, name)),
        decisions=tuple(decisions(connection, space.id, item=name)),
        provenance=_said_behind(connection, name),
        prior=prior,
    )
    page = rendered("explanation.txt.j2", found=explanation, count=len(ranked))
    return replace(explanation, lines=tuple(folded(page).splitlines()))


def _space_of(
    connection: Connection, name: str, message: Memory | None, rows: Sequence[TierRow]
) -> Space:
    """Return the namespace of a message or an item."""
    if rows:
        return namespaces.space_by_id(connection, rows[0].space)
    if message is None:
        raise unknown(name)
    space = namespaces.find_space(connection, message.namespace)
    assert space is not None
    return space


def _text_of(message: Memory | None, rows: Sequence[TierRow]) -> str:
    """Return the text of an item's latest version, or of a message that is in no tier."""
    if rows:
        return rows[-1].item.text
    return message.text if message else ""


def _said_behind(connection: Connection, name: str) -> tuple[tuple[str, str | None], ...]:
    """Return the source messages of an item, or a message itself, with texts from the log."""
    members = tiers.provenance(connection, [name]).get(name, (name,))
    texts: list[tuple[str, str | None]] = []
    for member in members:
        message = log.get(connection, member)
        texts.append((member, message.text if message else None))
    return tuple(texts)


def _judged(
    connection: Connection, space: Space, store: MemoryStore, utility: UtilityFunction | None
) -> dict[str, FreeEnergy]:
    """Return the free energy of every memory of the cold tier, as of now."""
    rows = tiers.tier_rows(connection, space.id, "cold", store.dimension)
    memories = [row.memory for row in rows]
    energies = free_energies(
        memories,
        config=store.config,
        step=space.step,
        queries=recent_queries(connection, space.id),
        utility=utility,
    )
    return {memory.id: terms for memory, terms in zip(memories, energies, strict=True)}


def namespace_stats(connection: Connection, prefix: Namespace | None) -> list[NamespaceStats]:
    """Return the size of each namespace."""
    stats = []
    for space in namespaces.list_spaces(connection, prefix):
        messages, pinned, sleeps = connection.execute(_COUNTS, (space.id,)).fetchone()
        stats.append(
            NamespaceStats(
                namespace=space.namespace,
                messages=messages,
                hot=space.count["hot"],
                cold=space.count["cold"],
                pinned=pinned,
                sleeps=sleeps,
                since_sleep=space.since_sleep,
                bytes=space.bytes,
            )
        )
    return stats


def count_items(connection: Connection, prefix: Namespace | None, now: float) -> int:
    """Count the unexpired items in and below a namespace."""
    where, bounds = namespaces.under(prefix, "namespace")
    sql = (
        f"SELECT count(*) FROM items WHERE {where} AND (expires IS NULL OR expires > ?)"
        " AND space != 'parts'"
    )
    (count,) = connection.execute(sql, (*bounds, now)).fetchone()
    return int(count)


def verify(connection: Connection, store: MemoryStore) -> Verification:
    """Check contents, references and counts of a file.

    A flipped bit may make a value anything, or a page unreadable: a check that fails is a problem,
    and the rest is checked.
    """
    checked = 0

    def contents(table: str) -> Iterator[str]:
        nonlocal checked
        for row in rows(connection, table):
            checked += 1
            yield from damage(table, row, store.dimension)

    checks: dict[str, Check] = {"the database": partial(store.database.integrity, connection)}
    checks |= {f"the table {table}": partial(contents, table) for table in CHECKED}
    checks["the references"] = partial(reference_problems, connection)
    checks["the counts"] = partial(_count_problems, connection)
    problems: list[str] = []
    for name, check in checks.items():
        try:
            problems += check()
        except Exception as error:
            problems.append(f"{name} cannot be checked: {type(error).__name__}: {error}")
    warnings = tuple(store.database.warnings(connection))
    return Verification(tuple(problems), checked, warnings)


def reference_problems(connection: Connection) -> Iterator[str]:
    """Yield the rows that refer to a missing row, or to a row of another namespace."""
    for text, sql in _REFERENCES.items():
        for (name,) in connection.execute(sql):
            yield text.format(name)


def _count_problems(connection: Connection) -> Iterator[str]:
    for space in namespaces.list_spaces(connection):
        held = list(log.held(connection, space.id))
        held += [len(tiers.tier_rows(connection, space.id, tier)) for tier in TIERS]
        counted = [space.messages, space.bytes, *space.count.values()]
        if held != counted:
            yield (
                f"{space.namespace} holds {held} and counts {counted} "
                "(messages, their bytes, hot items, memories)"
            )


CHECKED: Mapping[str, tuple[str, Mapping[str, Sequence[str]]]] = {
    "messages": (
        "message {id}",
        {
            "text": ("asked", "text"),
            "vector": ("vector",),
            "metadata": ("step", "role", "writer", "metadata", "created", "expires"),
        },
    ),
    "tiers": (
        "item {id}",
        {
            "text": ("asked", "text"),
            "vector": ("vector",),
            "metadata": tiers.NOTED,
            "evidence": tiers.JUDGED,
        },
    ),
    "sleeps": ("sleep {id}", {"report": ("report",)}),
    "decisions": ("decision {id}", {"record": ("record",)}),
    "queries": (
        "query {id}",
        {"text": ("step", "at", "text", "answer", "recalled"), "vector": ("vector",)},
    ),
    "items": (
        "item {key!r}",
        {"value": ("value", "created", "updated", "ttl", "text_key", "space")},
    ),
    "item_vectors": ("item {item} at {path}", {"text": ("text",), "vector": ("vector",)}),
}
"""Tables with checksums: the name of a row, and the columns of each checksum."""


def checksums(table: str, row: Mapping[str, Any]) -> dict[str, int]:
    """Return the checksum columns of a row."""
    if table not in CHECKED:
        return {}
    sums = {}
    for part, names in CHECKED[table][1].items():
        content = row[part]
        is_vector = part == "vector" and isinstance(content, bytes)
        sums[f"{part}_crc"] = crc(content) if is_vector else crc_of([row[name] for name in names])
    return sums


def rows(
    connection: Connection,
    table: str,
    where: str = "TRUE",
    values: Sequence[object] = (),
    *,
    before: str = "",
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as they are stored, by column."""
    names = columns()[table]
    listed = ", ".join(names)
    stored = connection.execute(f"{before} SELECT {listed} FROM {table} WHERE {where}", values)
    for row in stored:
        yield dict(zip(names, row, strict=True))


def damage(table: str, row: Mapping[str, Any], dimension: int = 0) -> list[str]:
    """Return the parts of a row that do not match its checksum or the vector's length."""
    if table not in CHECKED:
        return []
    name, parts = CHECKED[table]
    called = name.format(**row)
    damaged = [part for part in parts if _is_damaged(row, part, parts[part], dimension)]
    return [f"the {part} of {called} does not match its checksum" for part in damaged]


def _is_damaged(row: Mapping[str, Any], part: str, names: Sequence[str], dimension: int) -> bool:
    checksum = row[f"{part}_crc"]
    if part != "vector":
        return checksum not in (UNCHECKED, crc_of([row[name] for name in names]))
    content = row[part]
    if not isinstance(content, bytes) or checksum not in (UNCHECKED, crc(content)):
        return True
    return dimension > 0 and not has_length(content, dimension)


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
    "item {} is of no known tier": (
        "SELECT id FROM tiers WHERE tier NOT IN ('hot', 'cold') OR live NOT IN (0, 1)"
    ),
    "item {} rests on a message of another namespace": (
        "SELECT t.id FROM provenance p JOIN tiers t ON t.id = p.item"
        " JOIN messages m ON m.id = p.message WHERE m.namespace != t.namespace"
    ),
    "message {} replies to one of another namespace": (
        "SELECT m.id FROM messages m JOIN messages a ON a.id = m.asker"
        " WHERE a.namespace != m.namespace"
    ),
}
