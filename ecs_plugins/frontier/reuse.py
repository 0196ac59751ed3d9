"""A reuse ledger: queries per context, preparations and costs.

All workers of a machine share one SQLite file; workers of several machines share tables of a
PostgreSQL database. Writers of a namespace wait for each other, every count is one atomic
statement, and readers do not block. The ledger keeps ids, counts, costs and times, and no text. It
survives a ``fork``.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from cachetools import LRUCache

from ecs_plugins.common.files import as_path, statements
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.cost import PointKey
from ecs_plugins.frontier.ledger import (
    Booking,
    Count,
    DaySpend,
    Lease,
    Preparation,
    check_finite,
    check_namespace,
    day_spend,
    stored_id,
    stored_key,
)
from ecs_plugins.storage.addresses import is_address
from ecs_plugins.storage.base import Connection, Schema, SqlDatabase
from ecs_plugins.storage.sqlite import MEMORY, Database

# How long a query waits for another writer: once when it is counted, once when it is settled.
BUSY_SECONDS = 1.0
_TABLES = statements(__package__, "ledger.sql")
_POLICIES = statements(__package__, "policies.sql")
_log = logging.getLogger(__name__)
_AHEAD = 60.0  # seconds that the clocks of workers may differ; a later time counts as now
_TIDY_SECONDS = 3600.0
_FORGOTTEN_AT_ONCE = 500
_TENANTS = 4096  # whose last tidying is remembered
_DAY = 86_400.0
_DECAY = 0.95  # of what older contexts count for, with each new one
_FOREVER = 1e18  # seconds
_MOST = 2**53

_COUNT = f"""
    INSERT INTO contexts VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, context, game) DO UPDATE SET
    queries = contexts.queries + excluded.queries,
    run = excluded.run
        + CASE WHEN contexts.last_seen < excluded.last_seen - ? THEN 0 ELSE contexts.run END,
    last_seen = CASE WHEN contexts.last_seen > excluded.last_seen
        AND contexts.last_seen <= excluded.last_seen + {_AHEAD}
        THEN contexts.last_seen ELSE excluded.last_seen END
    RETURNING queries, run
"""
# The mean is over logarithms: a few contexts that are asked very often do not speak for the others.
# It starts with one context of one query, and each new context makes the older ones count less.
_MEAN = f"""
    INSERT INTO means VALUES (?, ?, {1 + _DECAY}, ?, {1 + _DECAY}, ?)
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
_SPENT = """
    SELECT namespace, day, strategy, config, unit, queries, unknown, cost, compared, baseline
    FROM spent
"""

# Old rows are found by reading, so that nobody waits for a lock meanwhile.
_OLD_CONTEXTS = "SELECT context, game FROM contexts WHERE namespace = ? AND last_seen < ?"
_FORGET_CONTEXT = """
    DELETE FROM contexts WHERE namespace = ? AND context = ? AND game = ? AND last_seen < ?
"""
_OLD_PREPARATIONS = """
    SELECT context, strategy, config FROM prepared
    WHERE namespace = ? AND at < ? AND NOT EXISTS (SELECT 1 FROM contexts c
    WHERE c.namespace = prepared.namespace AND c.context = prepared.context)
"""
_FORGET_PREPARATION = """
    DELETE FROM prepared
    WHERE namespace = ? AND context = ? AND strategy = ? AND config = ? AND at < ?
"""
_FORGET_LEASES = "DELETE FROM leases WHERE namespace = ? AND until < ?"


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
            preparations. A background thread looks for them once an hour.
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
        try:
            self._expire = check_finite("expire_seconds", expire_seconds)
        except InvalidInputError as error:
            raise ConfigurationError(str(error)) from None
        if self._expire <= 0:
            raise ConfigurationError(f"expire_seconds must be positive, got {expire_seconds}")
        # Absolute: a later connection is to the same file, wherever the process has gone.
        stays = str(path) == MEMORY or is_address(path)
        self._path = str(path if stays else as_path(path).absolute())
        self._clock = clock
        self._name = uuid.uuid4().hex
        self._threads: dict[str, threading.Thread] = {}
        self._tidied: LRUCache[str, float] = LRUCache(_TENANTS)
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

    def record(self, context: str, queries: int = 1) -> int:
        """Count ``queries`` more and return the total of the context.

        Raises:
            InvalidInputError: No id, or ``queries`` < 1.
            StorageError: It cannot be written; nothing was counted.
        """
        if not isinstance(queries, int) or not 1 <= queries <= _MOST:
            raise InvalidInputError(f"count a whole number of queries in [1, {_MOST}]")
        return self._count(context, queries, "", None).queries

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
        if add:
            return self._count(context, 1, game, life)
        where = (self._namespace, stored_id(context))
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

    def _count(self, context: str, queries: int, game: str, life: float | None) -> Count:
        now = self._clock()
        self._tidy_when_due(now)
        where = (self._namespace, stored_id(context))
        with self._database.write(scope=(self._namespace,)) as connection:
            preparations = self._prepared_in(connection, where, reset=True)
            values = (*where, game, queries, queries, now, _gap(life, preparations))
            total, run = connection.execute(_COUNT, values).fetchone()
            more = _growth(total, queries)
            more_run = _growth(run, queries)
            known = (where[0], game, more[3], more_run[3])
            row = connection.execute(_MEAN, (*known, *more, *more_run)).fetchone()
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

    def mark_prepared(
        self, context: str, key: PointKey, cost: float = 0.0, life: float = 0.0
    ) -> None:
        """Note that stage 1 of a point was paid for a context, so that it is sunk from now on."""
        where = (self._namespace, stored_id(context), *stored_key(key))
        paid = check_finite("cost", cost)
        self._run(_PREPARE, (*where, paid, self._clock(), check_finite("life", life)))

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
        where = (self._namespace, stored_id(context), *stored_key(key))
        self._run(_END_LEASE, (*where, self._holder))

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
        gone = False
        for table in ("prepared", "leases", "contexts"):
            statement = f"DELETE FROM {table} WHERE namespace = ? AND context = ? RETURNING 1"
            gone |= bool(self._run(statement, where))
        return gone

    # Reading.

    def count(self, context: str) -> int:
        """Return the number of queries of a context, at all targets."""
        rows = self._read(
            "SELECT sum(queries) FROM contexts WHERE namespace = ? AND context = ?",
            (self._namespace, stored_id(context)),
        )
        return int(rows[0][0] or 0)

    def prepared(self, context: str) -> dict[PointKey, float]:
        """Return the points for which a context was prepared, with the cost of their stage 1."""
        with self._database.read() as connection:
            prepared = self._prepared_in(connection, (self._namespace, stored_id(context)))
        return {key: preparation.cost for key, preparation in prepared.items()}

    def spent_by_tenants(self) -> list[DaySpend]:
        """Return the costs of every namespace that this role may see."""
        return [day_spend(row) for row in self._read(_SPENT, ())]

    def __len__(self) -> int:
        """Return the number of contexts."""
        rows = self._read(
            "SELECT count(DISTINCT context) FROM contexts WHERE namespace = ?", (self._namespace,)
        )
        return int(rows[0][0])

    # The file.

    def close(self) -> None:
        """Close the file, after the work in the background has ended."""
        for thread in list(self._threads.values()):
            thread.join()
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

    def _tidy_when_due(self, now: float) -> None:
        namespace = self._namespace
        if abs(now - self._tidied.get(namespace, -math.inf)) > _TIDY_SECONDS:
            self._tidied[namespace] = now
            self._in_background(self._forget_expired)

    def _forget_expired(self) -> None:
        since = self._clock() - self._expire
        contexts = self._read(_OLD_CONTEXTS, (self._namespace, since))
        self._forget(_FORGET_CONTEXT, contexts, since)
        preparations = self._read(_OLD_PREPARATIONS, (self._namespace, since))
        self._forget(_FORGET_PREPARATION, preparations, since)
        self._run(_FORGET_LEASES, (self._namespace, since))

    def _forget(self, delete: str, rows: Sequence[Any], since: float) -> None:
        """Delete rows a few at a time, so that nobody waits long."""
        for start in range(0, len(rows), _FORGOTTEN_AT_ONCE):
            some = rows[start : start + _FORGOTTEN_AT_ONCE]
            values = [(self._namespace, *row, since) for row in some]
            with self._database.write(scope=(self._namespace,)) as connection:
                connection.executemany(delete, values)

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run in a thread, one per namespace; a database in memory has no second user."""
        if self._path == MEMORY:
            work()
            return
        running = self._threads.get(self._namespace)
        if running is not None and running.is_alive():
            return

        def work_quietly() -> None:
            try:
                work()
            except StorageError as error:
                _log.warning("expired contexts could not be forgotten: %s", error)
            finally:
                self._threads.pop(self._namespace, None)

        thread = threading.Thread(target=work_quietly, daemon=True)
        self._threads[self._namespace] = thread
        thread.start()

    def _read(self, statement: str, values: tuple[object, ...]) -> list[Any]:
        with self._database.read() as connection:
            return list(connection.execute(statement, values).fetchall())

    def _run(self, statement: str, values: tuple[object, ...]) -> list[Any]:
        with self._database.write(scope=(self._namespace,)) as connection:
            cursor = connection.execute(statement, values)
            if not cursor.description:
                return []
            return list(cursor.fetchall())


def _gap(life: float | None, preparations: Mapping[PointKey, Preparation]) -> float:
    """Return the seconds without a query after which a run has ended."""
    if life is None:
        return _FOREVER
    return max([life, *(preparation.life for preparation in preparations.values())])


def _growth(total: int, added: int) -> tuple[float, float, float, float]:
    """Return the factors and terms by which queries change a number and a sum of logarithms."""
    if total == added:
        return _DECAY, 1.0, _DECAY, math.log(total)
    return 1.0, 0.0, 1.0, math.log(total / (total - added))


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
