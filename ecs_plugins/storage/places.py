"""Where an SQLite file lies: made whole or not at all, private, and looked at before it is opened.

Nothing here opens a file that this process has open as a database: closing any descriptor of it
would drop the locks that the database holds.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ecs_plugins.errors import StorageError
from ecs_plugins.storage.base import Schema

_LEFT_OVER = 60.0
"""Seconds after which what was made aside belongs to a process that died."""

_NOTE = "-copy-"
"""Behind the name of a database: a file that says which copy of it is being written."""

_VERSIONS = slice(18, 20)
"""The bytes of an SQLite file that say whether it is one with a write-ahead log."""

_WITHOUT_LOG = b"\1\1"


class Place(NamedTuple):
    """Which file a path leads to."""

    device: int
    inode: int


def place_of(path: str) -> Place | None:
    """Which file a path leads to now; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 (asked for before every transaction)
    except OSError:
        return None
    return Place(found.st_dev, found.st_ino)


_describing = threading.Lock()
_descriptors: dict[Place, int] = {}
"""Of files that are looked through while databases of theirs are open: kept until these close."""


def descriptor_of(path: str) -> int:
    """A descriptor to read a database by that this process has open; not to be closed."""
    place = place_of(path)
    if place is None:
        raise StorageError(f"{path} was deleted while it was open; restore a backup")
    with _describing:
        if place not in _descriptors:
            _descriptors[place] = os.open(path, os.O_RDONLY)
        return _descriptors[place]


def close_descriptor(place: Place | None) -> None:
    """Close the descriptor of a file of which no database is open any more."""
    descriptor = _descriptors.pop(place, None) if place is not None else None
    if descriptor is not None:
        os.close(descriptor)


def aside(path: Path) -> Path:
    """A name beside a file for what is to become it; those of processes that died are deleted."""
    stem = f".{path.name}."
    for left in path.parent.glob(f"{stem}*.new*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_OVER:
                left.unlink()
    return path.with_name(f"{stem}{secrets.token_hex(4)}.new")


def create_private(path: Path) -> None:
    """Make an empty file that is new, and only its owner's to read."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def make_private(path: str) -> None:
    """Make the directory of a database, and what is there of it only its owner's to read.

    Raises:
        StorageError: The directory cannot be made.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error}; make its directory writable") from error
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(OSError):  # somebody else's
            if Path(name).is_file():
                Path(name).chmod(0o600)


def make_whole(path: str, schema: Schema) -> None:
    """Make a new database beside its place, and put it there when it is whole.

    Who is killed meanwhile leaves nothing at the path; who comes second takes the first one's.
    """
    new = aside(Path(path))
    try:
        create_private(new)
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            bring_up(connection, schema, 0)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
        publish(new, Path(path))
    except FileExistsError:
        return
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error}; make its directory writable") from error
    finally:
        discard(new)


def discard(path: Path) -> None:
    """Delete a file that may be gone."""
    with suppress(OSError):
        path.unlink()


@contextmanager
def noted_copy(path: str, copy: Path) -> Iterator[None]:
    """Note beside a database that a copy of it is being written, while it is.

    Who is killed meanwhile leaves the note, by which `delete_left_copies` finds the copy.
    """
    note = Path(f"{path}{_NOTE}{secrets.token_hex(4)}")
    with suppress(OSError):  # a directory that is only read; then nobody erases there either
        create_private(note)
        note.write_text(f"{os.getpid()}\n{copy.absolute()}", "utf-8")
    try:
        yield
    finally:
        discard(note)


def delete_left_copies(path: str) -> None:
    """Delete the copies of a database that processes began and, killed, did not finish."""
    database = Path(path)
    for note in database.parent.glob(f"{database.name}{_NOTE}*"):
        with suppress(OSError, ValueError):
            process, _, copy = note.read_text("utf-8").partition("\n")
            if not _is_alive(int(process)):
                discard(Path(copy))
                discard(note)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def bring_up(connection: sqlite3.Connection, schema: Schema, version: int) -> None:
    """Make the newest tables out of those of a version, and mark the file as theirs."""
    schema.bring_up(connection, version)
    connection.execute(f"PRAGMA application_id={schema.application_id}")
    connection.execute(f"PRAGMA user_version={schema.version}")


def publish(new: Path, path: Path) -> None:
    """Let a whole file appear at a path where there is none.

    Raises:
        FileExistsError: There is one.
    """
    _flush(new)
    os.link(new, path)
    _flush(path.parent)


def replace(new: Path, path: Path) -> None:
    """Put a whole file in the place of a database, and remove the log of what was there."""
    _flush(new)
    new.replace(path)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    _flush(path.parent)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a database of which nobody else has a connection, whole or damaged.

    Raises:
        StorageError: Somebody has.
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
            # It is damaged, which is why a backup is restored.
        yield


def _flush(path: Path) -> None:
    """Write a file, or the names in a directory, through to the disk."""
    with suppress(PermissionError, IsADirectoryError):  # of directories, on Windows
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check(path: str, kind: str) -> None:
    """Refuse what is no whole database, or has the log of another one beside it.

    Raises:
        StorageError: There is none, it is empty, or it was put here beside a log that is not its.
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
            f"{path} is empty, which no {kind} ever is: it was cut off. Restore a backup, or "
            "delete it to begin a new one"
        )
    log = Path(f"{path}-wal")
    if head[_VERSIONS] == _WITHOUT_LOG and log.exists() and log.stat().st_size:
        raise StorageError(
            f"{path} is a copy that was put here beside the log of the file before it, "
            f"{log.name}, and the two do not belong together. Restore the copy from where it came "
            "from with `ecs-plugins memory restore`, or move that log away first"
        )
