"""PostgreSQL: one class for connections, transactions, locks and upgrades, over psycopg's pool.

What is guaranteed: a transaction that returned is committed and whole; one that raised left
nothing. Readers see one snapshot and wait for nobody. Who writes to a scope holds its advisory
lock until the transaction is over; who writes to everything holds the lock that all others share.

All tables live in one schema, which the address names: ``postgresql://host/database?schema=name``.
Locks and settings belong to a session, so a proxy that parts them from it (PgBouncer's transaction
mode) cannot be in between.
"""

from __future__ import annotations

import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from ecs_plugins.common.sqlite import (
    Connection,
    ConstraintError,
    SqlDatabase,
    Synchronous,
    without_password,
)
from ecs_plugins.errors import (
    ConfigurationError,
    InvalidInputError,
    MissingExtraError,
    StorageError,
)

try:
    import psycopg
    from psycopg import sql as compose
    from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
    from psycopg.types.string import TextBinaryLoader, TextLoader
    from psycopg_pool import ConnectionPool
except ImportError as error:
    raise MissingExtraError("a PostgreSQL address", error.name or "psycopg", "postgres") from error

if TYPE_CHECKING:
    Raw = psycopg.Connection[tuple[Any, ...]]

SCHEMA = "ecs_plugins"
"""Where the tables are unless the address says otherwise."""

Step = Callable[[Connection], object]
"""Makes version n of the tables out of version n - 1."""

_CONNECTIONS = 16  # of a process
_CLAIMS = 4  # of these; who holds one needs another to work
_LIST = r"IN \(SELECT (?:value|CAST\(value AS (BIGINT)\)) FROM json_each\(\?(\d*)\)\)"
_VALUE = re.compile(rf"{_LIST}|\?(\d*)")

_BUSY = "another connection holds the lock; retry, or raise busy_timeout where there is one"
_FULL = "the server's disk is full; free space there and retry"
_LOST = "the connection was lost; make sure that the server runs, and retry"
_ADVICE = {
    "53100": _FULL,
    "58030": _FULL,
    "53": "the server has no room for more; retry, or raise its limits",
    "55P03": _BUSY,
    "40": _BUSY,
    "42501": "the role of the address lacks a privilege; grant it, or use another role",
    "25006": "the server, or the role of the address, only reads; nothing was written",
    "XX": "the server's data is damaged; restore a backup or an export",
    "08": _LOST,
    "57": _LOST,
}
_UNREACHABLE = (
    "check that the server runs, and the host, the database, the user and the password of the "
    "address"
)


@contextmanager
def translated(path: str, otherwise: str = _LOST) -> Iterator[None]:
    """Turn the errors of a server or of a connection into `StorageError` with what to do.

    Raises:
        ConstraintError: Something of this key is there already.
        InvalidInputError: A value cannot be stored.
    """
    try:
        yield
    except psycopg.IntegrityError as error:
        raise ConstraintError(f"{path}: {error}") from error
    except psycopg.DataError as error:
        raise InvalidInputError(f"PostgreSQL cannot store a value: {error}") from error
    except (
        psycopg.OperationalError,
        psycopg.InternalError,
        psycopg.errors.InsufficientPrivilege,
    ) as error:
        state = error.sqlstate or ""
        advice = (text for prefix, text in _ADVICE.items() if state and state.startswith(prefix))
        raise StorageError(f"{path}: {str(error).strip()}; {next(advice, otherwise)}") from error


@lru_cache(maxsize=1024)
def _statement(sql: str) -> tuple[str, frozenset[int]]:
    """A statement as PostgreSQL writes it, and which of its values are lists, as JSON."""
    lists = set()
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        kind, listed, single = match.groups()
        count += 1
        at = int(listed or single or count)
        if match[0].startswith("?"):
            return f"${at}"
        lists.add(at - 1)
        return f"= ANY(${at}::{kind or 'text'}[])"

    return _VALUE.sub(number, sql), frozenset(lists)


class ServerConnection:
    """A connection of which the rest of the package need not know whose it is."""

    def __init__(self, raw: Raw, path: str) -> None:
        self.raw = raw
        self._path = path

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        """Run a statement."""
        query, lists = _statement(sql)
        values = [
            json.loads(value) if at in lists else value for at, value in enumerate(parameters)
        ]
        cursor = self.raw.cursor(binary=True)
        with translated(self._path):
            return cursor.execute(query.encode(), values or None)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> psycopg.Cursor[Any]:
        """Run a statement for each set of values, without waiting for one after the other."""
        values = [*parameters]
        if len(values) == 1:
            return self.execute(sql, values[0])
        cursor = self.raw.cursor()
        with translated(self._path):
            cursor.executemany(_statement(sql)[0].encode(), values)
        return cursor


def parsed(address: str) -> tuple[str, str]:
    """The address without what only this package understands, and the schema."""
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    schema = options.pop("schema", SCHEMA)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema):
        raise ConfigurationError(f"the schema of an address is a plain name, got {schema!r:.80}")
    return parts._replace(query=urlencode(options)).geturl(), schema


class PostgresDatabase(SqlDatabase):
    """A schema of a PostgreSQL database. Thread-safe; a forked child connects anew.

    Args:
        address: ``postgresql://user:password@host:port/database?schema=name``.
        kind: What the tables are called in messages and in the table of versions.
        steps: Make the tables; the version is how many of them were run.
        settings: Of every session.
        synchronous: ``"normal"``: a crash of the server may lose the latest transactions.
        busy_timeout: Seconds to wait for other writers, or for a connection.
        read_only: Write nothing.

    Raises:
        StorageError: There is no such server, or it refuses; the tables are of a newer version.
    """

    def __init__(
        self,
        address: str,
        kind: str,
        steps: Sequence[Step],
        *,
        settings: Mapping[str, str] | None = None,
        synchronous: Synchronous = "full",
        busy_timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        super().__init__(without_password(address), read_only=read_only)
        self._conninfo, self.schema = parsed(address)
        self._kind = kind
        self._busy_timeout = busy_timeout
        self._settings = {
            "lock_timeout": f"{round(1000 * busy_timeout)}ms",
            "synchronous_commit": "on" if synchronous == "full" else "off",
            "default_transaction_read_only": "on" if read_only else "off",
            "jit": "off",
            **(settings or {}),
        }
        with (
            translated(self.path, _UNREACHABLE),
            psycopg.connect(self._conninfo, **_OPTIONS) as raw,
        ):
            self._configure(raw)
            self._upgrade(raw, steps)
        self._begin()
        _databases.add(self)

    def _begin(self) -> None:
        """Begin with no connection, also in a forked child."""
        self._here = threading.local()
        self._claims = threading.BoundedSemaphore(_CLAIMS)
        self._pool = ConnectionPool(
            self._conninfo,
            kwargs=_OPTIONS,
            min_size=0,
            max_size=_CONNECTIONS,
            timeout=self._busy_timeout,
            configure=self._configure,
            check=ConnectionPool.check_connection,
            open=True,
        )

    def _configure(self, raw: Raw) -> None:
        raw.adapters.register_dumper(int, Int8Dumper)
        raw.adapters.register_dumper(int, Int8BinaryDumper)
        raw.adapters.register_dumper(bool, Int8Dumper)
        raw.adapters.register_loader("json", TextLoader)
        raw.adapters.register_loader("json", TextBinaryLoader)
        # Extensions live in a schema of their own on some servers.
        raw.execute(
            "SELECT set_config('search_path', concat_ws(', ', $1::text, (SELECT"
            " quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n"
            " ON n.oid = e.extnamespace WHERE e.extname = 'vector'), 'public'), false)",
            (self.schema,),
        )
        for name, value in self._settings.items():
            raw.execute("SELECT set_config($1, $2, false)", (name, value))
        if psycopg.types.TypeInfo.fetch(raw, "vector") is not None:
            from pgvector.psycopg import register_vector

            register_vector(raw)

    # Upgrades

    def _upgrade(self, raw: Raw, steps: Sequence[Step]) -> None:
        version = self._version(raw, len(steps))
        if version == len(steps):
            return
        if self.read_only:
            raise StorageError(
                f"{self.path} holds no {self._kind} of version {len(steps)}; open it once for "
                "writing, which makes or upgrades it"
            )
        with raw.transaction():
            raw.execute(f"SELECT pg_advisory_xact_lock({self._key('everything')})")
            name = compose.Identifier(self.schema)
            if raw.execute("SELECT to_regnamespace($1)", (self.schema,)).fetchone() == (None,):
                raw.execute(compose.SQL("CREATE SCHEMA {}").format(name))
            raw.execute(
                "CREATE TABLE IF NOT EXISTS versions (kind TEXT PRIMARY KEY, version BIGINT)"
            )
            for number, step in enumerate(steps[self._version(raw, len(steps)) :], 1 + version):
                step(ServerConnection(raw, self.path))
                raw.execute(
                    "INSERT INTO versions VALUES ($1, $2)"
                    " ON CONFLICT (kind) DO UPDATE SET version = excluded.version",
                    (self._kind, number),
                )

    def _version(self, raw: Raw, known: int) -> int:
        table = f"{self.schema}.versions"
        if raw.execute("SELECT to_regclass($1)", (table,)).fetchone() == (None,):
            return 0
        found = raw.execute("SELECT version FROM versions WHERE kind = $1", (self._kind,))
        version: int = sum(number for (number,) in found)
        if version > known:
            raise StorageError(
                f"{self.path} was written by a newer version of this package (version {version} of "
                f"the tables, this one knows {known}); upgrade ecs-plugins"
            )
        return version

    # Transactions

    @contextmanager
    def _connection(self) -> Iterator[Raw]:
        with translated(self.path):
            raw = self._pool.getconn()
        try:
            yield raw
        finally:
            self._pool.putconn(raw)

    @contextmanager
    def _reading(self) -> Iterator[ServerConnection]:
        with translated(self.path), self._connection() as raw:
            raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield ServerConnection(raw, self.path)
            finally:
                with suppress(psycopg.OperationalError):  # nothing is left to be undone
                    raw.execute("ROLLBACK")

    @contextmanager
    def _writing(self, wait: bool, scope: str | None) -> Iterator[ServerConnection]:
        with translated(self.path), self._connection() as raw:
            raw.execute("BEGIN")
            try:
                self._here.scopes = {scope}
                self._lock(raw, scope, wait=wait)
                yield ServerConnection(raw, self.path)
            except BaseException:
                with suppress(psycopg.OperationalError):
                    raw.execute("ROLLBACK")
                raise
            if raw.execute("COMMIT").statusmessage != "COMMIT":
                raise StorageError(f"{self.path}: a statement failed; nothing was written")

    def _lock(self, raw: Raw, scope: str | None, *, wait: bool = True) -> None:
        take = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
        everything = self._key("everything")
        locks = f"{take}({everything})"
        if scope is not None:
            locks = f"{take}_shared({everything}), {take}({self._key('write', scope)})"
        if False in (raw.execute(f"SELECT {locks}").fetchone() or ()):
            raise StorageError(f"{self.path}: {_BUSY}")

    def _widen(self, scope: str | None) -> None:
        if not {None, scope} & self._here.scopes:
            self._lock(self._here.transaction.connection.raw, scope)
            self._here.scopes.add(scope)

    def _key(self, *name: str) -> int:
        digest = blake2b("\0".join((self.schema, *name)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, signed=True)

    @contextmanager
    def claim(self, name: str) -> Iterator[None]:
        """See `SqlDatabase.claim`; the server gives up what a lost connection had claimed."""
        key = self._key("claim", name)
        with self._claims, self._connection() as raw:
            with translated(self.path):
                raw.execute(f"SELECT pg_advisory_lock({key})")
            try:
                yield
            finally:
                with suppress(psycopg.OperationalError):
                    raw.execute(f"SELECT pg_advisory_unlock({key})")

    # The whole schema

    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take deleted rows out of the server's files: with ``vacuum``, else autovacuum does later.

        Returns:
            Whether they are; False without ``vacuum``, or where somebody still reads an older
            state. Its write-ahead log, replicas and backups keep what they have.
        """
        if not vacuum:
            return False
        with translated(self.path), self._connection() as raw:
            for (name,) in raw.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = $1", (self.schema,)
            ).fetchall():
                table = compose.Identifier(self.schema, name)
                raw.execute(compose.SQL("VACUUM (FULL, ANALYZE) {}").format(table))
            readers = raw.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL"
                " AND datname = current_database() AND pid != pg_backend_pid()"
            ).fetchone()
        return readers == (0,)

    def size(self) -> int:
        """Bytes of the tables and their indexes."""
        with self.read() as connection:
            (found,) = connection.execute(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
                " JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = ? AND c.relkind = 'r'",
                (self.schema,),
            ).fetchone()
            return int(found)

    def close(self) -> None:
        """See `SqlDatabase.close`."""
        self._pool.close()


_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "cursor_factory": psycopg.RawCursor,
    "fallback_application_name": "ecs_plugins",
}
_databases: weakref.WeakSet[PostgresDatabase] = weakref.WeakSet()
_inherited: list[ConnectionPool[Raw]] = []


def _after_fork_in_child() -> None:
    for database in list(_databases):
        _inherited.append(database._pool)  # whose connections stay the parent's
        database._begin()
        for begin_anew in database.at_fork:
            begin_anew()


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_after_fork_in_child)
