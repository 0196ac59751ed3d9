"""The reuse ledger: how often each context is asked, and for what it is already prepared.

One SQLite file that all workers share. Writers wait for each other (write-ahead log, busy
timeout), every count is one atomic upsert, and readers do not block. Only ids, counts and times
are kept: no text.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.forecast import HORIZON, ReuseForecast, ReuseModel, fit_reuse
from ecs_plugins.frontier.points import PointKey

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS contexts (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    queries INTEGER NOT NULL,
    first_seen REAL NOT NULL,
    last_seen REAL NOT NULL,
    PRIMARY KEY (namespace, context)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS prepared (
    namespace TEXT NOT NULL,
    context TEXT NOT NULL,
    strategy TEXT NOT NULL,
    config TEXT NOT NULL,
    cost REAL NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (namespace, context, strategy, config)
) WITHOUT ROWID;
"""
_COUNT = """
INSERT INTO contexts VALUES (?, ?, ?, ?, ?)
ON CONFLICT (namespace, context) DO UPDATE
SET queries = queries + excluded.queries, last_seen = max(last_seen, excluded.last_seen)
RETURNING queries
"""
# How far the number of contexts may grow before the model is fitted again.
_REFIT = 1.1


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """What is known of one context.

    Attributes:
        context: Its id.
        queries: How often it was asked.
        first_seen: Unix time of the first query.
        last_seen: Unix time of the last query.
        prepared: Keys of the points for which it is prepared -> what that cost.
    """

    context: str
    queries: int
    first_seen: float
    last_seen: float
    prepared: dict[PointKey, float]


class ReuseLedger:
    """Counts queries per context in a SQLite file; safe for many threads and processes.

    Args:
        path: The file, made if missing; ``":memory:"`` keeps nothing.
        namespace: Tenant, as a tuple of names; another namespace is never read or written.
        idle_seconds: After this long without a query a context counts as ended.
        busy_timeout: Seconds to wait for another writer.
        durable: True survives a power cut after every count; False (default) survives a crash
            of the process, and may forget the last counts at a power cut.
        clock: Unix time, for tests.

    Raises:
        ConfigurationError: A setting is out of range.
        StorageError: The file cannot be opened or is not a ledger.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        namespace: tuple[str, ...] = (),
        idle_seconds: float = 86_400.0,
        busy_timeout: float = 10.0,
        durable: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if idle_seconds <= 0 or busy_timeout < 0:
            raise ConfigurationError("need idle_seconds > 0 and busy_timeout >= 0")
        self._path = str(path)
        # As JSON, so that ("a", "b") and ("a/b",) can never be one namespace.
        self._namespace = json.dumps(list(namespace))
        self._idle = idle_seconds
        self._timeout = busy_timeout
        self._durable = durable
        self._clock = clock
        self._lock = threading.RLock()
        self._model: ReuseModel | None = None
        self._connection = self._connect()

    # Writing.

    def record(self, context: str, queries: int = 1) -> int:
        """Count ``queries`` more and return how often the context was asked in total.

        Raises:
            InvalidInputError: An empty id, or ``queries`` < 1.
            StorageError: It cannot be written; nothing was counted.
        """
        if not context or queries < 1:
            raise InvalidInputError("count at least one query of a context with an id")
        now = self._clock()
        row = self._run(_COUNT, (self._namespace, context, queries, now, now))
        return int(row[0][0])

    def mark_prepared(self, context: str, key: PointKey, cost: float = 0.0) -> None:
        """Note that stage 1 of a point was paid for this context, so it is sunk from now on.

        Args:
            context: Id of the context.
            key: ``StrategyPoint.key``.
            cost: What it cost.
        """
        if not context:
            raise InvalidInputError("a context needs an id")
        self._run(
            "INSERT OR REPLACE INTO prepared VALUES (?, ?, ?, ?, ?, ?)",
            (self._namespace, context, *key, cost, self._clock()),
        )

    def unmark_prepared(self, context: str, key: PointKey) -> None:
        """Note that what was prepared is gone, for example evicted from a cache."""
        self._run(
            "DELETE FROM prepared WHERE namespace = ? AND context = ? AND strategy = ? "
            "AND config = ?",
            (self._namespace, context, *key),
        )

    def forget(self, context: str) -> bool:
        """Delete everything about a context; returns whether there was anything."""
        with self._transaction() as connection:
            values = (self._namespace, context)
            where = "WHERE namespace = ? AND context = ?"
            deleted = connection.execute(f"DELETE FROM prepared {where}", values).rowcount
            deleted += connection.execute(f"DELETE FROM contexts {where}", values).rowcount
        return deleted > 0

    # Reading.

    def count(self, context: str) -> int:
        """How often a context was asked; 0 if never."""
        rows = self._run(
            "SELECT queries FROM contexts WHERE namespace = ? AND context = ?",
            (self._namespace, context),
        )
        return int(rows[0][0]) if rows else 0

    def prepared(self, context: str) -> frozenset[PointKey]:
        """Keys of the points for which a context is prepared."""
        rows = self._run(
            "SELECT strategy, config FROM prepared WHERE namespace = ? AND context = ?",
            (self._namespace, context),
        )
        return frozenset((str(strategy), str(config)) for strategy, config in rows)

    def get(self, context: str) -> ContextRecord | None:
        """Everything known of a context."""
        rows = self._run(
            "SELECT queries, first_seen, last_seen FROM contexts "
            "WHERE namespace = ? AND context = ?",
            (self._namespace, context),
        )
        if not rows:
            return None
        paid = self._run(
            "SELECT strategy, config, cost FROM prepared WHERE namespace = ? AND context = ?",
            (self._namespace, context),
        )
        queries, first, last = rows[0]
        done = {(str(strategy), str(config)): float(cost) for strategy, config, cost in paid}
        return ContextRecord(context, int(queries), float(first), float(last), done)

    def __len__(self) -> int:
        """Number of contexts."""
        rows = self._run("SELECT count(*) FROM contexts WHERE namespace = ?", (self._namespace,))
        return int(rows[0][0])

    # Forecasting.

    def model(self) -> ReuseModel:
        """The distribution of queries per context, fitted to all contexts of the namespace.

        Fitted again when the number of contexts has grown by a tenth; see `refit`.
        """
        with self._lock:
            known = self._model
            if known is None or len(self) > known.contexts * _REFIT:
                known = self.refit()
            return known

    def refit(self) -> ReuseModel:
        """Fit now."""
        rows = self._run(
            "SELECT queries, last_seen < ?, count(*) FROM contexts WHERE namespace = ? "
            "GROUP BY 1, 2",
            (self._clock() - self._idle, self._namespace),
        )
        ended: Counter[int] = Counter()
        alive: Counter[int] = Counter()
        for queries, idle, contexts in rows:
            (ended if idle else alive)[int(queries)] += int(contexts)
        fitted = fit_reuse(ended, alive)
        with self._lock:
            self._model = fitted
        return fitted

    def forecast(self, context: str, horizon: int = HORIZON) -> ReuseForecast:
        """Expected remaining queries of a context; one never seen counts as asked once now."""
        return self.model().forecast(max(1, self.count(context)), horizon)

    # The connection.

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> ReuseLedger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, object]:
        if self._path == ":memory:":
            raise TypeError("a ledger in memory cannot be pickled; give it a file")
        hidden = ("_lock", "_connection", "_model")
        return {name: value for name, value in self.__dict__.items() if name not in hidden}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()
        self._model = None
        self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = None
        try:
            if self._path != ":memory:":
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path,
                timeout=self._timeout,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > _SCHEMA_VERSION:
                raise StorageError(
                    f"the reuse ledger {self._path} was made by a newer version of this package; "
                    "upgrade ecs-plugins or name another file"
                )
            if version < _SCHEMA_VERSION:
                connection.executescript(
                    f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version = {_SCHEMA_VERSION};COMMIT;"
                )
        except (sqlite3.Error, OSError) as error:
            if connection is not None:
                connection.close()
            raise error if isinstance(error, StorageError) else self._failed(error) from error
        return connection

    def _run(self, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise self._failed(error) from error

    def _failed(self, error: Exception) -> StorageError:
        return StorageError(
            f"the reuse ledger {self._path} failed: {error}; check that the file is a ledger, "
            "that there is space, and that no other process holds it for long"
        )
