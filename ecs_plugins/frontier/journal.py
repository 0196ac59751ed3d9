"""The journal of a calibration: what is measured is on disk before the next batch begins.

Every line is JSON and is flushed as a whole. A line cut short by a kill or a full disk is removed
on reopening. The first line says what is measured; a journal of something else is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from ecs_plugins.common.files import private
from ecs_plugins.errors import ConfigurationError, StorageError


class LineJournal:
    """JSON lines on disk behind a first line that says what they belong to.

    Args:
        path: The file; made if it is not there. None keeps nothing on disk.
        identity: What is measured; must equal that of the file, as must format and version.
        what: The kind in a word, for messages.
        take: Called with every line that is there already; raises ``ValueError``, ``KeyError``
            or ``TypeError`` for one that is damaged.

    Raises:
        ConfigurationError: The file belongs to something else; says what differs.
        StorageError: It cannot be read or written, or another process writes it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        identity: Mapping[str, object],
        *,
        format: str,
        version: int,
        what: str,
        take: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._path = path
        self._identity = dict(identity)
        self._head = {"format": format, "version": version, "identity": self._identity}
        self._what = what
        self._take = take
        self._file: IO[bytes] | None = None
        with contextlib.ExitStack() as failed, self._translated():
            failed.callback(self.close)
            if path is not None:
                self._open(Path(path))
            failed.pop_all()

    def append(self, record: Mapping[str, object]) -> None:
        """Write one line; it is on disk before this returns. Without a file, nothing.

        Raises:
            StorageError: It cannot be written; everything written before stays.
        """
        if self._file is None:
            return
        line = self._line(record)
        good = self._file.tell()
        with self._translated():
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[self._file.write(rest) :]
                os.fsync(self._file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(good)
                raise

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered, so that what a failed write left behind is not written again on closing.
        mode = "r+b" if path.exists() else "x+b"
        file = self._file = open(path, mode, buffering=0, opener=private)  # noqa: SIM115
        self._lock(file)
        content = file.read()
        # What follows the last line break was cut short.
        complete = content.split(b"\n")[:-1]
        if not complete and not self._line(self._head).startswith(content):
            raise self._foreign()
        kept = 0
        for number, line in enumerate(complete, start=1):
            try:
                (self._take if kept else self._check)(json.loads(line))
            except ConfigurationError:
                raise
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                if not kept:
                    raise self._foreign() from error
                if number < len(complete):
                    raise StorageError(
                        f"{path}:{number} is damaged; move the file away to start again, "
                        "or remove that line"
                    ) from error
                break
            kept += len(line) + 1
        file.truncate(kept)
        file.seek(kept)
        if not kept:
            self.append(self._head)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                f"cannot write the journal {self._path}: {error.strerror or error}; free some "
                "space and run the same command again. Everything measured so far is kept"
            ) from error

    @staticmethod
    def _line(record: Mapping[str, object]) -> bytes:
        return json.dumps(record).encode() + b"\n"

    def _foreign(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self._path} is not a {self._what} journal of this version; name another file. "
            "Nothing was written to it"
        )

    def _check(self, head: Any) -> None:
        names = ("format", "version")
        if not isinstance(head, dict) or any(head.get(n) != self._head[n] for n in names):
            raise self._foreign()
        known, asked = head["identity"], self._identity
        for name in sorted(known.keys() | asked.keys()):
            if known.get(name) != asked.get(name):
                raise ConfigurationError(
                    f"{self._path} holds a {self._what} with another {name}: "
                    f"{known.get(name)!r}, not {asked.get(name)!r}; go on with the same "
                    "settings or name another file"
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
