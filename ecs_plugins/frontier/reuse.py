"""A reuse ledger: queries per context, preparations and costs, and the report of spending.

All workers of a machine share one SQLite file; workers of several machines share tables of a
PostgreSQL database. Writers of a namespace wait for each other, every count is one atomic
statement, and readers do not block. The ledger keeps ids, counts, costs and times, and no text. It
survives a ``fork``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ecs_plugins.common.checks import is_utf8, shown
from ecs_plugins.common.files import as_path, statements, write_atomically
from ecs_plugins.common.rendering import rendered
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.cost import PointKey, amount, check_number
from ecs_plugins.storage.addresses import is_address
from ecs_plugins.storage.base import Connection, Schema, SqlDatabase
from ecs_plugins.storage.sqlite import MEMORY, Database

# How long a query waits for another writer: once when it is counted, once when it is settled.
BUSY_SECONDS = 1.0
_TABLES = statements(__package__, "ledger.sql")
_POLICIES = statements(__package__, "policies.sql")
_AHEAD = 60.0  # seconds that the clocks of workers may differ; a later time counts as now
_DAY = 86_400.0
_DECAY = 0.95  # of what older contexts count for, with each new one
_FOREVER = 1e18  # seconds

_COUNT = f"""
    INSERT INTO contexts VALUES (?, ?, ?, 1, 1, ?)
    ON CONFLICT (namespace, context, game) DO UPDATE SET
    queries = contexts.queries + 1,
    run = 1 + CASE WHEN contexts.last_seen < excluded.last_seen - ? THEN 0 ELSE contexts.run END,
    last_seen = CASE WHEN contexts.last_seen > excluded.last_seen
        AND contexts.last_seen <= excluded.last_seen + {_AHEAD}
        THEN contexts.last_seen ELSE excluded.last_seen END
    RETURNING queries, run
"""
# The mean is over logarithms: a few contexts that are asked very often do not speak for the others.
# It starts with one context of one query, and each new context makes the older ones count less.
_MEAN = f"""
    INSERT INTO means VALUES (?, ?, {1 + _DECAY}, 0, {1 + _DECAY}, 0)
    ON CONFLICT (namespace, game) DO UPDATE SET
    contexts = means.contexts * ? + ?, logs = means.logs * ? + ?,
    runs = means.runs * ? + ?, run_logs = means.run_logs * ? + ?
    RETURNING contexts, logs, runs, run_logs
"""
_MEANS = "SELECT contexts, logs, runs, run_logs FROM means WHERE namespace = ? AND game = ?"
_ASKED = """
    SELECT queries, run, last_seen FROM contexts
    WHERE namespace = ? AND context = ? AND game = ?
"""
_PREPARED = """
    SELECT strategy, config, cost, at, life FROM prepared WHERE namespace = ? AND context = ?
"""
_RESET = "UPDATE prepared SET at = ? WHERE namespace = ? AND context = ? AND at > ?"
_PREPARE = """
    INSERT INTO prepared VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, context, strategy, config) DO UPDATE SET
    cost = CASE WHEN prepared.cost < excluded.cost THEN excluded.cost ELSE prepared.cost END,
    at = excluded.at,
    life = CASE WHEN excluded.life > 0 THEN excluded.life ELSE prepared.life END
"""
_LEASED = """
    SELECT holder, until FROM leases
    WHERE namespace = ? AND context = ? AND strategy = ? AND config = ?
"""
_LEASE = """
    INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, context, strategy, config) DO UPDATE SET
    holder = excluded.holder, until = excluded.until
"""
_END_LEASE = """
    DELETE FROM leases
    WHERE namespace = ? AND context = ? AND strategy = ? AND config = ? AND holder = ?
"""
_SPEND = """
    INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, day, strategy, config, unit) DO UPDATE SET
    queries = spent.queries + excluded.queries, unknown = spent.unknown + excluded.unknown,
    cost = spent.cost + excluded.cost, compared = spent.compared + excluded.compared,
    baseline = spent.baseline + excluded.baseline
"""
_OF_A_CONTEXT = ("prepared", "leases")
_QUERIES = "SELECT sum(queries) FROM contexts WHERE namespace = ? AND context = ?"
_SPENT = """
    SELECT namespace, day, strategy, queries, unknown, cost, compared, baseline, unit FROM spent
"""

# Two at most for each new context: more than come, and nobody waits long.
_FORGET_CONTEXTS = """
    DELETE FROM contexts WHERE namespace = ? AND (context, game) IN (
    SELECT context, game FROM contexts WHERE namespace = ? AND last_seen < ? LIMIT 2)
    RETURNING context
"""


class Preparation(NamedTuple):
    """A stage 1 that was paid.

    Attributes:
        cost: Of the preparation.
        age: Seconds since it was last used.
        life: Seconds that its entry of a prompt cache lives; 0 where nobody said.
    """

    cost: float
    age: float
    life: float = 0.0


class Count(NamedTuple):
    """Queries of a context, this one included.

    Attributes:
        queries: In all.
        run: Since a gap let an entry of a prompt cache lapse.
        preparations: Of the context, by point.
        usual: Geometric mean of the queries of all contexts so far, recent ones first.
        usual_run: The same of runs.
    """

    queries: int
    run: int
    preparations: Mapping[PointKey, Preparation]
    usual: float = 1.0
    usual_run: float = 1.0


class Lease(StrEnum):
    """Outcome of asking for the lease of a preparation."""

    NEW = "new"
    """Nobody else prepares it, and now this process does."""
    OWN = "own"
    """This process prepares it already."""
    TAKEN = "taken"
    """Another process prepares it."""


class Booking(NamedTuple):
    """The cost of one query under one point.

    Attributes:
        key: Of the point.
        unit: Of the costs.
        cost: Of both stages; None where nobody reported the tokens.
        baseline: Cost of the same query with the whole context; None where it is unknown.
        queries: 0 for a part of a query that another booking counts.
    """

    key: PointKey
    unit: str
    cost: float | None
    baseline: float | None
    queries: int = 1


class Saving(NamedTuple):
    """Costs of the queries of one day, tenant and strategy.

    Attributes:
        day: In UTC.
        queries: All of them.
        unknown: Those whose tokens nobody reported; they are in no other number.
        cost: Of the others.
        compared: Cost of those whose whole context was counted.
        baseline: Cost of the same queries with the whole context.
    """

    day: str
    tenant: str
    strategy: str
    queries: int
    unknown: int
    cost: float
    compared: float
    baseline: float
    unit: str

    @property
    def saved(self) -> float | None:
        """Return the share of the baseline that was not spent; None without a baseline."""
        return 1 - self.compared / self.baseline if self.baseline else None

    def cells(self) -> list[str]:
        """Return the cells of `COLUMNS`."""
        saved = self.saved
        return [
            self.day,
            self.tenant,
            self.strategy,
            f"{self.queries:,}",
            amount(self.cost, self.unit),
            "unknown" if saved is None else amount(self.baseline, self.unit),
            "unknown" if saved is None else f"{saved:.1%}",
            f"{self.unknown:,}",
        ]


def _execute(statements: Iterable[str], connection: Connection) -> None:
    for statement in statements:
        connection.execute(statement)


_FILE = Schema("reuse ledger", [partial(_execute, _TABLES)])
_BOTH = (*_TABLES, *_POLICIES)
_ON_SERVER = Schema("reuse ledger", [partial(_execute, _BOTH)])


def open_tables(path: str, busy_seconds: float) -> SqlDatabase:
    """Open the database at a path or an address, and make it if it is missing.

    Raises:
        StorageError: It cannot be opened, or is no ledger.
    """
    # What was counted survives a crash of the process; a power cut may lose the last counts.
    settings: dict[str, Any] = {"synchronous": "normal", "busy_timeout": busy_seconds}
    if not is_address(path):
        return Database(path, _FILE, **settings)
    from ecs_plugins.storage.postgres import PostgresDatabase

    return PostgresDatabase(path, _ON_SERVER, **settings)


class ReuseLedger:
    """A count of queries per context, for threads, processes and, on PostgreSQL, machines.

    Args:
        path: The file, made if missing; ``":memory:"`` keeps nothing. Or the address of a
            PostgreSQL database: ``postgresql://user:password@host/database?schema=name``.
        namespace: The tenant, as a tuple of names. `within` gives the ledger of another one.
        expire_seconds: After this long without a query a context is forgotten with its
            preparations, when new contexts are counted.
        clock: Unix time, for tests.

    Raises:
        ConfigurationError: A setting is out of range.
        StorageError: The file or the server cannot be opened, or is not a ledger.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        namespace: tuple[str, ...] = (),
        expire_seconds: float = 30 * _DAY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._labels = check_namespace(namespace)
        self._expire = check_number("expire_seconds", expire_seconds)
        if not 0 < self._expire < math.inf:
            raise ConfigurationError(f"expire_seconds must be positive, got {self._expire}")
        # Absolute: a later connection is to the same file, wherever the process has gone.
        stays = str(path) == MEMORY or is_address(path)
        self._path = str(path if stays else as_path(path).absolute())
        self._clock = clock
        self._name = uuid.uuid4().hex
        self._database = open_tables(self._path, BUSY_SECONDS)

    @property
    def _namespace(self) -> str:
        # As JSON, so that ("a", "b") and ("a/b",) can never be one namespace.
        return json.dumps(list(self._labels))

    def within(self, namespace: tuple[str, ...]) -> ReuseLedger:
        """Return the ledger of a tenant below this one, on the same connections."""
        if not namespace:
            return self
        # Not `copy.copy`, which goes by `__reduce__` and opens the file again.
        tenant = object.__new__(ReuseLedger)
        vars(tenant).update(vars(self))
        tenant._labels = (*self._labels, *check_namespace(namespace))
        return tenant

    # Writing.

    def count_query(
        self, context: str, *, game: str = "", life: float | None = None, add: bool = True
    ) -> Count:
        """Count one query and return the count of its context, this query included.

        Args:
            context: Its id.
            game: Queries of one target; each game is counted by itself.
            life: Seconds that an entry of a prompt cache lives, unless a preparation of the
                context says more. A longer gap begins a new run.
            add: False to look ahead without counting.

        Raises:
            InvalidInputError: No id.
            StorageError: It cannot be written; nothing was counted.
        """
        where = (self._namespace, stored_id(context))
        if add:
            return self._count(where, game, life)
        with self._database.read() as connection:
            row = connection.execute(_ASKED, (*where, game)).fetchone()
            preparations = self._prepared_in(connection, where)
            known = connection.execute(_MEANS, (self._namespace, game)).fetchone()
        usual = _means(known or (1.0, 0.0, 1.0, 0.0))
        if row is None:
            return Count(1, 1, preparations, *usual)
        queries, run, last_seen = row
        if last_seen < self._clock() - _gap(life, preparations):
            run = 0
        return Count(queries + 1, run + 1, preparations, *usual)

    def _count(self, where: tuple[str, str], game: str, life: float | None) -> Count:
        now = self._clock()
        with self._database.write(scope=(self._namespace,)) as connection:
            preparations = self._prepared_in(connection, where, reset=True)
            values = (*where, game, now, _gap(life, preparations))
            total, run = connection.execute(_COUNT, values).fetchone()
            growth = (*_growth(total), *_growth(run))
            row = connection.execute(_MEAN, (self._namespace, game, *growth)).fetchone()
            if total == 1:
                self._forget_expired(connection, now - self._expire)
        return Count(total, run, preparations, *_means(row))

    def _prepared_in(
        self, connection: Connection, where: tuple[str, str], *, reset: bool = False
    ) -> dict[PointKey, Preparation]:
        """Return the preparations of a context; ``reset`` overwrites times that lie ahead."""
        now = self._clock()
        preparations = {}
        latest = now
        for strategy, config, cost, at, life in connection.execute(_PREPARED, where).fetchall():
            latest = max(latest, at)
            preparations[strategy, config] = Preparation(cost, max(0.0, now - at), life)
        if reset and latest > now + _AHEAD:
            connection.execute(_RESET, (now, *where, now + _AHEAD))
        return preparations

    def begin_preparation(self, context: str, key: PointKey, seconds: float) -> Lease:
        """Lease the preparation of a point.

        A lease that is not followed by a preparation within ``seconds`` is given to the next.
        """
        now = self._clock()
        where = (self._namespace, stored_id(context), *key)
        until = now + seconds
        with self._database.write(scope=(self._namespace,)) as connection:
            row = connection.execute(_LEASED, where).fetchone()
            if row is not None and now <= row[1] <= until + _AHEAD:
                return Lease.OWN if row[0] == self._holder else Lease.TAKEN
            connection.execute(_LEASE, (*where, self._holder, until))
        return Lease.NEW

    @property
    def _holder(self) -> str:
        return f"{self._name}-{os.getpid()}"

    def end_preparation(self, context: str, key: PointKey) -> None:
        """Give a lease back, so that the next may try."""
        values = (self._namespace, stored_id(context), *key, self._holder)
        with self._database.write(scope=(self._namespace,)) as connection:
            connection.execute(_END_LEASE, values)

    def book(
        self, context: str, prepared: Mapping[PointKey, Preparation], spent: Iterable[Booking]
    ) -> None:
        """Note the preparations and costs of a query, all or none.

        Args:
            context: Its id; empty for a query about none.
            prepared: Points whose stage 1 is now paid.
            spent: Costs of the query.

        Raises:
            StorageError: It cannot be written; nothing of it was.
        """
        now = self._clock()
        day = int(now // _DAY)
        name = stored_id(context) if context else ""
        with self._database.write(scope=(self._namespace,)) as connection:
            for key, paid in prepared.items():
                where = (self._namespace, name, *key)
                connection.execute(_PREPARE, (*where, paid.cost, now, paid.life))
                connection.execute(_END_LEASE, (*where, self._holder))
            for booking in spent:
                row = (self._namespace, day, *booking.key, booking.unit, *_sums(booking))
                connection.execute(_SPEND, row)

    def forget(self, context: str) -> bool:
        """Delete everything about a context but its share in means and costs.

        Returns:
            False if there was nothing.
        """
        where = (self._namespace, stored_id(context))
        with self._database.write(scope=(self._namespace,)) as connection:
            return self._forget(connection, ("contexts", *_OF_A_CONTEXT), where)

    def _forget(self, connection: Connection, tables: Iterable[str], where: Sequence[str]) -> bool:
        gone = False
        for table in tables:
            statement = f"DELETE FROM {table} WHERE namespace = ? AND context = ? RETURNING 1"
            gone |= bool(connection.execute(statement, where).fetchall())
        return gone

    def _forget_expired(self, connection: Connection, since: float) -> None:
        values = (self._namespace, self._namespace, since)
        for (context,) in connection.execute(_FORGET_CONTEXTS, values).fetchall():
            where = (self._namespace, context)
            if connection.execute(_QUERIES, where).fetchone()[0] is None:
                self._forget(connection, _OF_A_CONTEXT, where)

    # Reading.

    def count(self, context: str) -> int:
        """Return the number of queries of a context, at all targets."""
        with self._database.read() as connection:
            where = (self._namespace, stored_id(context))
            return int(connection.execute(_QUERIES, where).fetchone()[0] or 0)

    def prepared(self, context: str) -> dict[PointKey, float]:
        """Return the points for which a context was prepared, with the cost of their stage 1."""
        with self._database.read() as connection:
            prepared = self._prepared_in(connection, (self._namespace, stored_id(context)))
        return {key: preparation.cost for key, preparation in prepared.items()}

    def spent_by_tenants(self) -> list[Saving]:
        """Return the costs of every namespace that this role may see."""
        with self._database.read() as connection:
            rows = connection.execute(_SPENT, ()).fetchall()
        spent = []
        for namespace, day, *rest in rows:
            tenant = "/".join(json.loads(namespace)) or "-"
            date = datetime.fromtimestamp(day * _DAY, UTC).date()
            spent.append(Saving(date.isoformat(), tenant, *rest))
        return spent

    # The file.

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> ReuseLedger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[], ReuseLedger], tuple[()]]:
        if self._path == MEMORY:
            raise TypeError("a ledger in memory cannot be pickled; give it a file")
        settings: dict[str, Any] = {"expire_seconds": self._expire, "clock": self._clock}
        return partial(ReuseLedger, self._path, namespace=self._labels, **settings), ()


def _gap(life: float | None, preparations: Mapping[PointKey, Preparation]) -> float:
    """Return the seconds without a query after which a run has ended."""
    if life is None:
        return _FOREVER
    return max([life, *(preparation.life for preparation in preparations.values())])


def _growth(count: int) -> tuple[float, float, float, float]:
    """Return the factors and terms by which one more query changes a number and its logarithms."""
    if count == 1:
        return _DECAY, 1.0, _DECAY, 0.0
    return 1.0, 0.0, 1.0, math.log(count / (count - 1))


def _means(row: tuple[float, float, float, float]) -> tuple[float, float]:
    """Return the geometric means of the queries of contexts, and of runs."""
    contexts, logs, runs, run_logs = row
    return math.exp(logs / contexts), math.exp(run_logs / runs)


def _sums(booking: Booking) -> tuple[int, int, float, float, float]:
    """Return the additions of a booking to queries, unknown, cost, compared and baseline."""
    if booking.cost is None:
        return booking.queries, booking.queries, 0.0, 0.0, 0.0
    if booking.baseline is None:
        return booking.queries, 0, booking.cost, 0.0, 0.0
    return booking.queries, 0, booking.cost, booking.cost, booking.baseline


def stored_id(context: str) -> str:
    """Return an id as every database can keep it.

    Lone surrogates and NUL have no place in UTF-8 or PostgreSQL: such an id is kept as its hash.
    """
    if not isinstance(context, str) or not context:
        raise InvalidInputError(f"a context needs an id, a text, got {shown(context, 60)}")
    if "\0" not in context and (context.isascii() or is_utf8(context)):
        return context
    return hashlib.sha256(context.encode("utf-8", "surrogatepass")).hexdigest()


def check_namespace(namespace: object) -> tuple[str, ...]:
    """Return a namespace, a tuple of names, or refuse it."""
    given = tuple(namespace) if isinstance(namespace, list) else namespace
    if not isinstance(given, tuple) or any(not isinstance(name, str) for name in given):
        raise ConfigurationError(f"a namespace is a tuple of names, got {shown(namespace, 60)}")
    return given


SPENDING_COLUMNS = (
    "day",
    "tenant",
    "strategy",
    "queries",
    "spent",
    "full context",
    "saved",
    "unknown",
)


def savings(ledger: ReuseLedger) -> list[Saving]:
    """Return costs and savings by day, tenant and strategy, oldest first.

    They are those of the tenants that the role of the ledger may see.

    Raises:
        StorageError: The ledger cannot be read.
    """
    return sorted(ledger.spent_by_tenants())


def total(rows: Iterable[Saving]) -> Iterator[Saving]:
    """Yield the sum of some savings, one for each unit."""
    rows = list(rows)
    for unit in dict.fromkeys(row.unit for row in rows):
        own = [row for row in rows if row.unit == unit]
        sums: Iterable[Any] = map(sum, zip(*(row[3:8] for row in own), strict=True))
        yield Saving._make(["all", "", "", *sums, unit])


def write_spending(ledger: ReuseLedger, path: str | os.PathLike[str]) -> Path:
    """Write the spending report as a page.

    Raises:
        StorageError: The ledger cannot be read, or the page not be written.
    """
    rows = savings(ledger)
    page = rendered(
        "spending.html.j2",
        "Spent and saved",
        columns=SPENDING_COLUMNS,
        rows=rows,
        totals=list(total(rows)),
    )
    return write_atomically(path, page)
