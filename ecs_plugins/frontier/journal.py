"""Journal of a calibration or benchmark: each measurement is on disk before the next begins.

A table of JSON in an SQLite file. Its first row names the measurement; a journal of another
measurement is refused. A kill loses at most the record that is being written.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ecs_plugins.common.files import as_path
from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.storage.base import Schema
from ecs_plugins.storage.sqlite import MEMORY, Database

_TABLE = "CREATE TABLE journal (key INTEGER PRIMARY KEY, value TEXT NOT NULL)"
_FILE = Schema(
    "journal",
    migrations=[lambda connection: connection.execute(_TABLE)],
    application_id=0x6563736A,
)


class Journal:
    """Records of one measurement; the first record identifies it.

    Args:
        path: The file; made if it is not there. None keeps nothing on disk.
        kind: Format and version of the records.
        identity: Data, models and settings of the measurement. They must equal those of the file,
            as must the kind; None takes those of the file.

    Attributes:
        identity: Data, models and settings of the measurement.
        records: The records that were there when it was opened.

    Raises:
        ConfigurationError: The file belongs to something else; says what differs.
        StorageError: It cannot be read or written, or is no journal.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        kind: tuple[str, int],
        identity: Mapping[str, object] | None,
    ) -> None:
        head = {"format": kind[0], "version": kind[1], "identity": dict(identity or {})}
        with ExitStack() as failed:
            self._database = Database(MEMORY if path is None else as_path(path), _FILE)
            failed.callback(self.close)
            with self._database.read() as connection:
                rows = connection.execute("SELECT value FROM journal ORDER BY key").fetchall()
            stored = [json.loads(value) for (value,) in rows]
            self._next = len(stored)
            if not stored:
                self.append(head)
            known, *self.records = stored or [head]
            self.identity: dict[str, Any] = known["identity"]
            asked = self.identity if identity is None else identity
            self._check({**known, **self.identity}, {**head, **asked})
            failed.pop_all()

    def append(self, record: Mapping[str, object]) -> None:
        """Write one record; it is on disk before this returns.

        Raises:
            StorageError: It cannot be written, or another process has written one meanwhile;
                everything before stays.
        """
        path = self._database.path
        try:
            with self._database.write() as connection:
                row = (self._next, json.dumps(record))
                connection.execute("INSERT INTO journal VALUES (?, ?)", row)
        except sqlite3.IntegrityError as error:
            raise StorageError(
                f"somebody else writes {path}; wait, or name another file"
            ) from error
        except StorageError as error:
            raise StorageError(f"{error}. Everything measured so far is kept") from error
        self._next += 1

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _check(self, known: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        for name in sorted((known.keys() | asked.keys()) - {"identity"}):
            if known.get(name) != asked.get(name):
                raise ConfigurationError(
                    f"{self._database.path} was measured with another {name}: "
                    f"{known.get(name)!r}, not {asked.get(name)!r}; go on with the same "
                    "settings or name another file"
                )
