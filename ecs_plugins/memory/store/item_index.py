"""Index over the key-value items below a prefix: their vectors and their words.

Each searched prefix has an index of its own, because a word is rare or frequent among the items
that are searched. Before each search the index follows the transaction of its reader: the rows of
``item_vectors`` are only ever added or removed, never changed.

Where items are turns of a conversation, a turn that replies to the question before it is found by
the words of that question too.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from ecs_plugins.memory.relevance import QueryReading, Scale
from ecs_plugins.memory.store.index import LARGE, IndexCache, RowIndex, VectorIndex, numbers
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.messages import Turn, question_before
from ecs_plugins.memory.store.namespaces import key_of, under
from ecs_plugins.memory.store.seam import JudgedRows, Rows, judge
from ecs_plugins.memory.store.values import unpack
from ecs_plugins.memory.types import Namespace, Vector
from ecs_plugins.storage.base import Connection

Rebuild = Callable[[threading.Event], None]
Submit = Callable[[str, Rebuild], None]
"""Runs a job in the background."""

_BUDGET = 1 << 28
"""Bytes of the open indexes of items; the least recently used ones are closed beyond it."""

_TEXT_KEYS = ("content", "text")
"""Keys of a value that hold the text of a turn."""

_BELOW = "FROM items i JOIN item_vectors v ON v.item = i.row WHERE {where} AND i.space = ?"
_ENTRIES = f"""
    SELECT v.row, v.item, v.path, v.text, v.vector, v.vector_crc, i.namespace, i.value, i.created
    {_BELOW} AND {{rows}}
    ORDER BY v.item, v.path
"""
_ROWS = f"SELECT v.row {_BELOW}"
_SUMS = f"SELECT count(*), coalesce(sum(v.row), 0) {_BELOW}"
_LATEST = """
    SELECT
        (SELECT coalesce(max(row), 0) FROM item_vectors),
        (SELECT count(*) FROM item_vectors)
"""
_EVERY = "TRUE"
_LATER = "v.row > ?"
_AMONG = "v.row IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"


class _State(NamedTuple):
    """State of the rows in a transaction: their last number or their sum, and their count."""

    rows: int
    number: int


class ItemIndex:
    """The index of the items of one kind below a prefix; its user holds `lock`."""

    def __init__(self, store: MemoryStore, prefix: Namespace, kind: str) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._where, bounds = under(prefix, "i.namespace")
        # Without an index of the namespaces: a few rows are found by their numbers.
        self._where_of_few, _ = under(prefix, "(i.namespace || '')")
        self._values = (*bounds, kind)
        self.rows = RowIndex(VectorIndex(store.dimension), store.epoch)
        self._state: _State | None = None
        self._items: dict[int, int] = {}  # by row
        self._rows: dict[int, list[int]] = {}  # by item
        self._texts: dict[int, str] = {}  # by row
        self._turns: dict[int, Turn] = {}  # by item
        self._orders: dict[str, list[int]] = {}  # items by namespace, ascending

    def __len__(self) -> int:
        return len(self._items)

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        return self.rows.size

    def best_places(
        self, rows: Sequence[int], best_first: Iterable[int]
    ) -> Iterator[tuple[int, int]]:
        """Yield each item once with the place of its best row; ``best_first`` orders the places."""
        seen = set()
        for place in best_first:
            item = self._items[rows[place]]
            if item not in seen:
                seen.add(item)
                yield item, place

    def has(self, item: int) -> bool:
        """Return True if the index has a row of an item."""
        return item in self._rows

    def rows_of(self, items: Iterable[int]) -> Rows:
        """Return the rows of some items."""
        own = [self._rows.get(item, ()) for item in items]
        return numbers([*chain.from_iterable(own)])

    def judged(
        self,
        question: QueryReading,
        vector: Vector,
        scale: Scale,
        *,
        count: int,
        allowed: Rows | None,
    ) -> JudgedRows:
        """Judge rows by a question; see `judge`."""
        items = len(self) if allowed is None else len(allowed)
        return judge(self.rows, question, vector, scale, count=count, allowed=allowed, items=items)

    # Following the database

    def follow(self, connection: Connection) -> None:
        """Bring the index to the state of a transaction."""
        if self._store.database.rows_rise:
            self._follow_latest(connection)
        else:
            self._follow_sums(connection)

    def _follow_latest(self, connection: Connection) -> None:
        """Follow a database in which new rows have the highest numbers."""
        state = _State(*connection.execute(_LATEST).fetchone())
        before = self._state
        if state == before:
            return
        if before is None:
            self._load(connection, _EVERY)
        elif state.rows > before.rows and self._only_came(connection, before, state):
            self._load(connection, _LATER, before.rows)
        else:
            self._compare(connection)
        self._state = state

    @staticmethod
    def _only_came(connection: Connection, before: _State, state: _State) -> bool:
        """Return True if no row was removed between two states."""
        sql = "SELECT count(*) FROM item_vectors WHERE row > ?"
        (came,) = connection.execute(sql, (before.rows,)).fetchone()
        return state.number == before.number + int(came)

    def _follow_sums(self, connection: Connection) -> None:
        """Follow a database in which rows appear in any order."""
        sql = _SUMS.format(where=self._where)
        count, total = connection.execute(sql, self._values).fetchone()
        state = _State(int(total), int(count))
        if state != self._state:
            self._compare(connection)
            self._state = state

    def _compare(self, connection: Connection) -> None:
        """Drop removed rows, and load missing ones."""
        rows = connection.execute(_ROWS.format(where=self._where), self._values)
        present = {row for (row,) in rows}
        self._drop([row for row in self._items if row not in present])
        missing = [row for row in present if row not in self._items]
        if len(missing) == len(present):
            self._load(connection, _EVERY)
        elif missing:
            self._load(connection, _AMONG, json.dumps(missing))

    def _load(self, connection: Connection, rows: str, *value: object) -> None:
        """Load rows of the database."""
        where = self._where if rows == _EVERY else self._where_of_few
        sql = _ENTRIES.format(where=where, rows=rows)
        vectors = {}
        changed: dict[int, str] = {}
        for row, item, path, text, data, checksum, namespace, stored, created in connection.execute(
            sql, (*self._values, *value)
        ):
            what = f"item {item} at {path}"
            vectors[row] = unpack(data, checksum, self._store.dimension, what)
            self._items[row] = item
            self._rows.setdefault(item, []).append(row)
            self._texts[row] = text
            if item not in self._turns:
                self._turns[item] = _turn(text, json.loads(stored), created)
                insort(self._orders.setdefault(namespace, []), item)
            changed[item] = namespace
        self.rows.insert(vectors, {})
        self._reread(changed)

    def _drop(self, rows: Sequence[int]) -> None:
        """Remove rows."""
        self.rows.remove(numbers(rows))
        emptied = set()
        for row in rows:
            item = self._items.pop(row)
            del self._texts[row]
            self._rows[item].remove(row)
            if not self._rows[item]:
                del self._rows[item]
                del self._turns[item]
                emptied.add(item)
        for namespace, order in self._orders.items():
            gone = emptied.intersection(order)
            if gone:
                self._orders[namespace] = [item for item in order if item not in gone]
                self._reread({item: namespace for item in gone})

    def _reread(self, changed: Mapping[int, str]) -> None:
        """Read changed items and their successors, each with the question before it."""
        said = {}
        for item, namespace in changed.items():
            order = self._orders[namespace]
            place = bisect_left(order, item)
            for at in (place, place + 1):
                if at < len(order):
                    said.update(self._readings(order, at))
        self.rows.say(said)

    def _readings(self, order: Sequence[int], at: int) -> dict[int, str]:
        """Return, for each row of an item, its text after the question that the item replies to."""
        item = order[at]
        asked = ""
        if at:
            asked = question_before(self._turns[order[at - 1]], self._turns[item])
        return {row: f"{asked} {self._texts[row]}" for row in self._rows[item]}


def _turn(text: str, value: Mapping[str, Any], created: float) -> Turn:
    """Return the turn of a conversation that an item holds."""
    said = [value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str)]
    role = value.get("role")
    return Turn(
        name="",
        text=said[0] if said else text,
        role=role if isinstance(role, str) else "",
        at=created,
    )


class ItemIndexes:
    """The indexes of the key-value items of an open memory. Thread-safe.

    Args:
        store: The memory.
        submit: Runs long work in the background.
    """

    def __init__(self, store: MemoryStore, submit: Submit) -> None:
        self._store = store
        self._submit = submit
        self.reset()
        store.database.at_fork.append(self.reset)

    def reset(self) -> None:
        """Begin without an index, also in a forked child."""
        self._open: IndexCache[tuple[str, str], ItemIndex] = IndexCache(_BUDGET)

    @contextmanager
    def current(self, connection: Connection, prefix: Namespace, kind: str) -> Iterator[ItemIndex]:
        """Lend the index below a prefix, as of a transaction, to one user at a time."""
        store = self._store
        make = partial(ItemIndex, store, prefix, kind)
        if store.database.is_writing:
            index = make()  # rows that are not committed stay in an index of their own
        else:
            key = (kind, key_of(prefix))
            index = self._open.get(key, make, lambda known: known.rows.epoch == store.epoch)
        with index.lock:
            index.follow(connection)
            yield index
        vectors = index.rows.index
        if vectors.is_worn and len(vectors) < LARGE:
            vectors.rebuild()
        elif vectors.is_worn:
            self._submit(f"rebuilding index {id(vectors)}", vectors.rebuild)
