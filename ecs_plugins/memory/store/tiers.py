"""The rows of both tiers, to and from `HotItem` and `ColdMemory`.

Replacing an item makes a new row. What an ``add`` replaces is gone; what a sleep phase replaces is
kept as an earlier version, so that a memory's history can be told. A hot item that a sleep phase
consumes is gone: its messages stay in the log, and in the provenance of what it became.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, TypeAlias

from ecs_plugins.memory.records import Memory
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.values import (
    NO_VECTOR,
    check,
    crc_of,
    dump,
    packed,
    packed_half,
    unpack,
)
from ecs_plugins.memory.types import (
    TIERS,
    ColdMemory,
    Evidence,
    FreeEnergy,
    HotItem,
    Namespace,
    Tier,
    Vector,
)
from ecs_plugins.storage.base import Connection

Metadata = Mapping[str, object]

NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class TierRow:
    """Stored version of an item; see `Memory` for the common fields."""

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
        """Tier of the item; of an erased item, its last one."""
        return "hot" if isinstance(self.item, HotItem) else "cold"

    @property
    def is_pinned(self) -> bool:
        """Return True if the item is never displaced."""
        return isinstance(self.item, ColdMemory) and self.item.pinned

    @property
    def memory(self) -> ColdMemory:
        """Return the item of a row of the cold tier."""
        assert isinstance(self.item, ColdMemory)
        return self.item

    @property
    def hot(self) -> HotItem:
        """Return the item of a row of the hot tier."""
        assert isinstance(self.item, HotItem)
        return self.item


_COLUMNS = (
    "id, namespace, tier, live, version, born, died, text, metadata, created, changed, expires,"
    " pinned, judged, energy, entropy, free_energy, cluster_entropy, evidence, vector,"
    " text_crc, vector_crc, metadata_crc, evidence_crc, asked"
)
_SELECT = f"SELECT row, {_COLUMNS} FROM tiers"
_SELECT_LIGHT = _SELECT.replace(" vector,", " NULL,")
NOTED = ("tier", "version", "metadata", "created", "changed", "expires", "cluster_entropy")
"""The columns that never change in a row, beside its text and vector."""

JUDGED = ("evidence", "pinned", "judged", "energy", "entropy", "free_energy")
"""Those that change in place."""

_PLACES = {name: place for place, name in enumerate(["row", *_COLUMNS.split(", ")])}
_NAME = _PLACES["id"]
_TIER = _PLACES["tier"]
_TEXT = _PLACES["text"]
_METADATA = _PLACES["metadata"]
_EVIDENCE = _PLACES["evidence"]
_VECTOR = _PLACES["vector"]
_TEXT_CRC = _PLACES["text_crc"]
_VECTOR_CRC = _PLACES["vector_crc"]
_METADATA_CRC = _PLACES["metadata_crc"]
_EVIDENCE_CRC = _PLACES["evidence_crc"]
_ASKED = _PLACES["asked"]
_noted = itemgetter(*[_PLACES[name] for name in NOTED])
_judged = itemgetter(*[_PLACES[name] for name in JUDGED])
# The plus signs keep SQLite from walking through the whole namespace instead.
_BY_ROWS = (
    "row IN (SELECT CAST(value AS BIGINT) FROM json_each(?)) AND +namespace = ? AND +live = 1"
)
_MARKS = ",".join("?" * 25)
_INSERT = f"INSERT INTO tiers ({_COLUMNS}) VALUES ({_MARKS}) RETURNING row"
_JOIN = """
    INSERT INTO provenance (message, item, version, namespace) VALUES (?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_PROVENANCE = """
    SELECT p.item, p.message, p.version
    FROM provenance p LEFT JOIN messages m ON m.id = p.message
    WHERE p.item IN (SELECT value FROM json_each(?))
    ORDER BY p.version, m.seq
"""
_FORGET_PROVENANCE = """
    DELETE FROM provenance
    WHERE item IN (SELECT value FROM json_each(?))
        AND NOT EXISTS (SELECT 1 FROM tiers WHERE id = provenance.item)
"""


def select(
    connection: Connection,
    where: str,
    values: Sequence[object],
    *,
    dimension: int = 0,
    members: bool = False,
) -> list[TierRow]:
    """Return rows by a condition, without vectors if ``dimension`` is 0."""
    columns = _SELECT if dimension else _SELECT_LIGHT
    rows = connection.execute(f"{columns} WHERE {where}", values).fetchall()
    for row in rows:
        _check(row)
    behind: dict[str, dict[str, int]] = {}
    if members:
        hot = [row[_NAME] for row in rows if row[_TIER] == "hot"]
        behind = provenance(connection, hot)
    # All JSON at once: a sleep phase reads a thousand rows.
    noted = ",".join(f"{row[_METADATA]},{row[_EVIDENCE]}" for row in rows)
    parsed = json.loads(f"[{noted}]")
    stored = []
    for at, row in enumerate(rows):
        vector = NO_VECTOR
        if dimension:
            vector = unpack(row[_VECTOR], row[_VECTOR_CRC], dimension, _called(row))
        joined = tuple(behind.get(row[_NAME], ()))
        stored.append(_row(row, vector, joined, parsed[2 * at], Evidence(**parsed[2 * at + 1])))
    return stored


def _check(row: tuple[Any, ...]) -> None:
    """Compare text, metadata and judgement of a row with their checksums."""
    name = _called(row)
    check(name, "metadata", row[_METADATA_CRC], _noted(row))
    check(name, "evidence", row[_EVIDENCE_CRC], _judged(row))
    check(name, "text", row[_TEXT_CRC], (row[_ASKED], row[_TEXT]))


def _called(row: tuple[Any, ...]) -> str:
    """Return the name of a row for errors."""
    return f"{'hot item' if row[_TIER] == 'hot' else 'memory'} {row[_NAME]}"


def _row(
    row: tuple[Any, ...],
    vector: Vector,
    members: tuple[str, ...],
    metadata: Metadata,
    evidence: Evidence,
) -> TierRow:
    (
        number, name, space, tier, live, version, born, died, content, _, created, changed,
        expires, pinned, judged, energy, entropy, total, cluster_entropy, *_, asked,
    ) = row  # fmt: skip
    item: HotItem | ColdMemory
    if tier == "hot":
        item = HotItem(name, vector, evidence, members, content, judged, asked)
    else:
        item = ColdMemory(name, vector, evidence, content, bool(pinned), cluster_entropy, asked)
    return TierRow(
        item,
        metadata,
        created,
        changed,
        expires,
        version,
        judged=None if total is None else FreeEnergy(energy, entropy, total),
        row=number,
        space=space,
        live=bool(live),
        born=born,
        died=died,
    )


def by_rows(
    connection: Connection,
    space: int,
    rows: Collection[int],
    dimension: int = 0,
    *,
    among: Collection[Tier] = TIERS,
    members: bool = False,
) -> dict[int, TierRow]:
    """Return live items by row number; with ``members``, hot items have their messages."""
    if not rows:
        return {}
    values = (dump(list(rows)), space)
    stored = select(connection, _BY_ROWS, values, dimension=dimension, members=members)
    return {each.row: each for each in stored if each.tier in among}


def tier_rows(
    connection: Connection, space: int, tier: Tier, dimension: int = 0, *, members: bool = True
) -> list[TierRow]:
    """Return a tier: the hot one in order of arrival, the cold one with the oldest row first."""
    stored = select(
        connection,
        "namespace = ? AND live = 1 AND tier = ? ORDER BY row",
        (space, tier),
        dimension=dimension,
        members=members,
    )
    if tier == "hot":
        stored.sort(key=lambda each: (each.item.evidence.created, each.row))
    return stored


def versions(connection: Connection, name: str, dimension: int = 0) -> list[TierRow]:
    """Return every stored version of an item, oldest first."""
    where = "id = ? ORDER BY version, row"
    return select(connection, where, (name,), dimension=dimension, members=True)


def insert(connection: Connection, space: Space, new: TierRow, members: Iterable[str] = ()) -> int:
    """Write a version with the messages that joined the item with it; return its row number."""
    (row,) = connection.execute(_INSERT, _values(space, new)).fetchone()
    joining = [(message, new.item.id, new.version, space.id) for message in members]
    connection.executemany(_JOIN, joining)
    if new.live:
        space.count[new.tier] += 1
    return int(row)


def _values(space: Space, new: TierRow) -> tuple[object, ...]:
    """Return the values of a version in the order of the columns."""
    item = new.item
    judged = item.judged if isinstance(item, HotItem) else 0
    entropy = item.entropy if isinstance(item, ColdMemory) else 0.0
    row = (
        0, item.id, space.id, new.tier, int(new.live), new.version, new.born, new.died,
        item.text, dump(new.metadata), new.created, new.changed, new.expires,
        int(new.is_pinned), judged, *_energies(new.judged), entropy, dump_evidence(item.evidence),
    )  # fmt: skip
    text_crc = crc_of((item.asked, item.text))
    vector, vector_crc = packed(item.vector)
    noted_crc = crc_of(_noted(row))
    judged_crc = crc_of(_judged(row))
    return (*row[1:], vector, text_crc, vector_crc, noted_crc, judged_crc, item.asked)


def _energies(terms: FreeEnergy | None) -> tuple[float | None, ...]:
    """Return E, S and F as they are written: without negative zeros."""
    if terms is None:
        return (None, None, None)
    return (terms.energy + 0.0, terms.entropy + 0.0, terms.total + 0.0)


def delete(connection: Connection, space: Space, old: Collection[TierRow]) -> None:
    """Delete versions; their provenance stays for later versions."""
    rows = [(each.row,) for each in old]
    connection.executemany("DELETE FROM tiers WHERE row = ?", rows)
    for tier in TIERS:
        space.left(tier, [each.row for each in old if each.live and each.tier == tier])


def retire(
    connection: Connection, space: Space, old: Collection[tuple[int, Vector]], sleep: int
) -> None:
    """Take cold memories out of their tier by row and vector, and keep them as earlier versions.

    Nothing is searched among these, so their vectors are stored in half the precision.
    """
    rows = [(sleep, *packed_half(vector), row) for row, vector in old]
    connection.executemany(
        "UPDATE tiers SET live = 0, died = ?, vector = ?, vector_crc = ? WHERE row = ?", rows
    )
    space.left("cold", [row for row, _ in old])


def forget_provenance(connection: Connection, items: Iterable[str]) -> None:
    """Delete the provenance of items of which no version is left."""
    connection.execute(_FORGET_PROVENANCE, (dump(list(items)),))


_UPDATE = """
    UPDATE tiers SET
        evidence = ?, pinned = ?, judged = ?, energy = ?, entropy = ?, free_energy = ?,
        evidence_crc = ?
    WHERE row = ?
"""


def update(
    connection: Connection, row: int, item: HotItem | ColdMemory, terms: FreeEnergy | None
) -> None:
    """Write the fields of a row that change in place: evidence, pin and judgement."""
    pinned = int(isinstance(item, ColdMemory) and item.pinned)
    judged = item.judged if isinstance(item, HotItem) else 0
    values = (dump_evidence(item.evidence), pinned, judged, *_energies(terms))
    connection.execute(_UPDATE, (*values, crc_of(values), row))


def provenance(connection: Connection, items: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return, per item, its messages in the order of joining, with the version of each."""
    behind: dict[str, dict[str, int]] = {}
    rows = connection.execute(_PROVENANCE, (dump(list(items)),))
    for item, message, version in rows:
        behind.setdefault(item, {})[message] = version
    return behind


_DEFAULTS = tuple((each.name, each.default) for each in fields(Evidence))


def dump_evidence(evidence: Evidence) -> str:
    """Return the JSON of evidence without default values."""
    told = {}
    for name, default in _DEFAULTS:
        value = getattr(evidence, name)
        if value != default:
            told[name] = value
    return dump(told)


def shared(left: Metadata, right: Metadata) -> dict[str, object]:
    """Return the common metadata of two items, for the merged one."""
    return {key: value for key, value in left.items() if key in right and right[key] == value}


def earliest(*times: float | None) -> float | None:
    """Return the first of several expiries; None is never."""
    known = [time for time in times if time is not None]
    return min(known, default=None)


MOST_BEHIND = 100
"""Messages told of an item with many, in addition to the first."""

_BEHIND = """
    SELECT p.item, p.message, m.created, m.role
    FROM provenance p LEFT JOIN messages m ON m.id = p.message
    WHERE p.item IN (SELECT value FROM json_each(?))
    ORDER BY p.item, p.version, p.message
"""
_FIRST = """
    SELECT p.message, m.created, m.role
    FROM provenance p LEFT JOIN messages m ON m.id = p.message
    WHERE p.item = ?
    ORDER BY p.version, p.message
    LIMIT 1
"""
_LATEST = f"""
    SELECT p.message, m.created, m.role
    FROM provenance p LEFT JOIN messages m ON m.id = p.message
    WHERE p.item = ?
    ORDER BY p.version DESC, p.message DESC
    LIMIT {MOST_BEHIND}
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Messages that an item was made from.

    Attributes:
        messages: Ids in the order of their joining; of many, the first and the latest
            `MOST_BEHIND`.
        since: Unix time of the earliest of these; None where the log has none of them any more.
        roles: Who said them, each once, the first to say it first.
    """

    messages: tuple[str, ...] = ()
    since: float | None = None
    roles: tuple[str, ...] = ()


_Said: TypeAlias = tuple[str, float | None, str | None]
"""A message behind an item: its id, its time and its role, as far as the log has them."""


def origins_of(connection: Connection, items: Sequence[str]) -> dict[str, Origin]:
    """Return, by item id, the origin of each item: the messages it was made from."""
    behind: dict[str, list[_Said]] = {item: [] for item in items}
    for item, *said in connection.execute(_BEHIND, (dump(list(items)),)):
        behind[item].append((said[0], said[1], said[2]))
    return {item: _origin(messages) for item, messages in behind.items()}


def origins_of_live(
    connection: Connection, items: Iterable[HotItem | ColdMemory]
) -> dict[str, Origin]:
    """Return the origin of each live item by id, with at most `MOST_BEHIND` + 1 messages."""
    few: list[str] = []
    many: list[str] = []
    for item in items:
        (many if item.evidence.support > MOST_BEHIND else few).append(item.id)
    origins = origins_of(connection, few)
    for name in many:
        told = connection.execute(_FIRST, (name,)).fetchall()
        told += reversed(connection.execute(_LATEST, (name,)).fetchall())
        origins[name] = _origin([*dict.fromkeys(told)])
    return origins


def _origin(messages: Sequence[_Said]) -> Origin:
    times = [created for _, created, _ in messages if created is not None]
    roles = [role for _, _, role in messages if role is not None]
    return Origin(
        messages=tuple(message for message, _, _ in messages),
        since=min(times, default=None),
        roles=tuple(dict.fromkeys(roles)),
    )


def memory_of(
    row: TierRow, namespace: Namespace, origin: Origin, newer: str | None, **scored: Any
) -> Memory:
    """Return the record of a stored item.

    ``newer`` is the id of the message that outdates it, ``scored`` the fields of a recall.
    """
    item = row.item
    return Memory(
        id=item.id,
        role=origin.roles[0] if origin.roles else "",
        roles=origin.roles,
        step=item.evidence.created,
        tier=row.tier,
        asked=item.asked,
        version=row.version,
        live=row.live,
        namespace=namespace,
        text=item.text,
        metadata=row.metadata,
        support=item.evidence.support,
        provenance=origin.messages,
        pinned=row.is_pinned,
        outdated_by=newer,
        created=row.created if origin.since is None else origin.since,
        changed=row.changed,
        expires=row.expires,
        born=row.born,
        died=row.died,
        free_energy=row.judged,
        **scored,
    )
