"""The tables of a memory on PostgreSQL, and how pgvector and a term table find its items.

The tables are those of a memory file, and the rows in them the same. Beside them stands what the
server finds items by, which a transaction writes before it commits:

* ``entries_384``: the vector and the terms of every live row; one table per dimension. The rows of
  small namespaces are compared one by one, which is exact. Those of large ones are in an HNSW
  graph; what it does not find among the rows of others is compared one by one as well.
* ``postings`` and ``words``: in which rows of a namespace a term is, and in how many. Terms are
  hashes. The scores are those of `ecs_plugins.ranking.coverage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ecs_plugins.common.files import statements
from ecs_plugins.common.text import terms
from ecs_plugins.errors import StorageError
from ecs_plugins.memory.config import StoreConfig
from ecs_plugins.memory.filters import Filter
from ecs_plugins.memory.store import namespaces, schema, values
from ecs_plugins.memory.store.messages import digest
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.seam import Candidates, Rows, SpaceIndexes
from ecs_plugins.memory.store.values import unpack
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.ranking.coverage import MIN_TEXTS, POSTINGS_READ
from ecs_plugins.storage.base import Connection, Schema
from ecs_plugins.storage.postgres import PostgresDatabase

_LARGE = 2000
"""Items from which on a namespace is searched through the graph."""
_EF_SEARCH = 110  # at 100,000 items the three best are those of a file in 98 of 100
_MANY = 32
"""Vectors from which on those of a small namespace are fetched to be compared."""
_EF_EXPECTED = 64  # enough to find what a message repeats, which is very near
_SETTINGS = {
    "hnsw.ef_search": str(_EF_SEARCH),
    "hnsw.iterative_scan": "strict_order",
    # A statement is planned once and by indexes, whatever is known of the tables by then.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
}
_MOST_DIMENSIONS = 2000  # that pgvector can index
_OLDEST = 0, 6


def _extension(connection: Connection) -> None:
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    except Exception as error:
        raise StorageError(
            f"the database has no pgvector, and it could not be added: {error}; install it on the "
            "server, and let a superuser run CREATE EXTENSION vector"
        ) from error


def _make(connection: Connection) -> None:
    """Make the tables of a memory file, those of the terms, and an index of what filters ask."""
    _extension(connection)
    for statement in schema.TABLES:
        if "graphs" not in statement:
            connection.execute(statement.replace("evidence TEXT", "evidence JSON"))
    for name in ("postgres.sql", "policies.sql", "metadata.sql"):
        for statement in statements(__package__, name):
            connection.execute(statement)


MEMORY_TABLES = Schema("memory", schema.VERSION, _make)


def open_postgres(address: str, settings: StoreConfig, *, read_only: bool) -> PostgresDatabase:
    """The database of an address, with the tables of a memory."""
    database = PostgresDatabase(
        address,
        MEMORY_TABLES,
        settings=_SETTINGS,
        synchronous=settings.synchronous,
        busy_timeout=settings.busy_timeout,
        read_only=read_only,
    )
    with database.read() as connection:
        found = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
        version = "".join(text for (text,) in found)
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        database.close()
        raise StorageError(
            f"{database.path} has pgvector {version}; this needs {'.'.join(map(str, _OLDEST))} or "
            "newer: install it on the server, and let a superuser run ALTER EXTENSION vector UPDATE"
        )
    return database


_SCORED, _ALLOWED, _CHOSEN, _NEAREST, _NEAREST_OF_EACH = statements(__package__, "candidates.sql")
_UNSETTLED, _GONE, _NEW, _GROWN, _ROW, *_WORDS, _TABLES = statements(__package__, "settling.sql")
_WRITTEN, _TAKEN_OUT = _WORDS[:2], _WORDS[2:]


def _terms(text: str) -> list[int]:
    return [digest(term) for term in dict.fromkeys(terms(text))]


def _array(numbers: Iterable[int]) -> str:
    """Numbers as PostgreSQL reads them; psycopg takes many times as long for a list."""
    return f"{{{','.join(map(str, numbers))}}}"


def _is_exact(key: str, wanted: object) -> bool:
    """Whether what equals it in Python does so in JSON: True is 1 there, and a float inexact."""
    whole = type(wanted) is int and 1 < abs(wanted) < 2**53
    return "." not in key and (isinstance(wanted, str) or whole)


def _within(space: object, large: bool) -> str:
    """A condition for the rows of a namespace; a plus leaves only the graph to find them by."""
    return f"large AND +namespace = {space}" if large else f"namespace = {space}"


class ServerIndex:
    """Finds the items of one namespace within one transaction, by statements."""

    def __init__(self, connection: Connection, space: Space, table: str, linked: bool) -> None:
        self._connection = connection
        self._space = space
        self._table = table
        # What the graph finds too few of is compared one by one as well.
        self._attempts = (True, False) if linked and space.items >= _LARGE else (False,)
        self._new: list[int] = []  # rows that `settle` has not written yet
        self._vectors: Matrix | None = None  # of these; twice as long when it is full
        self._expected: dict[tuple[bytes, int], list[tuple[int, float]]] = {}

    def add(self, row: int, vector: Vector) -> None:
        """Take notice of a row that this transaction has written."""
        if self._vectors is None:
            self._vectors = np.empty((64, len(vector)), dtype=np.float32)
        elif len(self._new) == len(self._vectors):
            self._vectors = np.concatenate([self._vectors, self._vectors])
        self._vectors[len(self._new)] = vector
        self._new.append(row)

    def expect(self, vectors: Matrix, k: int) -> None:
        """Look up the nearest rows of several vectors by one statement."""
        if len(vectors) >= _MANY and not self._attempts[0]:
            self._compare(vectors, k)
        for large in self._attempts:
            unknown = [each for each in vectors if (each.tobytes(), k) not in self._expected]
            if unknown:
                self._look_up(unknown, k, large)

    def _look_up(self, vectors: Sequence[Vector], k: int, large: bool) -> None:
        """Ask for the nearest rows of several vectors; of the graph, only where it finds enough."""
        numbered = ", ".join(f"({number}, ?::vector)" for number in range(len(vectors)))
        among = _within(self._space.id, large)
        sql = _NEAREST_OF_EACH.format(table=self._table, asked=numbered, among=among, k=k)
        self._connection.execute(f"SET LOCAL hnsw.ef_search = {_EF_EXPECTED}")
        found = self._connection.execute(sql, vectors).fetchall()
        self._connection.execute(f"SET LOCAL hnsw.ef_search = {_EF_SEARCH}")
        near: list[list[tuple[int, float]]] = [[] for _ in vectors]
        for number, row, distance in found:
            near[number].append((row, distance))
        for vector, rows in zip(vectors, near, strict=True):
            if len(rows) == k or not large:
                self._expected[vector.tobytes(), k] = rows

    def _compare(self, vectors: Matrix, k: int) -> None:
        """Compare vectors with all rows here: to fetch these once takes less for many vectors."""
        found = self._connection.execute(
            "SELECT row, vector FROM tiers WHERE namespace = ? AND live = 1", (self._space.id,)
        ).fetchall()
        held = np.frombuffer(b"".join(data for _, data in found), dtype="<f4")
        products = vectors @ held.reshape(-1, vectors.shape[1]).T
        for vector, cosines in zip(vectors, products, strict=True):
            best = np.argpartition(-cosines, k)[:k] if len(found) > k else np.arange(len(found))
            near = [(found[at][0], -float(cosines[at])) for at in best]
            self._expected[vector.tobytes(), k] = near

    def nearest(self, query: Vector, k: int, *, allowed: Rows | None = None) -> tuple[Rows, Vector]:
        """The ``k`` rows of the largest cosine, and these, best first."""
        if allowed is not None:
            near = self._nearest_of(query, k, allowed)
        elif (query.tobytes(), k) in self._expected:
            near = [*self._expected[query.tobytes(), k]]
        else:
            near = self._nearest_of_all(query, k)
        near += self._nearest_new(query, k)
        near.sort(key=lambda each: each[1])
        rows = np.array([row for row, _ in near[:k]], dtype=np.int64)
        return rows, np.array([-distance for _, distance in near[:k]], dtype=np.float32)

    def _nearest_of(self, query: Vector, k: int, allowed: Rows) -> list[tuple[int, float]]:
        """The nearest of some rows, with their distances."""
        among = f"{_within('?', large=False)} AND row = ANY(?)"
        sql = _NEAREST.format(table=self._table, among=among, k=k)
        values = (query, self._space.id, _array(allowed.tolist()))
        return [*self._connection.execute(sql, values).fetchall()]

    def _nearest_of_all(self, query: Vector, k: int) -> list[tuple[int, float]]:
        """The nearest rows with their distances, by the graph if it finds enough."""
        near: list[tuple[int, float]] = []
        for large in self._attempts:
            if len(near) < k:
                sql = _NEAREST.format(table=self._table, among=_within("?", large), k=k)
                near = [*self._connection.execute(sql, (query, self._space.id)).fetchall()]
        return near

    def _nearest_new(self, query: Vector, k: int) -> list[tuple[int, float]]:
        """The nearest of the rows that this transaction has written."""
        if self._vectors is None:
            return []
        distances = -self._vectors[: len(self._new)] @ query
        best = np.argsort(distances)[:k].tolist()
        return [(self._new[place], float(distances[place])) for place in best]

    def candidates(
        self, query: str, vector: Vector, count: int, *, allowed: Rows | None = None
    ) -> Candidates:
        """See `SpaceIndex.candidates`; one statement, so that the server is waited for once."""
        texts = max(MIN_TEXTS, self._space.items)
        values = [_array(_terms(query)), texts, self._space.id, vector]
        if allowed is not None:
            found = self._scored(_ALLOWED, [*values, _array(allowed.tolist())], most="ALL")
            return _candidates(found, None)
        for large in self._attempts:
            among, most = _within("?3", large), 2 * count
            parts = {"among": among, "count": count, "most": most, "read": POSTINGS_READ}
            found = self._scored(_CHOSEN, values, **parts)
            near = [cosine for _, cosine, _, is_near, _ in found if is_near]
            if len(near) == count:
                break
        covers = sorted((each[2] for each in found if each[4]), reverse=True)
        least = covers[count - 1] if len(covers) >= count else 0.0
        return _candidates(found, (min(near), least) if len(near) == count else None)

    def known(self, words: Sequence[str]) -> set[str]:
        """See `SpaceIndex.known`."""
        forms = {digest(form): word for word in words for form in (word, f"{word}'s")}
        found = self._connection.execute(
            "SELECT term FROM words WHERE namespace = ? AND texts > 0 AND term = ANY(?::bigint[])",
            (self._space.id, _array(forms)),
        )
        return {forms[term] for (term,) in found.fetchall()}

    def _scored(self, chosen: str, values: Sequence[object], **parts: object) -> list[Any]:
        sql = _SCORED.format(chosen=chosen.format(table=self._table, **parts), **parts)
        return [*self._connection.execute(sql, values).fetchall()]


def _candidates(found: Sequence[Sequence[Any]], rest: tuple[float, float] | None) -> Candidates:
    rows, cosines, coverage, *_ = zip(*found, strict=True) if found else ((), (), ())
    return Candidates(
        np.array(rows, dtype=np.int64),
        np.array(cosines, dtype=np.float32),
        np.array(coverage, dtype=np.float64),
        rest,
    )


class ServerIndexes(SpaceIndexes):
    """What the server of an open memory finds items by. Thread-safe."""

    def __init__(self, database: PostgresDatabase, dimension: int) -> None:
        self._database = database
        self._dimension = dimension
        self._table = f"entries_{dimension}"

    def current(self, connection: Connection, space: Space) -> ServerIndex:
        """The index of a namespace as of a transaction."""
        return ServerIndex(connection, space, self._table, self._dimension <= _MOST_DIMENSIONS)

    def needed(self, space: Space, condition: Filter) -> tuple[str, Sequence[object]]:
        """See `SpaceIndexes.needed`; what is equal in JSON, by an index."""
        found = {key: wanted for key, wanted in condition.items() if _is_exact(key, wanted)}
        sql = " AND findable(namespace, metadata) @> findable(?, ?)" if found else ""
        return sql, (space.id, values.dump(found)) if found else ()

    def prepare(self) -> None:
        """Make the table of the dimension if it is missing, and write to it what is missing."""
        with self._database.read() as connection:
            known = self._database.has_table(connection, self._table)
            if self._database.read_only or (known and not self._unsettled(connection)):
                return
        with self._database.write() as connection:
            made = statements(__package__, "entries.sql")
            indexed = made if self._dimension <= _MOST_DIMENSIONS else made[:4]
            for statement in () if self._database.has_table(connection, self._table) else indexed:
                connection.execute(statement.format(dimension=self._dimension))
            self.settle(connection)

    def _unsettled(self, connection: Connection) -> list[int]:
        """The namespaces of which rows are not in the table yet."""
        return [number for (number,) in connection.execute(_UNSETTLED.format(table=self._table))]

    def settle(self, connection: Connection, space: Space | None = None) -> None:
        """Write to the table what a transaction wrote to a namespace, or to all."""
        if space is None:
            for number in self._unsettled(connection):
                self._settle(connection, namespaces.space_by_id(connection, number))
        else:
            self._settle(connection, space)

    def _settle(self, connection: Connection, space: Space) -> None:
        if space.gone:
            gone = connection.execute(_GONE.format(table=self._table), (_array(space.gone),))
            self._write_terms(connection, space, dict(gone.fetchall()), _TAKEN_OUT)
        new = connection.execute(_NEW.format(table=self._table), (space.id,)).fetchall()
        before = space.items - len(new) + len(space.gone)
        if before < _LARGE <= space.items:
            connection.execute(_GROWN.format(table=self._table), (space.id,))
        said = {row: _terms(f"{asked} {text}") for row, _, _, _, asked, text in new}
        connection.executemany(
            _ROW.format(table=self._table),
            (
                (
                    row,
                    space.id,
                    int(space.items >= _LARGE),
                    _array(said[row]),
                    unpack(vector, check, self._dimension, str(name)),
                )
                for row, vector, check, name, _, _ in new
            ),
        )
        self._write_terms(connection, space, said, _WRITTEN)
        space.gone.clear()

    @staticmethod
    def _write_terms(
        connection: Connection, space: Space, said: Mapping[int, Sequence[int]], how: Sequence[str]
    ) -> None:
        pairs = [(term, row) for row, found in said.items() for term in found]
        values = *map(_array, zip(*pairs, strict=True)), space.id
        for statement in how if pairs else ():
            connection.execute(statement, values)

    def clear(self, connection: Connection, space: int | None = None) -> None:
        """Delete what is kept of a namespace, or of all, with the tables of every dimension."""
        if space is None:
            for (name,) in connection.execute(_TABLES, (self._database.schema,)).fetchall():
                connection.execute(f"DROP TABLE {name}")
            connection.execute("TRUNCATE words, postings")
            return
        for table in (self._table, "words", "postings"):
            connection.execute(f"DELETE FROM {table} WHERE namespace = ?", (space,))

    def problems(self, connection: Connection, space: Space) -> Iterable[str]:
        """Whether what is kept of a namespace is out of step with its rows."""
        (counts,) = statements(__package__, "problems.sql")
        live, kept, said, posted, counted = connection.execute(
            counts.format(table=self._table), (space.id,)
        ).fetchone()
        if live != kept or not said == posted == counted:
            yield f"{space.namespace}: the index is out of step"
