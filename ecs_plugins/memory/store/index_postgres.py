"""Indexes of a memory on PostgreSQL: pgvector and a table of terms.

Beside the tables of the memory stands what the server finds items by, which a transaction writes
before it commits:

* ``entries_384``: the vector and the terms of every live row; one table per dimension. The rows of
  small namespaces are compared one by one, which is exact. Those of large ones are in an HNSW
  graph; what it does not find among the rows of others is compared one by one as well.
* ``postings`` and ``words``: in which rows of a namespace a term is, and in how many. Terms are
  hashes. The scores are those of `ecs_plugins.ranking.coverage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ecs_plugins.common.files import statements
from ecs_plugins.common.text import terms
from ecs_plugins.memory.filters import Filter
from ecs_plugins.memory.store import namespaces, values
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.seam import Candidates, Rows, SpaceIndexes
from ecs_plugins.memory.store.values import digest, unpack
from ecs_plugins.memory.types import Vector
from ecs_plugins.ranking.coverage import MIN_TEXTS, POSTINGS_READ
from ecs_plugins.storage.base import Connection
from ecs_plugins.storage.postgres import PostgresDatabase

_LARGE = 2000
"""Items from which on a namespace is searched through the graph."""

EF_SEARCH = 110
"""At 100,000 items the three best are those of a file in 98 of 100 then."""

_MOST_DIMENSIONS = 2000
"""That pgvector can index."""

_SCORED, _ALLOWED, _CHOSEN, _NEAREST = statements(__package__, "candidates.sql")
_UNSETTLED, _GONE, _NEW, _GROWN, _ROW, *_WORDS, _TABLES = statements(__package__, "settling.sql")
_WRITTEN = _WORDS[:2]
_TAKEN_OUT = _WORDS[2:]

_KNOWN = """
    SELECT term FROM words
    WHERE namespace = ? AND texts > 0 AND term = ANY(?::bigint[])
"""


def _terms(text: str) -> list[int]:
    """Return the hashes of the terms of a text, each once."""
    different = dict.fromkeys(terms(text))
    return [digest(term) for term in different]


def _array(numbers: Iterable[int]) -> str:
    """Return numbers as PostgreSQL reads them; psycopg takes many times as long for a list."""
    listed = ",".join(map(str, numbers))
    return f"{{{listed}}}"


def _is_exact(key: str, wanted: object) -> bool:
    """Return True if values equal in Python are also equal in JSON; booleans and floats are not."""
    if "." in key:
        return False
    if type(wanted) is int:
        return 1 < abs(wanted) < 2**53
    return isinstance(wanted, str)


def _within(space: object, large: bool) -> str:
    """Return a condition for the rows of a namespace.

    Behind a plus, no index of the namespaces serves: only the graph is left to find the rows by.
    """
    if large:
        return f"large AND +namespace = {space}"
    return f"namespace = {space}"


class _ScoredRow(NamedTuple):
    """A row with its scores; the flags tell if it is among the best by each of them."""

    row: int
    cosine: float
    coverage: float
    is_near: bool
    covers: bool


class ServerIndex:
    """Finds the items of one namespace by SQL queries in one transaction."""

    def __init__(self, connection: Connection, space: Space, table: str, linked: bool) -> None:
        self._connection = connection
        self._space = space
        self._table = table
        self._attempts: tuple[bool, ...] = (False,)
        if linked and space.items >= _LARGE:
            # What the graph finds too few of is compared one by one as well.
            self._attempts = (True, False)

    def nearest(
        self, query: Vector, k: int, *, allowed: Rows | None = None, narrow: bool = False
    ) -> tuple[Rows, Vector]:
        """Return the ``k`` rows of the largest cosine, and these, best first."""
        del narrow  # the width is that of the session
        values = [query, self._space.id]
        attempts, among = self._attempts, ""
        if allowed is not None:
            attempts, among = (False,), " AND row = ANY(?)"
            values.append(_array(allowed.tolist()))
        near: list[tuple[int, float]] = []
        for large in attempts:  # the graph may find too few
            where = f"{_within('?', large)}{among}"
            sql = _NEAREST.format(table=self._table, among=where, k=k)
            near = self._connection.execute(sql, values).fetchall()
            if len(near) >= k:
                break
        rows = [row for row, _ in near]
        cosines = [-distance for _, distance in near]
        return np.array(rows, dtype=np.int64), np.array(cosines, dtype=np.float32)

    def candidates(
        self, query: str, vector: Vector, count: int, *, allowed: Rows | None = None
    ) -> Candidates:
        """See `SpaceIndex.candidates`; one statement, so that the server is waited for once."""
        texts = max(MIN_TEXTS, self._space.items)
        values = [_array(_terms(query)), texts, self._space.id, vector]
        if allowed is not None:
            own = _array(allowed.tolist())
            return _candidates(self._scored(_ALLOWED, [*values, own], most="ALL"), None)
        scored: list[_ScoredRow] = []
        near: list[float] = []
        for large in self._attempts:
            scored = self._scored(
                _CHOSEN,
                values,
                among=_within("?3", large),
                count=count,
                most=2 * count,
                read=POSTINGS_READ,
            )
            near = [each.cosine for each in scored if each.is_near]
            if len(near) == count:
                break
        if len(near) < count:
            return _candidates(scored, None)
        covering = [each.coverage for each in scored if each.covers]
        covering.sort(reverse=True)
        least = covering[count - 1] if len(covering) >= count else 0.0
        return _candidates(scored, (min(near), least))

    def known(self, words: Sequence[str]) -> set[str]:
        """See `SpaceIndex.known`."""
        forms: dict[int, str] = {}
        for word in words:
            forms[digest(word)] = word
            forms[digest(f"{word}'s")] = word
        rows = self._connection.execute(_KNOWN, (self._space.id, _array(forms)))
        return {forms[term] for (term,) in rows}

    def _scored(self, chosen: str, values: Sequence[object], **parts: object) -> list[_ScoredRow]:
        among = chosen.format(table=self._table, **parts)
        sql = _SCORED.format(chosen=among, **parts)
        rows = self._connection.execute(sql, values).fetchall()
        return [_ScoredRow(*row) for row in rows]


def _candidates(scored: Sequence[_ScoredRow], rest: tuple[float, float] | None) -> Candidates:
    rows = [each.row for each in scored]
    cosines = [each.cosine for each in scored]
    coverage = [each.coverage for each in scored]
    return Candidates(
        rows=np.array(rows, dtype=np.int64),
        cosines=np.array(cosines, dtype=np.float32),
        coverage=np.array(coverage, dtype=np.float64),
        rest=rest,
    )


class ServerIndexes(SpaceIndexes):
    """Indexes on the server of an open memory. Thread-safe."""

    def __init__(self, database: PostgresDatabase, dimension: int) -> None:
        self._database = database
        self._dimension = dimension
        self._table = f"entries_{dimension}"

    def current(self, connection: Connection, space: Space) -> ServerIndex:
        """Return the index of a namespace as of a transaction."""
        return ServerIndex(connection, space, self._table, self._has_graph)

    @property
    def _has_graph(self) -> bool:
        return self._dimension <= _MOST_DIMENSIONS

    def needed(self, space: Space, condition: Filter) -> tuple[str, Sequence[object]]:
        """Return the condition of `SpaceIndexes.needed`; equality in JSON uses an index."""
        exact = {key: wanted for key, wanted in condition.items() if _is_exact(key, wanted)}
        if not exact:
            return "", ()
        sql = " AND findable(namespace, metadata) @> findable(?, ?)"
        return sql, (space.id, values.dump(exact))

    def prepare(self) -> None:
        """Make the table of the dimension if it is missing, and add missing rows."""
        with self._database.read() as connection:
            if self._database.read_only:
                return
            if self._is_made(connection) and not self._unsettled(connection):
                return
        with self._database.write() as connection:
            if not self._is_made(connection):
                self._make(connection)
            self.settle(connection)

    def _is_made(self, connection: Any) -> bool:
        return self._database.has_table(connection, self._table)

    def _make(self, connection: Connection) -> None:
        """Make the table of the dimension, and its graph where vectors are short enough."""
        steps = statements(__package__, "entries.sql")
        if not self._has_graph:
            steps = steps[:4]
        for statement in steps:
            connection.execute(statement.format(dimension=self._dimension))

    def _unsettled(self, connection: Connection) -> list[int]:
        """Return the namespaces of which rows are not in the table yet."""
        rows = connection.execute(_UNSETTLED.format(table=self._table))
        return [number for (number,) in rows]

    def settle(self, connection: Connection, space: Space | None = None) -> None:
        """Write a transaction's rows of one or all namespaces to the table."""
        if space is not None:
            self._settle(connection, space)
            return
        for number in self._unsettled(connection):
            found = namespaces.space_by_id(connection, number)
            self._settle(connection, found)

    def _settle(self, connection: Connection, space: Space) -> None:
        table = self._table
        if space.gone:
            gone = connection.execute(_GONE.format(table=table), (_array(space.gone),))
            self._write_terms(connection, space, dict(gone.fetchall()), _TAKEN_OUT)
        rows = connection.execute(_NEW.format(table=table), (space.id,)).fetchall()
        is_large = space.items >= _LARGE
        before = space.items - len(rows) + len(space.gone)
        if is_large and before < _LARGE:
            connection.execute(_GROWN.format(table=table), (space.id,))
        terms_of: dict[int, list[int]] = {}
        entries = []
        for row, data, check, name, asked, text in rows:
            own = _terms(f"{asked} {text}")
            terms_of[row] = own
            vector = unpack(data, check, self._dimension, str(name))
            entry = (row, space.id, int(is_large), _array(own), vector)
            entries.append(entry)
        connection.executemany(_ROW.format(table=table), entries)
        self._write_terms(connection, space, terms_of, _WRITTEN)
        space.gone.clear()

    @staticmethod
    def _write_terms(
        connection: Connection,
        space: Space,
        terms_of: Mapping[int, Sequence[int]],
        how: Sequence[str],
    ) -> None:
        found = []
        rows = []
        for row, own in terms_of.items():
            for term in own:
                found.append(term)
                rows.append(row)
        if not rows:
            return
        values = (_array(found), _array(rows), space.id)
        for statement in how:
            connection.execute(statement, values)

    def clear(self, connection: Connection, space: int | None = None) -> None:
        """Delete the rows of one or all namespaces from the tables of every dimension."""
        if space is not None:
            for table in (self._table, "words", "postings"):
                connection.execute(f"DELETE FROM {table} WHERE namespace = ?", (space,))
            return
        tables = connection.execute(_TABLES, (self._database.schema,)).fetchall()
        for (name,) in tables:
            connection.execute(f"DROP TABLE {name}")
        connection.execute("TRUNCATE words, postings")
