"""The graphs of large namespaces, kept in one file beside the database.

It is read only if its SHA-256 is the one in the database, so whatever happens to it costs time,
not memories.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ecs_plugins.common.files import write_atomically
from ecs_plugins.common.sqlite import Database
from ecs_plugins.errors import StorageError

_KEY = "snapshot"  # in `meta`: the SHA-256 of the snapshot
_PARTS = "epoch", "rows", "graph"

Graph: TypeAlias = tuple[int, npt.NDArray[np.int64], npt.NDArray[np.uint8]]
"""Of one namespace: the epoch, the row of each vector, and the graph as FAISS serialises it."""


class Snapshot:
    """The snapshot of one memory file; there is none of a memory without a file."""

    def __init__(self, database: Database) -> None:
        self._file = Path(database.path + ".hnsw")
        self._in_memory = database.in_memory
        self.failures = 0
        if not (database.in_memory or database.read_only):
            _remove_old_snapshots(Path(database.path + ".index"))

    @property
    def size(self) -> int:
        """Its bytes."""
        return self._file.stat().st_size if self._file.exists() else 0

    def write(self, connection: sqlite3.Connection, graphs: Mapping[int, Graph]) -> None:
        """Replace it, inside a write transaction: what is erased meanwhile must not get into it."""
        arrays = {
            f"{number}.{part}": np.asarray(value)
            for number, graph in graphs.items()
            for part, value in zip(_PARTS, graph, strict=True)
        }
        archive = io.BytesIO()
        np.savez(archive, allow_pickle=False, **arrays)
        content = archive.getvalue()
        write_atomically(self._file, content)
        digest = hashlib.sha256(content).hexdigest()
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, digest))

    def read(self, connection: sqlite3.Connection) -> dict[int, Graph]:
        """The graphs by the number of their namespace; OSError or ValueError if it is damaged."""
        digest = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
        if digest is None:
            return {}
        content = self._file.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest[0]:
            raise ValueError(f"the SHA-256 of {self._file.name} is not the one that was recorded")
        with np.load(io.BytesIO(content)) as arrays:
            return {
                int(number): (
                    int(arrays[f"{number}.epoch"]),
                    arrays[f"{number}.rows"],
                    arrays[f"{number}.graph"],
                )
                for number in {name.partition(".")[0] for name in arrays.files}
            }

    def problems(self, connection: sqlite3.Connection) -> list[str]:
        """What is wrong with it; it would be built anew."""
        try:
            self.read(connection)
        except (OSError, ValueError) as error:
            return [f"the index snapshot cannot be used: {error}"]
        return []

    def forget(self, connection: sqlite3.Connection) -> bool:
        """Take it out of the database; `remove` follows the commit."""
        return bool(connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,)).rowcount)

    def remove(self) -> None:
        """Delete the file, finished or not."""
        if self._in_memory:
            return
        try:
            for file in self._file.parent.iterdir():
                if file.name.lstrip(".").startswith(self._file.name):
                    file.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"the snapshot of erased memories could not be deleted: {error}; "
                f"delete {self._file}"
            ) from error


def _remove_old_snapshots(folder: Path) -> None:
    """Delete the snapshots that version 0.1.0 kept in a folder: they hold vectors."""
    if folder.is_dir():
        for file in folder.glob("*.hnsw*"):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # of somebody else's files
            folder.rmdir()
