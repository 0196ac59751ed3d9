"""Key-value items in a memory file, verbatim until deleted or expired.

Nothing here consolidates or forgets: an item is a JSON object under a namespace and a key, with
an optional time to live and a vector for each text that it is to be found by. A search finds items
by the rule of a recall, an item by its best text.

An item may belong to a message of the log. Then it holds all of its value but the text, which
stays in the message alone: what changes or erases the message changes or erases the item.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.relevance import QueryReading, read
from ecs_plugins.memory.store.index import numbers
from ecs_plugins.memory.store.item_index import ItemIndex, ItemIndexes, Submit
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.messages import parts_of, seconds_of
from ecs_plugins.memory.store.namespaces import Space, decode, encode, key_of, under
from ecs_plugins.memory.store.seam import Candidates, JudgedRows, Rows
from ecs_plugins.memory.store.search import CANDIDATES
from ecs_plugins.memory.store.values import check, crc, crc_of, packed
from ecs_plugins.memory.types import Namespace, Vector
from ecs_plugins.storage.base import Connection

Value = dict[str, Any]
Condition = Callable[[Mapping[str, Any]], bool]
Address = tuple[Namespace, str]


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to be stored.

    Attributes:
        namespace: Where.
        key: Under which it is found; an item of the same key is replaced.
        value: A JSON object.
        texts: Path -> text, for what it is to be found by; blank texts are left out.
        ttl: Seconds to live after the last write or refreshing read; None is for ever.
        message: Id of the message that it belongs to.
        text_key: Key of the value under which that message's text stands.
        kind: The space that it stands in: those of one kind are not seen by another's reader.

    Raises:
        InvalidInputError: The value is no JSON object, or ttl is not positive.
    """

    namespace: Namespace
    key: str
    value: Value
    texts: Mapping[str, str] = field(default_factory=dict)
    ttl: float | None = None
    message: str | None = None
    text_key: str | None = None
    kind: str = ""

    def __post_init__(self) -> None:
        encode(self.namespace)
        if not isinstance(self.key, str) or not self.key:
            raise InvalidInputError(f"an item needs a key that is a text, got {self.key!r}")
        object.__setattr__(self, "ttl", seconds_of("ttl", self.ttl))
        self.serialised()

    def serialised(self) -> str:
        """Return the value as JSON; half of a surrogate pair becomes U+FFFD."""
        stored = {name: part for name, part in self.value.items() if name != self.text_key}
        try:
            return well_formed(json.dumps(stored, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"an item's value must hold JSON values: {error}") from None


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is stored; its value is the reader's own copy."""

    row: int
    namespace: Namespace
    key: str
    value: Value
    created: float
    updated: float
    ttl: float | None
    message: str | None


_SELECT = """
    SELECT i.row, i.namespace, i.key, i.value, i.value_crc, i.created, i.updated, i.ttl,
        i.message, i.text_key, i.space, m.text
    FROM items i LEFT JOIN messages m ON m.id = i.message
    WHERE {where} AND i.space = ? AND (i.expires IS NULL OR i.expires > ?)
    ORDER BY i.row
"""
_NAMESPACES = """
    SELECT DISTINCT namespace FROM items
    WHERE space = ? AND (expires IS NULL OR expires > ?)
"""
_INSERT_VECTOR = """
    INSERT INTO item_vectors (item, path, text, vector, text_crc, vector_crc)
    VALUES (?,?,?,?,?,?)
"""
_TOUCH = """
    UPDATE items SET expires = ? + ttl
    WHERE row = ? AND ttl IS NOT NULL AND message IS NULL
"""
_PUT = """
    INSERT INTO items (
        namespace, key, value, value_crc, created, updated, ttl, expires, message, text_key, space
    )
    VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?5 + ?6, ?7, ?8, ?9)
    ON CONFLICT (namespace, key) DO UPDATE SET
        value = ?3, value_crc = ?4, updated = ?5, ttl = ?6, expires = ?5 + ?6, message = ?7,
        text_key = ?8, space = ?9
    RETURNING row, created
"""
PARTS = "parts"
"""Kind of the items that hold the parts of long messages."""

_HAS_PARTS = """
    SELECT EXISTS (
        SELECT 1 FROM items
        WHERE namespace = ? AND key >= 'parts ' AND key < 'parts!' AND space = 'parts'
    )
"""
_ROWS_OF_PARTS = """
    SELECT v.row, t.row
    FROM item_vectors v
    JOIN items i ON i.row = v.item
    JOIN provenance p ON p.message = i.message
    JOIN tiers t ON t.id = p.item
    WHERE +t.namespace = ? AND +t.live = 1
        AND v.row IN (SELECT CAST(value AS BIGINT) FROM json_each(?))
"""
_FORGET_PARTS = "DELETE FROM items WHERE message = ? AND space = 'parts'"
_REWRITE_CRC = "UPDATE items SET value_crc = ? WHERE row = ?"


class ItemView:
    """One consistent view of the items that have not expired."""

    def __init__(
        self,
        store: MemoryStore,
        indexes: ItemIndexes,
        connection: Connection,
        now: float,
        kind: str = "",
    ) -> None:
        self._store = store
        self._indexes = indexes
        self._connection = connection
        self._now = now
        self._kind = kind

    def _select(self, where: str, values: Sequence[object]) -> Iterator[StoredItem]:
        """Return the items that meet a condition, in the order of their first put."""
        sql = _SELECT.format(where=where)
        rows = self._connection.execute(sql, (*values, self._kind, self._now))
        return map(_item, rows)

    def get(self, namespace: Namespace, key: str) -> StoredItem | None:
        """Return one item."""
        items = self._select("i.namespace = ? AND i.key = ?", (encode(namespace), key))
        return next(items, None)

    def find(
        self, prefix: Namespace, *, condition: Condition | None = None, limit: int | None = None
    ) -> list[StoredItem]:
        """Return the items in a namespace and below it, in the order of their creation."""
        found = self._select(*under(prefix, "i.namespace"))
        matching = (item for item in found if condition is None or condition(item.value))
        return list(islice(matching, limit))

    def search(
        self,
        prefix: Namespace,
        query: str,
        vector: Vector,
        *,
        condition: Condition | None = None,
        limit: int | None = None,
    ) -> list[tuple[StoredItem, float | None]]:
        """Return items as a recall would rank them, best first; items without a text follow.

        The score of an item is the probability that it is evidence for the answer, as in
        `EntropicMemory.recall`; an item of several texts has that of its best one.

        Args:
            prefix: Where: in this namespace and below it.
            query: What is asked.
            vector: Of the query [d].
            condition: What the value of an item must meet.
            limit: How many at most; None is all.
        """
        passing: list[StoredItem] | None = None
        if condition is not None:
            passing = self.find(prefix, condition=condition)
        with self._indexes.current(self._connection, prefix, self._kind) as index:
            allowed = None
            if passing is not None:
                allowed = index.rows_of(item.row for item in passing)
            most = len(index) if limit is None else limit
            hits = self._best(index, read(query), vector, allowed, most)
            if limit is not None and len(hits) >= limit:
                return hits
            if passing is None:
                passing = self.find(prefix)
            others = [item for item in passing if not index.has(item.row)]
        hits += [(item, None) for item in others]
        return hits[:limit]

    def _best(
        self,
        index: ItemIndex,
        question: QueryReading,
        vector: Vector,
        allowed: Rows | None,
        most: int,
    ) -> list[tuple[StoredItem, float | None]]:
        """Return the best items; look at more until no other can be among them."""
        count = max(most, CANDIDATES)
        while True:
            judged = index.judged(question, vector, self._store.scale, count=count, allowed=allowed)
            hits, worst = self._hits(index, judged, most)
            if len(hits) == most and worst >= judged.rest:
                return hits
            if judged.rest == -math.inf:
                return hits
            count *= 4

    def _hits(
        self, index: ItemIndex, judged: JudgedRows, most: int
    ) -> tuple[list[tuple[StoredItem, float | None]], float]:
        """Return the best live items among candidates, and the fit of the last."""
        rows = judged.rows.tolist()
        fits = judged.fits.tolist()
        scores = judged.scores.tolist()
        best_first = np.lexsort((judged.rows, -judged.fits))
        best = index.best_places(rows, best_first.tolist())
        hits: list[tuple[StoredItem, float | None]] = []
        worst = -math.inf
        while len(hits) < most:
            some = list(islice(best, most))
            if not some:
                break
            stored = self._by_rows([item for item, _ in some])
            for item, place in some:
                if item in stored and len(hits) < most:
                    hits.append((stored[item], scores[place]))
                    worst = fits[place]
        return hits, worst

    def _by_rows(self, rows: Sequence[int]) -> dict[int, StoredItem]:
        """Return the live items of some rows."""
        among = "i.row IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
        items = self._select(among, (json.dumps(list(rows)),))
        return {item.row: item for item in items}

    def namespaces(self) -> list[Namespace]:
        """Return every namespace that holds an item, sorted."""
        rows = self._connection.execute(_NAMESPACES, (self._kind, self._now))
        return sorted(decode(key) for (key,) in rows)


class Items:
    """The key-value items of an open memory. Thread-safe."""

    def __init__(self, store: MemoryStore, submit: Submit) -> None:
        self._store = store
        self._indexes = ItemIndexes(store, submit)
        self.embed_query = store.embed_query
        store.near_parts = self.near_parts
        self.together = store.together

    @contextmanager
    def view(self, *, search: bool = False, kind: str = "") -> Iterator[ItemView]:
        """Open a consistent view; a search needs the embedder of the file."""
        with self._store.database.read() as connection:
            if search:
                self._store.require_embedder(connection)
            yield ItemView(self._store, self._indexes, connection, time.time(), kind)

    def near_parts(
        self,
        connection: Connection,
        space: Space,
        query: str,
        vector: Vector,
        count: int,
        allowed: Rows | None,
    ) -> Candidates | None:
        """Return the best parts of long messages as candidates for the rows that rest on these.

        None if a namespace has no long message.
        """
        if not connection.execute(_HAS_PARTS, (key_of(space.namespace),)).fetchone()[0]:
            return None
        with self._indexes.current(connection, space.namespace, PARTS) as index:
            found = index.rows.candidates(query, vector, count)
        places = {part: place for place, part in enumerate(found.rows.tolist())}
        pairs = connection.execute(_ROWS_OF_PARTS, (space.id, json.dumps([*places]))).fetchall()
        if allowed is not None:
            passing = {*allowed.tolist()}
            pairs = [(part, row) for part, row in pairs if row in passing]
        at = [places[part] for part, _ in pairs]
        rows = numbers([row for _, row in pairs])
        return Candidates(rows, found.cosines[at], found.coverage[at], found.rest)

    def write(
        self,
        puts: Sequence[NewItem] = (),
        *,
        deletes: Sequence[Address] = (),
        touched: Sequence[StoredItem] = (),
    ) -> int:
        """Put and delete items, and refresh the time to live of others, in one transaction.

        An item that replaces another keeps its place and the time of its creation. The time to
        live of an item that belongs to a message is that of the message, and is not refreshed.

        Returns:
            The number of deleted items.

        Raises:
            EcsPluginsError: The embedder failed, or it could not be written; nothing was.
        """
        write = partial(self._write, puts, deletes, touched)
        return write() if puts else self._store.database.making_room(write)

    def _write(
        self, puts: Sequence[NewItem], deletes: Sequence[Address], touched: Sequence[StoredItem]
    ) -> int:
        vectors = self._vectors_of(puts)
        now = time.time()
        changed = {item.namespace for item in puts}
        changed.update(item.namespace for item in touched)
        changed.update(namespace for namespace, _ in deletes)
        with self._store.writing(changed) as connection:
            expired = connection.execute("DELETE FROM items WHERE expires <= ?", (now,)).rowcount
            if deletes or expired:
                self._store.note_scrub(connection)
            _touch(connection, touched, now)
            deleted = _delete(connection, deletes)
            for item in puts:
                row = _put(connection, item, now, has_checksums=self._store.database.has_checksums)
                _write_vectors(connection, row, item, vectors)
        if deletes or expired:
            self._store.database.on_end(lambda committed: committed and self._store.scrub())
        return deleted

    def _vectors_of(self, puts: Sequence[NewItem]) -> dict[str, Vector]:
        """Return the vector of each text of the items."""
        texts: dict[str, None] = {}
        for item in puts:
            found_by = [text for text in item.texts.values() if text.strip()]
            texts.update(dict.fromkeys(found_by))
        if not texts:
            return {}
        vectors = self._store.embed([*texts])
        return dict(zip(texts, vectors, strict=True))


def _item(row: tuple[Any, ...]) -> StoredItem:
    (
        number, namespace, key, stored, checksum, created, updated, ttl, message, text_key, space,
        text,
    ) = row  # fmt: skip
    check(f"item {key!r}", "value", checksum, (stored, created, updated, ttl, text_key, space))
    value: Value = json.loads(stored)
    if text_key is not None:
        value[text_key] = text
    return StoredItem(
        row=number,
        namespace=decode(namespace),
        key=key,
        value=value,
        created=created,
        updated=updated,
        ttl=ttl,
        message=message,
    )


def _touch(connection: Connection, items: Sequence[StoredItem], now: float) -> None:
    """Let the time to live of items begin anew."""
    connection.executemany(_TOUCH, [(now, item.row) for item in items])


def _delete(connection: Connection, addresses: Sequence[Address]) -> int:
    """Delete items; returns how many there were."""
    if not addresses:
        return 0
    keys = [(encode(namespace), key) for namespace, key in addresses]
    gone = connection.executemany("DELETE FROM items WHERE namespace = ? AND key = ?", keys)
    return int(gone.rowcount)


def _put(connection: Connection, item: NewItem, now: float, *, has_checksums: bool) -> int:
    """Write an item and return the number of its row."""
    value = item.serialised()
    noted = (now, item.ttl, item.text_key, item.kind)
    values = (
        encode(item.namespace),
        item.key,
        value,
        crc_of((value, now, *noted)),
        now,
        item.ttl,
        item.message,
        item.text_key,
        item.kind,
    )
    row, created = connection.execute(_PUT, values).fetchone()
    if has_checksums and created != now:  # it replaces another
        connection.execute(_REWRITE_CRC, (crc_of((value, created, *noted)), row))
    connection.execute("DELETE FROM item_vectors WHERE item = ?", (row,))
    return int(row)


def _write_vectors(
    connection: Connection, row: int, item: NewItem, vectors: Mapping[str, Vector]
) -> None:
    rows = []
    for path, text in item.texts.items():
        if text in vectors:
            data, checksum = packed(vectors[text])
            rows.append((row, path, text, data, crc(text), checksum))
    connection.executemany(_INSERT_VECTOR, rows)


def part_vectors(store: MemoryStore, texts: Iterable[str]) -> dict[str, Vector]:
    """Return the vectors of the parts of texts, by part."""
    parts = [part for text in texts for part in parts_of(text)]
    return dict(zip(parts, store.embed(parts), strict=True)) if parts else {}


def write_parts(
    store: MemoryStore,
    connection: Connection,
    namespace: Namespace,
    message: str,
    text: str,
    vectors: Mapping[str, Vector],
) -> None:
    """Write the parts of a long message; delete earlier parts of a message that is short now."""
    parts = parts_of(text)
    if not parts:
        connection.execute(_FORGET_PARTS, (message,))
        return
    texts = {str(place): part for place, part in enumerate(parts)}
    item = NewItem(namespace, f"parts {message}", {}, texts, message=message, kind=PARTS)
    row = _put(connection, item, time.time(), has_checksums=store.database.has_checksums)
    _write_vectors(connection, row, item, vectors)
