"""The rows of the namespaces, and of both their tiers, to and from `HotItem` and `ColdMemory`.

A namespace is a tuple of labels, matched element by element. Its key is the JSON array of its
labels. JSON strings delimit themselves, so two namespaces share a key only if they are equal, and
the key of ``("a", "b")`` without its closing bracket, followed by a comma, begins exactly the keys
of what lies below it. No separator that a label could contain takes part in a comparison, so
``("t", "acme")`` never matches ``("t", "acme-corp")`` and no label is a pattern.

Replacing an item makes a new row. What an ``add`` replaces is gone; what a sleep phase replaces is
kept as an earlier version, so that a memory's history can be told. A hot item that a sleep phase
consumes is gone: its messages stay in the log, and in the provenance of what it became.

Vectors are stored as little-endian float32 bytes. A CRC-32 beside each vector and each text tells
a flipped bit from a stored value, which neither SQLite nor FAISS would notice.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np

from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory.types import (
    ColdMemory,
    Evidence,
    FreeEnergy,
    HotItem,
    Matrix,
    Namespace,
    Tier,
    Vector,
)
from ecs_plugins.storage.base import Connection

Metadata = Mapping[str, object]

dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Compact JSON."""

_TYPE = np.dtype("<f4")

NO_VECTOR: Vector = np.empty(0, dtype=np.float32)

NO_LIMIT = 1 << 62

MAX_LABELS = 32
MAX_LABEL_LENGTH = 512


def pack(vector: Vector | Matrix) -> bytes:
    """The bytes of a vector."""
    return np.ascontiguousarray(vector, dtype=_TYPE).tobytes()


def packed(vector: Vector) -> tuple[bytes, int]:
    """The bytes of a vector, and their checksum."""
    data = pack(vector)
    return data, crc(data)


def unpack(data: bytes, checksum: int, dimension: int, what: str) -> Vector:
    """The vector behind bytes, if they are those that were written; else a `StorageError`."""
    if len(data) != _TYPE.itemsize * dimension or zlib.crc32(data) != checksum:
        raise damaged(what, "vector", "reembed() computes it anew from the text")
    return np.frombuffer(data, dtype=_TYPE)


def checked_text(text: str, checksum: int, what: str, asked: str = "") -> str:
    """A stored text, whose checksum is that of the question that it replies to and of itself."""
    if crc(asked + text) != checksum:
        raise damaged(what, "text", "restore a backup, or delete it")
    return text


def damaged(what: str, part: str, remedy: str) -> StorageError:
    """The error for stored content that does not match its checksum."""
    return StorageError(f"the stored {part} of {what} does not match its checksum; {remedy}")


def crc(content: bytes | str) -> int:
    """CRC-32 of bytes, or of a text's UTF-8."""
    return zlib.crc32(content.encode() if isinstance(content, str) else content)


def checked(namespace: Sequence[str]) -> Namespace:
    """Return ``namespace`` as a tuple, or refuse it.

    Raises:
        InvalidInputError: It is a bare string, empty, too deep, or holds a label that is empty,
            too long, no string, or no valid Unicode.
    """
    if isinstance(namespace, str) or not isinstance(namespace, Iterable):
        raise InvalidInputError(
            f"a namespace is a tuple of labels, got {namespace!r:.80}; write ({namespace!r:.80},)"
        )
    labels = tuple(namespace)
    if not 1 <= len(labels) <= MAX_LABELS:
        raise InvalidInputError(f"a namespace has 1 to {MAX_LABELS} labels, got {len(labels)}")
    for label in labels:
        if not isinstance(label, str):
            raise InvalidInputError(f"a namespace label is a string, got {label!r}")
        if not 1 <= len(label) <= MAX_LABEL_LENGTH:
            raise InvalidInputError(
                f"a namespace label has 1 to {MAX_LABEL_LENGTH} characters, got {len(label)}"
            )
        if well_formed(label) != label:
            raise InvalidInputError(f"the label {label!a} is not valid Unicode")
    return labels


def encode(namespace: Sequence[str]) -> str:
    """The key of a namespace: the JSON array of its labels."""
    return key_of(checked(namespace))


@lru_cache(maxsize=4096)
def key_of(namespace: Namespace) -> str:
    """The key of a namespace that is known to be one."""
    return json.dumps(namespace, ensure_ascii=False, separators=(",", ":"))


def decode(key: str) -> Namespace:
    """The namespace behind a key."""
    return tuple(json.loads(key))


@dataclass(slots=True)
class Space:
    """One namespace within one transaction; `save` writes it back."""

    id: int
    namespace: Namespace
    epoch: int  # counts the embedders that its vectors came from
    step: int  # number of its latest message
    since_sleep: int  # messages
    cycle: int  # sleep phases so far
    revision: int  # counts the transactions that changed it
    count: dict[Tier, int]  # live items
    gone: list[int] = field(default_factory=list)  # rows that left in this transaction
    written: dict[int, str] = field(default_factory=dict)  # rows in the index, and their texts

    @property
    def items(self) -> int:
        """Live items of both tiers."""
        return self.count["hot"] + self.count["cold"]

    def left(self, tier: Tier, rows: Collection[int]) -> None:
        """Note that rows left a tier."""
        self.count[tier] -= len(rows)
        self.gone += rows

    def save(self, connection: Connection) -> None:
        """Write the counters."""
        self.revision += 1
        counters = self.step, self.since_sleep, self.cycle, self.revision
        connection.execute(
            "UPDATE namespaces SET step=?, since_sleep=?, cycle=?, revision=?, hot_count=?,"
            " cold_count=? WHERE id=?",
            (*counters, self.count["hot"], self.count["cold"], self.id),
        )


_SELECT_SPACE = (
    "SELECT id, key, epoch, step, since_sleep, cycle, revision, hot_count, cold_count"
    " FROM namespaces"
)


def _space(row: tuple[int, ...]) -> Space:
    number, key, epoch, step, since, cycle, revision, hot, cold = row
    count: dict[Tier, int] = {"hot": hot, "cold": cold}
    return Space(number, decode(str(key)), epoch, step, since, cycle, revision, count)


def find_space(connection: Connection, namespace: Namespace) -> Space | None:
    """The namespace, if anything was ever stored in it."""
    row = connection.execute(f"{_SELECT_SPACE} WHERE key = ?", (key_of(namespace),)).fetchone()
    return None if row is None else _space(row)


def space_by_id(connection: Connection, number: int) -> Space:
    """The namespace of a row number that is known to exist."""
    return _space(connection.execute(f"{_SELECT_SPACE} WHERE id = ?", (number,)).fetchone())


def create_space(connection: Connection, namespace: Namespace, now: float, epoch: int) -> Space:
    """A new namespace."""
    connection.execute(
        "INSERT INTO namespaces (key, created, epoch) VALUES (?, ?, ?)",
        (key_of(namespace), now, epoch),
    )
    found = find_space(connection, namespace)
    assert found is not None
    return found


def list_spaces(connection: Connection, prefix: Namespace | None = None) -> list[Space]:
    """All namespaces, or those equal to ``prefix`` or below it, in the order of their keys."""
    where, bounds = under(prefix, "key")
    return [
        _space(row)
        for row in connection.execute(f"{_SELECT_SPACE} WHERE {where} ORDER BY key", bounds)
    ]


def under(prefix: Namespace | None, column: str) -> tuple[str, tuple[str, ...]]:
    """A condition for the namespaces equal to a prefix or below it, label by label."""
    if not prefix:
        return "TRUE", ()
    key = key_of(prefix)
    # Strictly below are the keys from "," to "-", which follow each other in byte order.
    bounds = key, key[:-1] + ",", key[:-1] + "-"
    return f"({column} = ? OR ({column} >= ? AND {column} < ?))", bounds


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
