"""The journal of a calibration: what is measured is on disk before the next batch begins.

One JSON line per batch and configuration, flushed to disk as a whole, so a killed run loses at
most the batch at hand. A line cut short by a kill or a full disk is removed on reopening. The
first line says what is measured; a journal of something else is refused, not mixed in.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import IO

from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.frontier.points import PointKey

FORMAT = "ecs_plugins.calibration"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration on one question.

    Attributes:
        question: Id of the question.
        prediction: What was answered.
        f1: Against the best of its answers.
        em: Likewise.
        tokens: ``{stage: {role: tokens}}``.
        shared_input: Prompt tokens that every question about the context shares.
        prepare_seconds: Of stage 1.
        query_seconds: Of stage 2.
    """

    question: str
    prediction: str
    f1: float
    em: float
    tokens: Mapping[str, Mapping[str, int]]
    shared_input: float
    prepare_seconds: float
    query_seconds: float


class Journal:
    """Rows on disk, by configuration and question.

    Args:
        path: The file; made if it is not there. None keeps rows in memory only.
        identity: What is measured; must equal that of the file.

    Attributes:
        rows: (configuration, question id) -> row.

    Raises:
        ConfigurationError: The file belongs to another calibration; says what differs.
        StorageError: It cannot be read or written, or another process writes it.
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: Mapping[str, object]) -> None:
        self.rows: dict[tuple[PointKey, str], Row] = {}
        self._path = None if path is None else Path(path)
        self._file: IO[bytes] | None = None
        if self._path is not None:
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

    def append(self, key: PointKey, rows: list[Row]) -> None:
        """Keep the rows of one batch, on disk before it returns.

        Raises:
            StorageError: They cannot be written; everything written before stays.
        """
        if self._file is not None:
            line = json.dumps({"key": key, "rows": [asdict(row) for row in rows]})
            good = self._file.tell()
            try:
                self._write(line)
            except OSError as error:
                with contextlib.suppress(OSError):
                    self._file.truncate(good)
                raise self._failed(error) from error
        for row in rows:
            self.rows[(key, row.question)] = row

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self, path: Path, identity: dict[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered, so that what a failed write left behind is not written again on closing.
        self._file = path.open("r+b" if path.exists() else "x+b", buffering=0)
        _lock(self._file, path)
        lines = self._file.read().split(b"\n")
        # What follows the last line break was cut short.
        complete = lines[:-1]
        kept = 0
        for number, line in enumerate(complete):
            try:
                data = json.loads(line)
                if number == 0:
                    _check(path, data, identity)
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
        self._file.truncate(kept)
        self._file.seek(kept)
        if not kept:
            self._write(json.dumps({"format": FORMAT, "version": VERSION, "identity": identity}))

    def _take(self, data: Mapping[str, object]) -> None:
        strategy, config = map(str, data["key"])  # type: ignore[call-overload]
        names = {field.name for field in fields(Row)}
        for item in data["rows"]:  # type: ignore[attr-defined]
            row = Row(**{name: item[name] for name in names})
            self.rows[((strategy, config), row.question)] = row

    def _write(self, line: str) -> None:
        assert self._file is not None
        rest = memoryview(line.encode() + b"\n")
        while rest:
            rest = rest[self._file.write(rest) :]
        os.fsync(self._file.fileno())

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"cannot write the journal {self._path}: {error.strerror or error}; free some space "
            "and run the same command again. Everything measured so far is kept"
        )


def _check(path: Path, data: Mapping[str, object], identity: Mapping[str, object]) -> None:
    if data.get("format") != FORMAT:
        raise ConfigurationError(f"{path} is not a calibration journal; name another file")
    if data.get("version") != VERSION:
        raise ConfigurationError(
            f"{path} was written by another version of this package; name another file"
        )
    known = data["identity"]
    assert isinstance(known, dict)
    differs = sorted(k for k in known.keys() | identity.keys() if known.get(k) != identity.get(k))
    if differs:
        name = differs[0]
        raise ConfigurationError(
            f"{path} holds a calibration with another {name}: {known.get(name)!r}, not "
            f"{identity.get(name)!r}; go on with the same settings or name another file"
        )


def _lock(file: IO[bytes], path: Path) -> None:
    """One writer per journal, where the system can say so."""
    try:
        import fcntl
    except ImportError:  # Windows: nothing stops a second writer there.
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(
            f"another calibration is writing {path}; wait for it, or name another file"
        ) from error
