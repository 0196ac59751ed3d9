"""A journal of JSON lines: what is measured is on disk before the next batch begins.

Every line is flushed to disk as a whole, so a killed run loses at most the batch at hand. A line
cut short by a kill or a full disk is removed on reopening. The first line says what is measured;
a journal of something else is refused, not mixed in.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from ecs_plugins.errors import ConfigurationError, StorageError


class LineJournal:
    """JSON lines on disk behind a first line that says what they belong to.

    Args:
        path: The file; made if it is not there.
        identity: What is measured; must equal that of the file.
        format: The name of the kind of journal, in its first line.
        version: Of the format.
        what: The same in a word for messages, such as ``"calibration"``.
        take: Called with every line that is there already; raises ``ValueError``, ``KeyError``
            or ``TypeError`` for one that is damaged.

    Raises:
        ConfigurationError: The file belongs to something else; says what differs.
        StorageError: It cannot be read or written, or another process writes it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        identity: Mapping[str, object],
        *,
        format: str,
        version: int,
        what: str,
        take: Callable[[Mapping[str, object]], None],
    ) -> None:
        self._path = Path(path)
        self._format = format
        self._version = version
        self._what = what
        self._take = take
        self._file: IO[bytes] | None = None
        try:
            self._open(self._path, dict(identity))
        except OSError as error:
            self.close()
            if isinstance(error, StorageError):
                raise
            raise self._failed(error) from error
        except BaseException:
            self.close()
            raise

    def append(self, record: Mapping[str, object]) -> None:
        """Write one line; it is on disk before this returns.

        Raises:
            StorageError: It cannot be written; everything written before stays.
        """
        if self._file is None:
            raise StorageError(f"the journal {self._path} is closed; open it again")
        line = json.dumps(record)
        good = self._file.tell()
        try:
            self._write(self._file, line)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(good)
            raise self._failed(error) from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path, identity: dict[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered, so that what a failed write left behind is not written again on closing.
        file = self._file = path.open("r+b" if path.exists() else "x+b", buffering=0)
        self._lock(file)
        lines = file.read().split(b"\n")
        # What follows the last line break was cut short.
        complete = lines[:-1]
        kept = 0
        for number, line in enumerate(complete):
            try:
                data = json.loads(line)
                if number == 0:
                    self._check(data, identity)
                else:
                    self._take(data)
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, ConfigurationError):
                    raise
                if number + 1 < len(complete):
                    raise StorageError(
                        f"{path}:{number + 1} is damaged; move the file away to start again, "
                        "or remove that line"
                    ) from error
                break
            kept += len(line) + 1
        file.truncate(kept)
        file.seek(kept)
        if not kept:
            first = {"format": self._format, "version": self._version, "identity": identity}
            self._write(file, json.dumps(first))

    def _write(self, file: IO[bytes], line: str) -> None:
        rest = memoryview(line.encode() + b"\n")
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"cannot write the journal {self._path}: {error.strerror or error}; free some space "
            "and run the same command again. Everything measured so far is kept"
        )

    def _check(self, data: Mapping[str, object], identity: Mapping[str, object]) -> None:
        if data.get("format") != self._format:
            raise ConfigurationError(
                f"{self._path} is not a {self._what} journal; name another file"
            )
        if data.get("version") != self._version:
            raise ConfigurationError(
                f"{self._path} was written by another version of this package; name another file"
            )
        known = data["identity"]
        assert isinstance(known, dict)
        names = known.keys() | identity.keys()
        differs = sorted(name for name in names if known.get(name) != identity.get(name))
        if differs:
            name = differs[0]
            raise ConfigurationError(
                f"{self._path} holds a {self._what} with another {name}: {known.get(name)!r}, not "
                f"{identity.get(name)!r}; go on with the same settings or name another file"
            )

    def _lock(self, file: IO[bytes]) -> None:
        """One writer per journal, where the system can say so."""
        try:
            import fcntl
        except ImportError:  # Windows: nothing stops a second writer there.
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(
                f"another {self._what} is writing {self._path}; wait for it, or name another file"
            ) from error
