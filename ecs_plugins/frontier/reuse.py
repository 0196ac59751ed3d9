"""How often a context is asked: the ledger that counts it for all that route.

The ledger is one SQLite file that all workers of a machine share, or tables of a PostgreSQL
database that those of several do. Writers of a namespace wait for each other, every count is one
atomic upsert, and readers do not block. It may be carried over a ``fork``. Only ids, counts,
costs and times are kept: no text.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ecs_plugins.common.checks import check_text
from ecs_plugins.common.files import as_path, statements
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.frontier.cost import PointKey
from ecs_plugins.frontier.forecast import ReuseModel
from ecs_plugins.frontier.ledger import (
    Booking,
    Count,
    DaySpend,
    Observed,
    Preparation,
    check_finite,
    check_settings,
    day_spend,
    observed_of,
    stored_id,
    stored_key,
)
from ecs_plugins.frontier.ledger_tables import BUSY_SECONDS, open_tables
from ecs_plugins.frontier.tally import Times, read_model
from ecs_plugins.storage.addresses import is_address
from ecs_plugins.storage.base import Connection
from ecs_plugins.storage.sqlite import MEMORY

(
    _COUNT,
    _END_RUN,
    _UNIT,
    _PREPARE,
    _LEASE,
    _END_LEASE,
    _OBSERVE,
    _SPEND,
    _IDLE_CONTEXTS,
    _UNUSED_PREPARATIONS,
    _FORGET_RUNS,
    _FORGET_CONTEXT,
    _FORGET_PREPARATION,
    _FORGET_LEASES,
    _FORGET_OBSERVED,
    _FORGET_UNOBSERVED,
) = statements(__package__, "counts.sql")
_ASKED = (
    "SELECT queries, run, lapses, last_seen FROM contexts "
    "WHERE namespace = ? AND context = ? AND game = ?"
)
_PREPARED = "SELECT strategy, config, cost, at FROM prepared WHERE namespace = ? AND context = ?"
_log = logging.getLogger(__name__)
# The model is fitted again with this share of new contexts, or after this share of the time in
# which a context ends: neither moves a fit by much of its own error.
_REFIT_SHARE = 0.1
_TIDY_SECONDS = 3600.0
_FORGOTTEN_AT_ONCE = 500
_FOREVER = 1e18  # seconds that no gap is longer than
_DAY = 86_400.0
_MOST = 2**53


class ReuseLedger:
    """Counts queries per context for many threads, processes and, on PostgreSQL, machines.

    Args:
        path: The file, made if missing; ``":memory:"`` keeps nothing. Or the address of a
            PostgreSQL database: ``postgresql://user:password@host/database?schema=name``.
        namespace: Tenant, as a tuple of names; another namespace is never read or written.
        idle_seconds: After this long without a query a context counts as ended.
        expire_seconds: After this long without a query a context is forgotten, with what was
            prepared for it; looked at once an hour, off the query's way.
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
        idle_seconds: float = 86_400.0,
        expire_seconds: float = 30 * 86_400.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_settings(namespace, idle_seconds, expire_seconds)
        # Absolute: a later connection is to the same file, wherever the process has gone.
        stays = str(path) == MEMORY or is_address(path)
        self._path = str(path if stays else as_path(path).absolute())
        settings: dict[str, Any] = {"idle_seconds": idle_seconds, "expire_seconds": expire_seconds}
        self._again = partial(ReuseLedger, self._path, namespace=namespace, clock=clock, **settings)
        # As JSON, so that ("a", "b") and ("a/b",) can never be one namespace.
        self._namespace = json.dumps(list(namespace))
        self._idle = idle_seconds
        self._expire = expire_seconds
        self._clock = clock
        self._name = uuid.uuid4().hex
        self._model = ReuseModel()
        self._life: float | None = None
        self._threads: dict[str, threading.Thread] = {}
        # Contexts and runs that all workers have counted first: as last seen, and at the fit.
        self._units = 0
        self._fitted_units = 0
        self._fitted = -math.inf
        self._tidied = -math.inf
        self._database = open_tables(self._path, BUSY_SECONDS)

    # Writing.

    def record(self, context: str, queries: int = 1) -> int:
        """Count ``queries`` more and return how often the context was asked in total.

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
        """Count one query more and return how often the context was asked, this one included.

        Args:
            context: Its id.
            game: What is asked of it; each game is counted by itself.
            life: After a gap of so many seconds an entry of the prompt cache has lapsed.
            add: Whether it is counted; False to look ahead.

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
        if row is None:
            return Count(1, 1, 0, preparations)
        queries, run, lapses, last_seen = row
        if life is not None and last_seen < self._clock() - life:
            return Count(queries + 1, 1, lapses + 1, preparations)
        return Count(queries + 1, run + 1, lapses, preparations)

    def _count(self, context: str, queries: int, game: str, life: float | None) -> Count:
        now = self._clock()
        self._tidy_when_due(now)
        name = stored_id(context)
        gap = _FOREVER if life is None else life
        values = (self._namespace, name, game, queries, queries, now, now, gap, gap, gap)
        with self._database.write(scope=(self._namespace,)) as connection:
            total, run, lapses, ended = connection.execute(_COUNT, values).fetchone()
            if ended:
                connection.execute(_END_RUN, (self._namespace, name, game, ended))
            if ended or total == queries:
                ((units,),) = connection.execute(_UNIT, (self._namespace,)).fetchall()
                self._units = units
            preparations = self._prepared_in(connection, (self._namespace, name))
        if life is not None:
            self._life = life
        return Count(total, run, lapses, preparations)

    def _prepared_in(
        self, connection: Connection, where: tuple[str, str]
    ) -> dict[PointKey, Preparation]:
        now = self._clock()
        preparations = {}
        for strategy, config, cost, at in connection.execute(_PREPARED, where).fetchall():
            age = now - at
            preparations[strategy, config] = Preparation(cost, age)
        return preparations

    def mark_prepared(self, context: str, key: PointKey, cost: float = 0.0) -> None:
        """Note that stage 1 of a point was paid for this context, so it is sunk from now on."""
        where = (self._namespace, stored_id(context), *stored_key(key))
        self._run(_PREPARE, (*where, check_finite("cost", cost), self._clock()))

    def begin_preparation(self, context: str, key: PointKey, seconds: float) -> bool:
        """Say that stage 1 of a point is being paid here; False where somebody else does so.

        Who does not note it as prepared within ``seconds`` has failed, and the next may try.
        """
        now = self._clock()
        holder = self._holder
        where = (self._namespace, stored_id(context), *key)
        values = (*where, holder, now + seconds, now)
        with self._database.write(scope=(self._namespace,)) as connection:
            return connection.execute(_LEASE, values).fetchone() is not None

    @property
    def _holder(self) -> str:
        return f"{self._name}-{os.getpid()}"

    def end_preparation(self, context: str, key: PointKey) -> None:
        """It was not paid here after all: the next may try."""
        where = (self._namespace, stored_id(context), *stored_key(key))
        self._run(_END_LEASE, (*where, self._holder))

    def observe(self, key: PointKey, kind: str, value: float) -> None:
        """Add a value to what was observed of a point: a ``"score"``, or a ``"cost"`` ratio."""
        seen = check_finite("value", value)
        where = (self._namespace, *stored_key(key), check_text("kind", kind))
        self._run(_OBSERVE, (*where, seen, seen * seen))

    def book(
        self,
        context: str,
        prepared: Mapping[PointKey, float],
        ratio: float | None,
        spent: Booking | None,
    ) -> None:
        """Note at once what one query of a context came to.

        Args:
            context: Its id; empty for a query about none.
            prepared: Points whose stage 1 is now paid, and what it cost.
            ratio: Cost over the forecast, where it can be compared.
            spent: What it cost.

        Raises:
            StorageError: It cannot be written; nothing of it was.
        """
        now = self._clock()
        name = stored_id(context) if context else ""
        with self._database.write(scope=(self._namespace,)) as connection:
            for key, cost in prepared.items():
                values = (self._namespace, name, *key, cost, now)
                connection.execute(_PREPARE, values)
            if spent is None:
                return
            if ratio is not None:
                observed = (self._namespace, *spent.key, "cost", ratio, ratio * ratio)
                connection.execute(_OBSERVE, observed)
            day = int(now // _DAY)
            costs = (spent.unit, spent.cost, spent.baseline)
            strategy, config = spent.key
            booked = (self._namespace, day, spent.name or strategy, config, *costs)
            connection.execute(_SPEND, booked)

    def forget(self, context: str) -> bool:
        """Delete everything about a context; returns whether there was anything."""
        where = (self._namespace, stored_id(context))
        gone = False
        for table in ("prepared", "leases", "runs", "contexts"):
            statement = f"DELETE FROM {table} WHERE namespace = ? AND context = ? RETURNING 1"
            gone |= bool(self._run(statement, where))
        return gone

    # Reading.

    def count(self, context: str) -> int:
        """How often a context was asked, whatever was asked of it; 0 if never."""
        rows = self._run(
            "SELECT sum(queries) FROM contexts WHERE namespace = ? AND context = ?",
            (self._namespace, stored_id(context)),
        )
        return int(rows[0][0] or 0)

    def finished_runs(self, context: str, game: str = "") -> Mapping[int, int]:
        """How often a run of so many queries has ended, as the prompt cache lapsed."""
        rows = self._run(
            "SELECT queries, times FROM runs WHERE namespace = ? AND context = ? AND game = ?",
            (self._namespace, stored_id(context), game),
        )
        return dict(rows)

    def prepared(self, context: str) -> dict[PointKey, float]:
        """Keys of the points for which a context was prepared, and what their stage 1 cost."""
        with self._database.read() as connection:
            prepared = self._prepared_in(connection, (self._namespace, stored_id(context)))
        return {key: preparation.cost for key, preparation in prepared.items()}

    def observed(self, kind: str) -> dict[PointKey, Observed]:
        """What was observed of each point, of a kind of values."""
        rows = self._run(
            "SELECT strategy, config, n, total / n, squares / n FROM observed "
            "WHERE namespace = ? AND kind = ?",
            (self._namespace, check_text("kind", kind)),
        )
        return {(strategy, config): observed_of(*row) for strategy, config, *row in rows}

    def forget_observed(self, kind: str, taken: Mapping[PointKey, Observed]) -> None:
        """Forget values that `observed` gave, and keep those that came since."""
        with self._database.write(scope=(self._namespace,)) as connection:
            for key, seen in taken.items():
                where = (self._namespace, *key, kind)
                connection.execute(_FORGET_OBSERVED, (*seen.sums(), *where, seen.n))
                connection.execute(_FORGET_UNOBSERVED, where)

    def spent_by_tenants(self) -> list[DaySpend]:
        """What was spent in every namespace that this role may see."""
        rows = self._run(
            "SELECT namespace, day, strategy, config, unit, queries, cost, baseline FROM spent",
            (),
        )
        return [day_spend(row) for row in rows]

    def spent_today(self, unit: str) -> float:
        """What the queries of today (UTC) have cost so far, in a unit."""
        day = int(self._clock() // _DAY)
        rows = self._run(
            "SELECT sum(cost) FROM spent WHERE namespace = ? AND day = ? AND unit = ?",
            (self._namespace, day, check_text("unit", unit)),
        )
        return float(rows[0][0] or 0.0)

    def __len__(self) -> int:
        """Number of contexts."""
        rows = self._run(
            "SELECT count(DISTINCT context) FROM contexts WHERE namespace = ?", (self._namespace,)
        )
        return int(rows[0][0])

    # Forecasting.

    def model(self, life: float | None = None) -> ReuseModel:
        """The distribution of queries per context, fitted to all contexts of the namespace.

        Fitted again with a tenth more contexts, or as many runs of them, and after a tenth of
        ``idle_seconds``, as about a tenth of those that go on may have ended since. With the
        ``life`` of a prompt cache's entries in seconds it knows their runs as well.
        """
        if life is not None:
            self._life = check_finite("life", life)
        if self._due():
            self._refit()
        return self._model

    def latest_model(self, life: float | None = None) -> ReuseModel:
        """The last `model`; where one is due, it is fitted in a thread, and no query waits."""
        if life is not None:
            self._life = life
        if self._due():
            self._in_background("fit", self._refit)
        return self._model

    def _due(self) -> bool:
        late = self._clock() - self._fitted > self._idle * _REFIT_SHARE
        # Runs count by the number of contexts: what is not fitted yet is taken for mistakes.
        return late or self.unfitted > self._model.contexts * _REFIT_SHARE

    def _refit(self) -> None:
        now = self._clock()
        try:
            units = self._run("SELECT units FROM totals WHERE namespace = ?", (self._namespace,))
            self._model = read_model(self._run, self._namespace, Times(now, self._idle, self._life))
            self._fitted_units = sum(count for (count,) in units)
            self._units = max(self._units, self._fitted_units)
        finally:
            self._fitted = now

    @property
    def unfitted(self) -> int:
        """How many contexts and runs were first seen, by all workers, since the fit."""
        return self._units - self._fitted_units

    # The file.

    def close(self) -> None:
        """Close the file; what goes on in the background ends first."""
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
        return self._again, ()

    def _tidy_when_due(self, now: float) -> None:
        if now - self._tidied > _TIDY_SECONDS:
            self._tidied = now
            self._in_background("tidy", self._forget_expired)

    def _forget_expired(self) -> None:
        namespace = self._namespace
        since = self._clock() - self._expire
        contexts = self._run(_IDLE_CONTEXTS, (namespace, since))
        self._forget([_FORGET_RUNS, _FORGET_CONTEXT], contexts, since)
        preparations = self._run(_UNUSED_PREPARATIONS, (namespace, since))
        self._forget([_FORGET_PREPARATION], preparations, since)
        self._run(_FORGET_LEASES, (namespace, since))

    def _forget(self, deletes: Sequence[str], rows: Sequence[Any], since: float) -> None:
        """Delete rows a few at a time, so that nobody waits long."""
        for start in range(0, len(rows), _FORGOTTEN_AT_ONCE):
            some = rows[start : start + _FORGOTTEN_AT_ONCE]
            values = [(self._namespace, *row, since) for row in some]
            with self._database.write(scope=(self._namespace,)) as connection:
                for delete in deletes:
                    connection.executemany(delete, values)

    def _in_background(self, name: str, work: Callable[[], None]) -> None:
        """Run in a thread, unless it runs already; a database in memory has no second user."""
        if self._path == MEMORY:
            work()
            return
        running = self._threads.get(name)
        if running is not None and running.is_alive():
            return

        def quietly() -> None:
            try:
                work()
            except StorageError as error:
                _log.warning("the ledger could not %s: %s", name, error)

        thread = threading.Thread(target=quietly, daemon=True)
        self._threads[name] = thread
        thread.start()

    def _run(self, statement: str, values: tuple[object, ...]) -> list[Any]:
        database = self._database
        if statement.startswith("SELECT"):
            with database.read() as connection:
                return list(connection.execute(statement, values).fetchall())
        with database.write(scope=(self._namespace,)) as connection:
            cursor = connection.execute(statement, values)
            if not cursor.description:
                return []
            return list(cursor.fetchall())
