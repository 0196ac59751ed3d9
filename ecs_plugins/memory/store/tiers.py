"""The rows of both tiers, to and from `HotItem` and `ColdMemory`.

Replacing an item makes a new row. What an ``add`` replaces is gone; what a sleep phase replaces is
kept as an earlier version, so that a memory's history can be told. A hot item that a sleep phase
consumes is gone: its messages stay in the log, and in the provenance of what it became.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.values import NO_VECTOR, checked_text, crc, dump, packed, unpack
from ecs_plugins.memory.types import ColdMemory, Evidence, FreeEnergy, HotItem, Tier
from ecs_plugins.storage.base import Connection

Metadata = Mapping[str, object]

NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class TierRow:
    """One version of an item as stored; see `Memory` for what it has in common with that."""

    item: HotItem | ColdMemory
    metadata: Metadata
    created: float
    changed: float
    expires: float | None = None
    version: int = 1
    judged: FreeEnergy | None = None  # when a sleep phase last computed it
    row: int = 0  # the next one
    space: int = 0  # the number of its namespace
    live: bool = True
    born: int | None = None
    died: int | None = None

    @property
    def tier(self) -> Tier:
        """Where it is, or was."""
        return "hot" if isinstance(self.item, HotItem) else "cold"

    @property
    def is_pinned(self) -> bool:
        """Whether nothing displaces it."""
        return isinstance(self.item, ColdMemory) and self.item.pinned

    @property
    def memory(self) -> ColdMemory:
        """The item of a row of the cold tier."""
        assert isinstance(self.item, ColdMemory)
        return self.item

    @property
    def hot(self) -> HotItem:
        """The item of a row of the hot tier."""
        assert isinstance(self.item, HotItem)
        return self.item


_COLUMNS = (
    "id, namespace, tier, live, version, born, died, text, metadata, created, changed, expires,"
    " pinned, judged, energy, entropy, free_energy, cluster_entropy, evidence, vector,"
    " text_crc, vector_crc, asked"
)
_SELECT = f"SELECT row, {_COLUMNS} FROM tiers"
_SELECT_LIGHT = _SELECT.replace(" vector,", " NULL,")
_METADATA, _EVIDENCE = 9, 19  # their places in a row
# The plus signs keep SQLite from walking through the whole namespace instead.
_BY_ROWS = (
    "row IN (SELECT CAST(value AS BIGINT) FROM json_each(?)) AND +namespace = ? AND +live = 1"
)
_INSERT = f"INSERT INTO tiers ({_COLUMNS}) VALUES ({','.join('?' * 23)}) RETURNING row"
_INSERT_AS = f"INSERT INTO tiers ({_COLUMNS}, row) VALUES ({','.join('?' * 24)})"


def select(
    connection: Connection,
    where: str,
    values: Sequence[object],
    *,
    dimension: int = 0,
    members: bool = False,
) -> list[TierRow]:
    """Rows by a condition, without vectors if ``dimension`` is 0, hot ones perhaps with members."""
    columns = _SELECT if dimension else _SELECT_LIGHT
    found = connection.execute(f"{columns} WHERE {where}", values).fetchall()
    behind = provenance(connection, [row[1] for row in found if row[3] == "hot"]) if members else {}
    # All JSON at once: a sleep phase reads a thousand rows.
    texts = ",".join(f"{row[_METADATA]},{row[_EVIDENCE]}" for row in found)
    parsed = json.loads(f"[{texts}]")
    return [
        _row(row, dimension, tuple(behind.get(row[1], ())), metadata, evidence)
        for row, metadata, evidence in zip(found, parsed[::2], parsed[1::2], strict=True)
    ]


def _row(
    row: tuple[Any, ...],
    dimension: int,
    members: tuple[str, ...],
    metadata: Metadata,
    told: Mapping[str, object],
) -> TierRow:
    (
        number, name, space, tier, live, version, born, died, text, _, created, changed,
        expires, pinned, judged, energy, entropy, total, cluster_entropy, _,
        vector, text_crc, vector_crc, asked,
    ) = row  # fmt: skip
    what = f"{'memory' if tier == 'cold' else 'hot item'} {name}"
    value = unpack(vector, vector_crc, dimension, what) if dimension else NO_VECTOR
    content = checked_text(text, text_crc, what, asked)
    evidence = Evidence(**told)  # type: ignore[arg-type]
    item: HotItem | ColdMemory
    if tier == "hot":
        item = HotItem(name, value, evidence, members, content, judged, asked)
    else:
        item = ColdMemory(name, value, evidence, content, bool(pinned), cluster_entropy, asked)
    terms = None if total is None else FreeEnergy(energy, entropy, total)
    return TierRow(
        item, metadata, created, changed, expires, version, terms, number, space,
        bool(live), born, died,
    )  # fmt: skip


def by_rows(
    connection: Connection, space: int, rows: Collection[int], dimension: int = 0
) -> dict[int, TierRow]:
    """Live items by row number, hot ones without members."""
    found = select(connection, _BY_ROWS, (dump(list(rows)), space), dimension=dimension)
    return {each.row: each for each in found}


def tier_rows(
    connection: Connection, space: int, tier: Tier, dimension: int = 0, *, members: bool = True
) -> list[TierRow]:
    """A tier: the hot one in order of arrival, the cold one with the oldest row first."""
    found = select(
        connection,
        "namespace = ? AND live = 1 AND tier = ? ORDER BY row",
        (space, tier),
        dimension=dimension,
        members=members,
    )
    if tier == "hot":
        found.sort(key=lambda each: (each.item.evidence.created, each.row))
    return found


def versions(connection: Connection, name: str, dimension: int = 0) -> list[TierRow]:
    """Every stored version of an item, oldest first."""
    return select(
        connection, "id = ? ORDER BY version, row", (name,), dimension=dimension, members=True
    )


def insert(connection: Connection, space: Space, new: TierRow, members: Iterable[str] = ()) -> int:
    """Write a version, and which messages joined the item with it; returns its new row number."""
    (row,) = connection.execute(_INSERT, _values(space, new)).fetchone()
    join(connection, ((message, new.item.id, new.version) for message in members))
    if new.live:
        space.count[new.tier] += 1
    return int(row)


def insert_numbered(connection: Connection, space: Space, new: Sequence[TierRow]) -> None:
    """Write live versions of which the row numbers are known (`SqlDatabase.new_rows`)."""
    connection.executemany(_INSERT_AS, ((*_values(space, each), each.row) for each in new))
    for each in new:
        space.count[each.tier] += 1


def _values(space: Space, new: TierRow) -> tuple[object, ...]:
    item = new.item
    judged = item.judged if isinstance(item, HotItem) else 0
    entropy = item.entropy if isinstance(item, ColdMemory) else 0.0
    terms, (vector, checksum) = new.judged, packed(item.vector)
    return (
        item.id, space.id, new.tier, int(new.live), new.version, new.born, new.died,
        item.text, dump(new.metadata), new.created, new.changed, new.expires, new.is_pinned,
        judged, terms and terms.energy, terms and terms.entropy, terms and terms.total, entropy,
        dump_evidence(item.evidence), vector, crc(item.asked + item.text), checksum, item.asked,
    )  # fmt: skip


def join(connection: Connection, members: Iterable[tuple[str, str, int]]) -> None:
    """Write which message joined which item with which version."""
    if joined := [*members]:
        connection.executemany(
            "INSERT INTO provenance (message, item, version) VALUES (?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            joined,
        )


def delete(connection: Connection, space: Space, old: Collection[TierRow]) -> None:
    """Delete versions; their provenance stays for those that follow."""
    connection.executemany("DELETE FROM tiers WHERE row = ?", ((each.row,) for each in old))
    for each in old:
        if each.live:
            space.left(each.tier, [each.row])


def retire(connection: Connection, space: Space, old: Collection[TierRow], sleep: int) -> None:
    """Take cold memories out of their tier, kept as earlier versions."""
    connection.executemany(
        "UPDATE tiers SET live = 0, died = ? WHERE row = ?", ((sleep, each.row) for each in old)
    )
    space.left("cold", [each.row for each in old])


def forget_provenance(connection: Connection, items: Iterable[str]) -> None:
    """Delete the provenance of items of which no version is left."""
    connection.execute(
        "DELETE FROM provenance WHERE item IN (SELECT value FROM json_each(?))"
        " AND NOT EXISTS (SELECT 1 FROM tiers WHERE id = provenance.item)",
        (dump(list(items)),),
    )


def update(connection: Connection, row: int, item: HotItem | ColdMemory) -> None:
    """Write what changes in place: evidence, pin and judgement."""
    pinned = int(isinstance(item, ColdMemory) and item.pinned)
    judged = item.judged if isinstance(item, HotItem) else 0
    connection.execute(
        "UPDATE tiers SET evidence = ?, pinned = ?, judged = ? WHERE row = ?",
        (dump_evidence(item.evidence), pinned, judged, row),
    )


def provenance(connection: Connection, items: Sequence[str]) -> dict[str, dict[str, int]]:
    """The ids of the messages behind items, in the order of their joining, and in which version."""
    found: dict[str, dict[str, int]] = {}
    for item, message, version in connection.execute(
        "SELECT p.item, p.message, p.version FROM provenance p"
        " LEFT JOIN messages m ON m.id = p.message"
        " WHERE p.item IN (SELECT value FROM json_each(?)) ORDER BY p.version, m.seq",
        (dump(list(items)),),
    ):
        found.setdefault(item, {})[message] = version
    return found


_DEFAULTS = tuple((each.name, each.default) for each in fields(Evidence))


def dump_evidence(evidence: Evidence) -> str:
    """The JSON of evidence without what has its default, which most of it has."""
    return dump(
        {
            name: value
            for name, default in _DEFAULTS
            if (value := getattr(evidence, name)) != default or default is MISSING
        }
    )


def shared(left: Metadata, right: Metadata) -> dict[str, object]:
    """What two sets of metadata agree on: the metadata of an item that merges both."""
    return {key: value for key, value in left.items() if key in right and right[key] == value}


def earliest(*times: float | None) -> float | None:
    """The first of several expiries; None is never."""
    return min((time for time in times if time is not None), default=None)
