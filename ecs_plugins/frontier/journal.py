"""The journal of a calibration: one line per batch and configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import TracebackType

from ecs_plugins.frontier.line_journal import LineJournal
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
        self._lines: LineJournal | None = None
        if path is not None:
            self._lines = LineJournal(
                path,
                identity,
                format=FORMAT,
                version=VERSION,
                what="calibration",
                take=self._take,
            )

    def append(self, key: PointKey, rows: list[Row]) -> None:
        """Keep the rows of one batch, on disk before it returns.

        Raises:
            StorageError: They cannot be written; everything written before stays.
        """
        if self._lines is not None:
            self._lines.append({"key": key, "rows": [asdict(row) for row in rows]})
        for row in rows:
            self.rows[(key, row.question)] = row

    def close(self) -> None:
        """Close the file."""
        if self._lines is not None:
            self._lines.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, data: Mapping[str, object]) -> None:
        strategy, config = map(str, data["key"])  # type: ignore[call-overload]
        names = {field.name for field in fields(Row)}
        for item in data["rows"]:  # type: ignore[attr-defined]
            row = Row(**{name: item[name] for name in names})
            self.rows[((strategy, config), row.question)] = row
