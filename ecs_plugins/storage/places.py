"""Files of SQLite databases: created whole and private, checked before they are opened.

Nothing here opens a file that this process has open as a database: closing any descriptor of it
would drop the locks that the database holds.

A file that is to appear whole is written as a copy in the folder of its target. The copy has a name
that this package made, and its writer holds a shared advisory lock on the folder. Copies in a
folder that nobody holds were left by killed processes and are deleted. No path is ever read from a
file.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ecs_plugins.errors import StorageError
from ecs_plugins.storage.base import Schema

try:
    import fcntl
except ImportError:  # Windows: copies of killed processes stay there
    fcntl = None  # type: ignore[assignment]

_COPY_NAME = re.compile(r"\..+\.[0-9a-f]{16}\.ecs-copy(-wal|-shm|-journal)?")
"""Names of copies that are being written, or that a killed process left."""

_SIDE_FILES = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps next to a database."""

_RESERVE = "-reserve"
"""Suffix of the file that occupies space for erasures on a full disk."""

_RESERVED = 1 << 19

_PATIENCE = 5.0
"""Seconds to wait for the lock of a folder."""

_VERSIONS = slice(18, 20)
"""The bytes of an SQLite file that tell if it uses a write-ahead log."""

_WITHOUT_LOG = b"\1\1"


class Place(NamedTuple):
    """Identity of the file at a path."""

    device: int
    inode: int


def place_of(path: str) -> Place | None:
    """Return the identity of the file at a path; None if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 (called before every transaction)
    except OSError:
        return None
    return Place(status.st_dev, status.st_ino)


@contextmanager
def private_copy(target: Path) -> Iterator[Path]:
    """Create an empty private file in the target's folder; delete it at the end.

    The caller may move the file to its target, or link it there.
    """
    with _locked_folder(target.parent):
        copy = target.with_name(f".{target.name}.{secrets.token_hex(8)}.ecs-copy")
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            yield copy
        finally:
            for suffix in ("", *_SIDE_FILES):
                with suppress(OSError):
                    Path(f"{copy}{suffix}").unlink()


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """Hold the shared lock of a folder, after its left copies are deleted.

    Raises:
        StorageError: Another process holds the exclusive lock for too long.
    """
    delete_left_copies(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _lock(descriptor, exclusive=False):
            if time.monotonic() > deadline:
                raise StorageError(f"{folder} is locked by another process; retry")
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, exclusive: bool) -> bool:
    """Take an advisory lock; return False if another process holds one against it.

    A file system without such locks counts as taken where the lock is shared.
    """
    if fcntl is None:
        return not exclusive
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return not exclusive
    return True


def delete_left_copies(folder: Path) -> None:
    """Delete the copies that killed processes left in a folder, unless a copy is being written."""
    with suppress(OSError):
        left = [file for file in folder.glob(".*.ecs-copy*") if _COPY_NAME.fullmatch(file.name)]
        if not left:
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if _lock(descriptor, exclusive=True):
                for file in left:
                    with suppress(OSError):
                        file.unlink()
        finally:
            os.close(descriptor)


def keep_reserve(path: str) -> None:
    """Occupy disk space next to a database, which `release_reserve` frees for an erasure."""
    reserve = Path(f"{path}{_RESERVE}")
    with suppress(OSError):
        descriptor = os.open(reserve, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            if os.write(descriptor, bytes(_RESERVED)) < _RESERVED:
                reserve.unlink()
        except OSError:
            reserve.unlink()
        finally:
            os.close(descriptor)


def release_reserve(path: str) -> None:
    """Free the disk space that is reserved for erasures."""
    with suppress(OSError):
        Path(f"{path}{_RESERVE}").unlink()


def make_folder(path: str) -> None:
    """Create the folder of a database.

    Raises:
        StorageError: The folder cannot be created.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error}; make its directory writable") from error


def make_whole(path: str, schema: Schema) -> None:
    """Create a new database as a copy and publish it when it is whole.

    A killed process leaves nothing at the path. A process that comes second uses the file of the
    first.
    """
    target = Path(path)
    try:
        with private_copy(target) as new:
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.execute("BEGIN")
                migrate(connection, schema, 0)
                connection.execute("COMMIT")
                connection.execute("PRAGMA journal_mode=WAL").fetchone()
            publish(new, target)
    except FileExistsError:
        return
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error}; make its directory writable") from error


def migrate(connection: sqlite3.Connection, schema: Schema, version: int) -> None:
    """Run the migrations after a version, and mark the file with the newest one."""
    schema.migrate(connection, version)
    connection.execute(f"PRAGMA application_id={schema.application_id}")
    connection.execute(f"PRAGMA user_version={schema.version}")


def publish(new: Path, path: Path) -> None:
    """Link a whole file to a path that has no file yet.

    Raises:
        FileExistsError: The path has a file.
    """
    _flush(new)
    os.link(new, path)
    _flush(path.parent)


def replace(new: Path, path: Path) -> None:
    """Replace a database by a whole file, and delete the log of the old one."""
    _flush(new)
    new.replace(path)
    for suffix in _SIDE_FILES:
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    _flush(path.parent)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lock a database, whole or damaged, against every other connection.

    Raises:
        StorageError: Another connection is open.
    """
    if not path.exists():
        yield
        return
    with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchone()
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise StorageError(
                    f"{path} is open elsewhere; close it there, then restore"
                ) from error
            # A damaged file is the reason to restore a backup.
        yield


def _flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to the disk."""
    with suppress(PermissionError, IsADirectoryError):  # of directories, on Windows
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check(path: str, kind: str) -> None:
    """Refuse a path without a whole database, or with the log of another database.

    Raises:
        StorageError: The file is missing or empty, or the log next to it belongs to another file.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            head = file.read(_VERSIONS.stop)
    except FileNotFoundError as error:
        raise StorageError(f"there is no {kind} {path}; check the path") from error
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error}; make it readable") from error
    if not head:
        raise StorageError(
            f"{path} is empty: the {kind} was cut off. Restore a backup, or delete it to begin "
            "a new one"
        )
    log = Path(f"{path}-wal")
    if head[_VERSIONS] == _WITHOUT_LOG and log.exists() and log.stat().st_size:
        raise StorageError(
            f"{path} is a copy, and {log.name} is the log of the file that was there before. "
            "Restore the copy with `ecs-plugins memory restore`, or move that log away first"
        )
