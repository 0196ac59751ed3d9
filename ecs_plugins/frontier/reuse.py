"""How often a context is asked: the ledger that counts it, and the forecast that follows.

The ledger is one SQLite file that all workers of a machine share, or tables of a PostgreSQL
database that those of several do. Writers of a namespace wait for each other, every count is one
atomic upsert, and readers do not block. It may be carried over a ``fork``. Only ids, counts and
times are kept: no text.

The forecast is empirical Bayes over the contexts seen so far. Each context stops after any query
with a probability of its own, and these probabilities follow a beta distribution: the
beta-geometric model, fitted by maximum likelihood. A context that was asked recently may go on,
so its count is right-censored; but as long as few have ended, the forecast counts all as
ended. A context that went on n - 1 times updates the beta to
Beta(a, b + n - 1): one asked often is expected to be asked more.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ecs_plugins.common.files import statements
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.cost import PointKey
from ecs_plugins.storage.base import Connection, Schema, SqlDatabase, is_address
from ecs_plugins.storage.sqlite import MEMORY, Database

_TABLES = statements(__package__, "ledger.sql")
_POLICIES = statements(__package__, "policies.sql")


def _run(statements: Sequence[str], connection: Connection) -> None:
    for statement in statements:
        connection.execute(statement)


_FILE = Schema("reuse ledger", version=2, make=partial(_run, _TABLES))
_ON_SERVER = Schema("reuse ledger", version=2, make=partial(_run, (*_TABLES, *_POLICIES)))
_COUNT, _PREPARE, _OBSERVE, *_EXPIRE = statements(__package__, "counts.sql")
_TALLY = "SELECT queries, last_seen < ?, count(*) FROM contexts WHERE namespace = ? GROUP BY 1, 2"
_log = logging.getLogger(__name__)
# What share of new contexts, and how much time, may pass before the model is fitted again.
_REFIT_SHARE = 0.1
_REFIT_SECONDS = 3600.0
# How long a writer waits for another one, and a query at most for the ledger.
_BUSY_SECONDS = 2.0

HORIZON = 1000
_PRIOR = (2.0, 2.0)
_PRIOR_SPREAD = 2.0


@dataclass(frozen=True, slots=True)
class ReuseModel:
    """The beta-geometric distribution of queries per context: Beta(a, b) to stop after each.

    Of the contexts it was fitted to, the share ``ended`` had ended; ``cautious`` is the fit where
    all count as ended; ``counts`` are their (queries, contexts) so far.
    """

    a: float = _PRIOR[0]
    b: float = _PRIOR[1]
    contexts: int = 0
    ended: float = 1.0
    cautious: ReuseModel | None = None
    counts: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)

    def expected(self, seen: int) -> float:
        """Expected further queries, carefully: `remaining` only as far as contexts have ended.

        That a context may go on is no evidence that it does. Where none has ended yet, all count
        as ended.
        """
        if self.cautious is None:
            return self.remaining(seen)
        low = self.cautious.remaining(seen)
        return self.ended * self.remaining(seen) + (1 - self.ended) * low

    def remaining(self, seen: int, horizon: int = HORIZON) -> float:
        """Expected further queries of a context that was asked ``seen`` >= 1 times.

        The expectation without a horizon, ``(b + seen - 1) / (a - 1)``, is infinite for a <= 1;
        with one it is ``sum over k <= horizon of P(at least k more)``, a telescoping sum.
        """
        a, b = self.a, self.b + seen - 1
        if abs(a - 1) < 1e-6:
            a += 2e-6
        # P(at least k more) = B(a, b + k) / B(a, b); its sum over all k >= 0 from b on is
        # (a + b - 1) / (a - 1), and what lies beyond the horizon is the same sum from b + h + 1.
        beyond = math.exp(_log_beta(a, b + horizon + 1) - _log_beta(a, b))
        total = (a + b - 1) / (a - 1) - beyond * (a + b + horizon) / (a - 1) - 1.0
        return min(float(horizon), max(0.0, total))


def fit_reuse(ended: Mapping[int, int], alive: Mapping[int, int]) -> ReuseModel:
    """Fit the distribution by penalised maximum likelihood, close to a weak prior at first.

    Both map queries to how many contexts got that many: and no more, or so far.
    """
    # Only here: who decides without a forecast loads no SciPy.
    from scipy.optimize import minimize

    def loss(at: Sequence[float]) -> float:
        a, b = map(math.exp, at)
        gone = sum(m * _log_beta(a + 1, b + n - 1) for n, m in ended.items())
        going_on = sum(m * _log_beta(a, b + n - 1) for n, m in alive.items())
        away = sum((here - prior) ** 2 for here, prior in zip(at, start, strict=True))
        return contexts * _log_beta(a, b) - gone - going_on + away / (2 * _PRIOR_SPREAD**2)

    contexts = sum(ended.values()) + sum(alive.values())
    start = [math.log(value) for value in _PRIOR]
    a, b = minimize(loss, start, method="Nelder-Mead").x
    return ReuseModel(math.exp(a), math.exp(b), contexts)


def _careful_fit(ended: Mapping[int, int], alive: Mapping[int, int]) -> ReuseModel:
    counts = Counter(ended) + Counter(alive)
    share = sum(ended.values()) / max(1, counts.total())
    cautious = fit_reuse(counts, {})
    return replace(
        fit_reuse(ended, alive),
        ended=share,
        cautious=cautious,
        counts=tuple(sorted(counts.items())),
    )


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@runtime_checkable
class Ledger(Protocol):
    """What a router asks of a ledger: what `ReuseLedger` says of each of these, in any store."""

    @property
    def unfitted(self) -> int:
        """Contexts first seen since the model was fitted."""

    def record(self, context: str, queries: int = 1) -> int:
        """Count, and return the total."""

    def count(self, context: str) -> int:
        """The total."""

    def prepared(
        self, context: str, lives: Mapping[PointKey, float] | None = None
    ) -> dict[PointKey, float]:
        """What is prepared, and its cost."""

    def mark_prepared(self, context: str, key: PointKey, cost: float = 0.0) -> None:
        """Note what is prepared."""

    def observe(self, key: PointKey, kind: str, value: float) -> None:
        """Add to what was observed."""

    def observed(self, kind: str) -> dict[PointKey, tuple[int, float, float]]:
        """Values, mean and its error, of each point."""

    def latest_model(self) -> ReuseModel:
        """The forecast."""


class ReuseLedger:
    """Counts queries per context for many threads, processes and, on PostgreSQL, machines.

    Args:
        path: The file, made if missing; ``":memory:"`` keeps nothing. Or the address of a
            PostgreSQL database: ``postgresql://user:password@host/database?schema=name``.
        namespace: Tenant, as a tuple of names; another namespace is never read or written.
        idle_seconds: After this long without a query a context counts as ended.
        expire_seconds: After this long without a query a context is forgotten, with what was
            prepared for it; looked at once an hour.
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
        if idle_seconds <= 0:
            raise ConfigurationError(f"idle_seconds must be positive, got {idle_seconds}")
        if expire_seconds < idle_seconds:
            raise ConfigurationError(
                f"expire_seconds ({expire_seconds}) must not be below idle_seconds ({idle_seconds})"
            )
        if isinstance(namespace, str):
            raise ConfigurationError(f"a namespace is a tuple of names, got {namespace!r}")
        # Absolute: a later connection is to the same file, wherever the process has gone.
        stays = str(path) == MEMORY or is_address(path)
        self._path = str(path if stays else Path(path).absolute())
        settings: dict[str, Any] = {"idle_seconds": idle_seconds, "expire_seconds": expire_seconds}
        self._again = partial(ReuseLedger, self._path, namespace=namespace, clock=clock, **settings)
        # As JSON, so that ("a", "b") and ("a/b",) can never be one namespace.
        self._namespace = json.dumps(list(namespace))
        self._idle = idle_seconds
        self._expire = expire_seconds
        self._clock = clock
        self._model = ReuseModel()
        self._fitting: threading.Thread | None = None
        self._new = 0  # contexts first counted here since the fit
        self._fitted = self._tidied = -math.inf
        self._database = _database(self._path)

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
        if now - self._tidied > _REFIT_SECONDS:
            self._forget_expired(now)
        row = self._run(_COUNT, (self._namespace, context, queries, now, now))
        total = int(row[0][0])
        self._new += total == queries
        return total

    def mark_prepared(self, context: str, key: PointKey, cost: float = 0.0) -> None:
        """Note that stage 1 of a point was paid for this context, so it is sunk from now on."""
        if not context:
            raise InvalidInputError("a context needs an id")
        self._run(_PREPARE, (self._namespace, context, *key, cost, self._clock()))

    def observe(self, key: PointKey, kind: str, value: float) -> None:
        """Add a value to what was observed of a point: a ``"score"``, or a ``"cost"`` ratio."""
        self._run(_OBSERVE, (self._namespace, *key, kind, value, value * value))

    def forget(self, context: str) -> bool:
        """Delete everything about a context; returns whether there was anything."""
        tables = ("prepared", "contexts")
        gone = [self._of_context(f"DELETE FROM {t}", context, "RETURNING 1") for t in tables]
        return any(gone)

    # Reading.

    def count(self, context: str) -> int:
        """How often a context was asked; 0 if never."""
        found = self._of_context("SELECT queries FROM contexts", context)
        return int(found[0][0]) if found else 0

    def prepared(
        self, context: str, lives: Mapping[PointKey, float] | None = None
    ) -> dict[PointKey, float]:
        """Keys of the points for which a context is prepared, and what their stage 1 cost.

        ``lives`` says of some for how many seconds they are once they were last noted.
        """
        rows = self._of_context("SELECT strategy, config, cost, at FROM prepared", context)
        since = {key: self._clock() - life for key, life in (lives or {}).items()}
        return {
            (name, config): cost
            for name, config, cost, at in rows
            if at >= since.get((name, config), -math.inf)
        }

    def observed(self, kind: str) -> dict[PointKey, tuple[int, float, float]]:
        """How many values of a kind were observed of each point, their mean and its error."""
        rows = self._run(
            "SELECT strategy, config, n, total / n, squares / n FROM observed "
            "WHERE namespace = ? AND kind = ?",
            (self._namespace, kind),
        )
        return {
            (strategy, config): (n, mean, math.sqrt(max(0.0, squares - mean * mean) / n))
            for strategy, config, n, mean, squares in rows
        }

    def __len__(self) -> int:
        """Number of contexts."""
        rows = self._run("SELECT count(*) FROM contexts WHERE namespace = ?", (self._namespace,))
        return int(rows[0][0])

    # Forecasting.

    def model(self) -> ReuseModel:
        """The distribution of queries per context, fitted to all contexts of the namespace.

        Fitted again when this process has seen a tenth more contexts, and once an hour.
        """
        if self._due():
            self._refit()
        return self._model

    def latest_model(self) -> ReuseModel:
        """The last `model`; where one is due, it is fitted in a thread, and no query waits."""
        if self._due() and not (self._fitting and self._fitting.is_alive()):
            if self._path == MEMORY:
                return self.model()
            self._fitting = threading.Thread(target=self._refit_quietly, daemon=True)
            self._fitting.start()
        return self._model

    def _due(self) -> bool:
        late = self._clock() - self._fitted > _REFIT_SECONDS
        return late or self._new > self._model.contexts * _REFIT_SHARE

    def _refit_quietly(self) -> None:
        try:
            self._refit()
        except StorageError as error:
            _log.warning("the forecast of reuse could not be fitted: %s", error)

    def _refit(self) -> None:
        new, now = self._new, self._clock()
        try:
            rows = self._run(_TALLY, (now - self._idle, self._namespace))
            ended = {queries: contexts for queries, idle, contexts in rows if idle}
            alive = {queries: contexts for queries, idle, contexts in rows if not idle}
            self._model = _careful_fit(ended, alive)
            self._new -= new
        finally:
            self._fitted = now

    @property
    def unfitted(self) -> int:
        """How many contexts this process has first seen since the model was fitted."""
        return self._new

    # The file.

    def close(self) -> None:
        """Close the file; a fit of the forecast that goes on ends first."""
        if self._fitting:
            self._fitting.join()
        self._database.close()

    def __enter__(self) -> ReuseLedger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[], ReuseLedger], tuple[()]]:
        if self._path == MEMORY:
            raise TypeError("a ledger in memory cannot be pickled; give it a file")
        return self._again, ()

    def _forget_expired(self, now: float) -> None:
        self._tidied = now
        for delete in _EXPIRE:
            self._run(delete, (self._namespace, now - self._expire))

    def _of_context(self, verb: str, context: str, end: str = "") -> list[Any]:
        where = f"{verb} WHERE namespace = ? AND context = ? {end}"
        return self._run(where, (self._namespace, context))

    def _run(self, statement: str, values: tuple[object, ...]) -> list[Any]:
        reads = statement.startswith("SELECT")
        database = self._database
        with database.read() if reads else database.write(scope=self._namespace) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []


def _database(path: str) -> SqlDatabase:
    # What was counted survives a crash of the process; a power cut may lose the last counts.
    settings: dict[str, Any] = {"synchronous": "normal", "busy_timeout": _BUSY_SECONDS}
    if not is_address(path):
        return Database(path, _FILE, **settings)
    from ecs_plugins.storage.postgres import PostgresDatabase

    return PostgresDatabase(path, _ON_SERVER, **settings)
