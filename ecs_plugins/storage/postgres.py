"""PostgreSQL: one class for connections, transactions, locks and upgrades, over psycopg's pool.

What is guaranteed: a transaction that returned is committed and whole; one that raised left
nothing. Readers see one snapshot and wait for nobody. Who writes to a scope holds its advisory
lock until the transaction is over, and shares the locks of the wholes that it is a part of.

All tables live in one schema, which the address names: ``postgresql://host/database?schema=name``.
Locks and settings belong to a session, so a proxy that parts them from it (PgBouncer's transaction
mode) is refused.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from itertools import compress
from typing import TYPE_CHECKING, Any

from ecs_plugins.common.files import statements
from ecs_plugins.errors import (
    InvalidInputError,
    MissingExtraError,
    StorageError,
)
from ecs_plugins.storage.addresses import parsed, pool_size, without_password
from ecs_plugins.storage.base import (
    ConstraintError,
    Schema,
    Scope,
    SqlDatabase,
    Synchronous,
    register,
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

_TYPES = {
    r"INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    r"\bINTEGER\b": "BIGINT",
    r"\bREAL\b": "DOUBLE PRECISION",
    r"\bBLOB\b": "BYTEA",
    r"\) WITHOUT ROWID": ")",
    r"\bTEXT\b": 'TEXT COLLATE "C"',
}
_SET_SEARCH_PATH, _ROLE, _TABLES, _READERS, _BYTES = statements(__package__, "catalog.sql")
_CLAIMS = 4
"""Connections that hold a claim at the same time, at most; half of a small pool."""

_LIST = r"IN \(SELECT (?:value|CAST\(value AS (BIGINT)\)) FROM json_each\(\?(\d*)\)\)"
_SET_CHECKSUM = re.compile(r",\s*\w+_crc (?:BIGINT NOT NULL|= \$\d+)")
_CHECKSUM = re.compile(r"\b(?:\w+\.)?\w+_crc\b")
_INSERTED = re.compile(r"(\s*INSERT INTO \w+\s*)\(([^()]*)\)(\s*VALUES\s*)((?:\([^()]*\)[\s,]*)+)")
_PARENTHESIS = re.compile(r"\(([^()]*)\)")
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
    "42": "the tables are not as this package made them; restore a backup or an export",
    "25006": "the server, or the role of the address, only reads; nothing was written",
    "XX": "the server's data is damaged; restore a backup or an export",
    "08": _LOST,
    "57": _LOST,
}
_UNREACHABLE = "check that the server runs, and host, database, user and password of the address"


@contextmanager
def translated(path: str, otherwise: str = _LOST) -> Iterator[None]:
    """Turn the errors of a server or connection into `StorageError` with advice.

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
    except (psycopg.OperationalError, psycopg.InternalError, psycopg.ProgrammingError) as error:
        state = error.sqlstate or ""
        advice = (text for prefix, text in _ADVICE.items() if state and state.startswith(prefix))
        raise StorageError(f"{path}: {str(error).strip()}; {next(advice, otherwise)}") from error


@lru_cache(maxsize=1024)
def _statement(sql: str) -> tuple[str, frozenset[int]]:
    """Return a statement as PostgreSQL writes it, and which of its values are lists, as JSON."""
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

    if sql.startswith("CREATE TABLE"):
        for wanted, written in _TYPES.items():
            sql = re.sub(wanted, written, sql)
    sql = _VALUE.sub(number, sql)
    if "_crc" in sql:
        sql = _without_checksums(sql)
    return sql, frozenset(lists)


def _without_checksums(sql: str) -> str:
    """Return a statement without the columns of checksums, which a server has for its pages.

    Values that are given for them stay unused; what is read of them is -1.
    """
    inserted = _INSERTED.match(sql)
    if inserted:
        columns = [name.strip() for name in inserted[2].split(",")]
        stays = [not name.endswith("_crc") for name in columns]

        def keep(row: re.Match[str]) -> str:
            return f"({', '.join(compress(row[1].split(','), stays))})"

        rows = _PARENTHESIS.sub(keep, inserted[4])
        names = ", ".join(compress(columns, stays))
        sql = f"{inserted[1]}({names}){inserted[3]}{rows}{sql[inserted.end() :]}"
    sql = _SET_CHECKSUM.sub("", sql)
    return _CHECKSUM.sub("-1", sql)


def _session(raw: Raw) -> int:
    """Return the number of the server's process that answers."""
    (number,) = raw.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    return int(number)


class ServerConnection:
    """Connection that takes the SQL of `storage.base` and translates it for PostgreSQL."""

    def __init__(self, raw: Raw, path: str) -> None:
        self.raw = raw
        self._path = path

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        """Run a statement."""
        query, lists = _statement(sql)
        values = [
            json.loads(value) if at in lists else value for at, value in enumerate(parameters)
        ]
        with translated(self._path):
            return self.raw.cursor(binary=True).execute(query.encode(), values or None)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> psycopg.Cursor[Any]:
        """Run a statement for each set of values, without waiting for one after the other."""
        values = [*parameters]
        if len(values) == 1:
            return self.execute(sql, values[0])
        cursor = self.raw.cursor()
        with translated(self._path):
            cursor.executemany(_statement(sql)[0].encode(), values)
        return cursor


class PostgresDatabase(SqlDatabase):
    """A schema of a PostgreSQL database. Thread-safe; a forked child connects anew.

    Args:
        address: ``postgresql://user:password@host:port/database?schema=name``; ``pool_size`` is
            how many connections the process opens at most, all others are those of libpq, such
            as ``application_name`` and ``options=-c statement_timeout=30s``.
        tables: What it holds.
        settings: Of every session.
        synchronous: ``"normal"``: a crash of the server may lose the latest transactions.
        busy_timeout: Seconds to wait for other writers, or for a connection.
        read_only: Write nothing.

    Raises:
        StorageError: There is no such server, or it refuses; the tables are of a newer version.
    """

    has_checksums = False

    def __init__(
        self,
        address: str,
        tables: Schema,
        *,
        settings: Mapping[str, str] | None = None,
        synchronous: Synchronous = "full",
        busy_timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        super().__init__(without_password(address), read_only=read_only)
        self._conninfo, self.schema = parsed(address)
        self._pool_size = pool_size(address)
        self._tables = tables
        self._kind = tables.kind
        self._busy_timeout = busy_timeout
        self._options = _OPTIONS | {"connect_timeout": math.ceil(busy_timeout)}
        self._settings = {
            "lock_timeout": f"{round(1000 * busy_timeout)}ms",
            "synchronous_commit": "on" if synchronous == "full" else "off",
            "default_transaction_read_only": "on" if read_only else "off",
            "jit": "off",
            **(settings or {}),
        }
        with (
            translated(self.path, _UNREACHABLE),
            psycopg.connect(self._conninfo, **self._options) as raw,
        ):
            self._refuse_shared_sessions(raw)
            self._configure(raw)
            self._upgrade(raw)
            self._tenant = self._tenant_of(raw)
        self._begin()
        register(self)

    def _begin(self) -> None:
        """Begin with no connection, also in a forked child."""
        self._here = threading.local()
        self._claims = threading.BoundedSemaphore(min(_CLAIMS, self._pool_size // 2))
        self._pool = ConnectionPool(
            self._conninfo,
            kwargs=self._options,
            min_size=0,
            max_size=self._pool_size,
            timeout=self._busy_timeout,
            configure=self._configure,
            open=True,
        )

    def _configure(self, raw: Raw) -> None:
        raw.adapters.register_dumper(int, Int8Dumper)
        raw.adapters.register_dumper(int, Int8BinaryDumper)
        raw.adapters.register_dumper(bool, Int8Dumper)
        raw.adapters.register_loader("json", TextLoader)
        raw.adapters.register_loader("json", TextBinaryLoader)
        raw.execute(_SET_SEARCH_PATH, (self.schema,))
        for name, value in self._settings.items():
            raw.execute("SELECT set_config($1, $2, false)", (name, value))
        if psycopg.types.TypeInfo.fetch(raw, "vector") is not None:
            from pgvector.psycopg import register_vector

            register_vector(raw)

    def _refuse_shared_sessions(self, raw: Raw) -> None:
        """Refuse a proxy that lends a session of the server to several of its clients in turn."""
        session = _session(raw)
        if session == raw.info.backend_pid:
            return  # there is no proxy
        with psycopg.connect(self._conninfo, **self._options) as other:
            is_lent = _session(other) == session
        if is_lent:
            raise StorageError(
                f"{self.path} leads to a proxy that lends one session to several clients "
                "(PgBouncer with pool_mode=transaction or statement), which takes locks and "
                "settings away from their owner; set pool_mode=session for this database, or "
                "give the server's own address"
            )

    # Upgrades

    def _upgrade(self, raw: Raw) -> None:
        newest = self._tables.version
        if self._version(raw) == newest:
            return
        if self.read_only:
            raise StorageError(
                f"{self.path} holds no {self._kind} of version {newest}; open it once for "
                "writing, which makes or upgrades it"
            )
        with raw.transaction():
            # Others make the schema, and use the tables of this kind.
            for key in (self._key(), self._key(self._kind, "write")):
                raw.execute(f"SELECT pg_advisory_xact_lock({key})")
            self._make_schema(raw)
            connection = ServerConnection(raw, self.path)
            self._tables.migrate(connection, self._version(raw))
            raw.execute(
                "INSERT INTO versions VALUES ($1, $2)"
                " ON CONFLICT (kind) DO UPDATE SET version = excluded.version",
                (self._kind, newest),
            )

    def _make_schema(self, raw: Raw) -> None:
        known = "SELECT FROM pg_namespace WHERE nspname = $1"
        if not raw.execute(known, (self.schema,)).fetchall():
            name = compose.Identifier(self.schema)
            raw.execute(compose.SQL("CREATE SCHEMA {}").format(name))
        if not self.has_table(raw, "versions"):
            for statement in statements(__package__, "postgres.sql"):
                raw.execute(statement)

    def has_table(self, connection: Raw | ServerConnection, name: str) -> bool:
        """Return True if the schema has a table now; PostgreSQL's cache of names may be old."""
        known = "SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = $2"
        return bool(connection.execute(known, (self.schema, name)).fetchall())

    def _tenant_of(self, raw: Raw) -> Scope:
        """Return the scope beyond which this session locks nothing: its role, unless it owns."""
        name, owns = raw.execute(_ROLE, (self.schema,)).fetchone() or ("", True)
        return () if owns else (name,)

    def _version(self, raw: Raw) -> int:
        if not self.has_table(raw, "versions"):
            return 0
        query = f'SELECT version FROM "{self.schema}".versions WHERE kind = $1'
        row = raw.execute(query, (self._kind,)).fetchone()
        version = int(row[0]) if row else 0
        self._tables.check(version, self.path)
        return version

    # Transactions

    @contextmanager
    def _connection(self, begin: str = "") -> Iterator[Raw]:
        """Lend a connection after a first statement, which finds those that died while waiting."""
        with translated(self.path):
            for left in reversed(range(1 + self._pool_size)):
                raw = self._pool.getconn()
                try:
                    raw.execute(begin)
                    break
                except BaseException as error:
                    self._pool.putconn(raw)
                    if not (left and raw.broken and isinstance(error, psycopg.OperationalError)):
                        raise
        try:
            yield raw
        finally:
            self._pool.putconn(raw)

    @contextmanager
    def _reading(self) -> Iterator[ServerConnection]:
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        with translated(self.path), self._connection(begin) as raw:
            try:
                yield ServerConnection(raw, self.path)
            finally:
                with suppress(psycopg.OperationalError):  # nothing is left to be undone
                    raw.execute("ROLLBACK")

    @contextmanager
    def _writing(self, wait: bool, scope: Scope) -> Iterator[ServerConnection]:
        with translated(self.path), self._connection("BEGIN") as raw:
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

    def _lock(self, raw: Raw, scope: Scope, *, wait: bool = True) -> None:
        """Lock a scope; a tenant locks nothing that others wait for."""
        if self._tenant and scope[:1] != self._tenant:
            scope = (*self._tenant, *scope)
        take = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
        keys = [self._key(self._kind, "write", *scope[:length]) for length in range(len(scope) + 1)]
        wholes = [f"{take}_shared({key})" for key in keys[:-1]]
        locks = ", ".join([*wholes, f"{take}({keys[-1]})"])
        if False in (raw.execute(f"SELECT {locks}").fetchone() or ()):
            raise StorageError(f"{self.path}: {_BUSY}")

    def _widen(self, scope: Scope) -> None:
        wholes = {scope[:length] for length in range(len(scope) + 1)}
        if wholes.isdisjoint(self._here.scopes):
            self._lock(self._here.transaction.connection.raw, scope)
            self._here.scopes.add(scope)

    def _key(self, *name: str) -> int:
        digest = blake2b("\0".join((self.schema, *name)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, signed=True)

    @contextmanager
    def claim(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Acquire a named lock; see `SqlDatabase.claim`. A lost connection releases its locks."""
        key = self._key(self._kind, "claim", name)
        take = "pg_advisory_lock" if wait else "pg_try_advisory_lock"
        with self._claims, self._connection() as raw:
            with translated(self.path):
                claimed = raw.execute(f"SELECT {take}({key})").fetchone() != (False,)
            try:
                yield claimed
            finally:
                with suppress(psycopg.OperationalError):
                    if claimed:
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
            for name, is_own in raw.execute(_TABLES, (self.schema,)).fetchall():
                if not is_own:
                    raise StorageError(f"{self.path}: only the owner of the tables vacuums them")
                table = compose.Identifier(self.schema, name)
                raw.execute(compose.SQL("VACUUM (FULL, ANALYZE) {}").format(table))
            return raw.execute(_READERS).fetchone() == (0,)

    def size(self) -> int:
        """Return bytes of the tables and their indexes."""
        with self.read() as connection:
            return int(connection.execute(_BYTES, (self.schema,)).fetchone()[0])

    def warnings(self, connection: ServerConnection) -> Sequence[str]:
        """Return a warning if the server does not check its pages."""
        row = connection.execute("SHOW data_checksums").fetchone()
        if row == ("on",):
            return ()
        return [
            "the server has data_checksums off, so flipped bits go unnoticed; enable them with "
            "pg_checksums, or initdb --data-checksums"
        ]

    def close(self) -> None:
        """See `SqlDatabase.close`."""
        self._pool.close()

    def after_fork_in_child(self) -> None:
        """See `SqlDatabase`."""
        _inherited.append(self._pool)
        self._begin()
        for begin_anew in self.at_fork:
            begin_anew()


_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "cursor_factory": psycopg.RawCursor,
    "fallback_application_name": "ecs_plugins",
}
_inherited: list[ConnectionPool[Raw]] = []
"""Pools whose connections stay the parent's: closing one here would end it there."""
