"""Cost of a durable ``add`` compared with a bare SQLite insert, without embedding.

The insert is the shortest loop over one table with the settings of a memory file. Both run by
turns, because what a commit costs depends on what else the disk has to do; in turns of several
calls, because a flush right after another one has little left to write.
"""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ecs_plugins.memory import EntropicMemory
from ecs_plugins.memory.types import Matrix

SINGLE_ADDS = 200
BATCH = 1000
"""Messages per call."""

T = TypeVar("T")
Figures = dict[str, float]


def measure_adding(
    memory: EntropicMemory, texts: Sequence[str], folder: Path, *, label: str = ""
) -> Figures:
    """Add texts to a new memory, most of them in batches, beside bare inserts of the same rows.

    Args:
        memory: A new memory in a file.
        texts: What is added. The number of each one's place is even or odd in its metadata.
        folder: Where the bare table is made.
        label: Precedes the names of the figures' kinds, ``batch`` and ``single``.

    Returns:
        For each kind: adds and bare inserts per second, and the median ratio over the turns.
    """
    single = min(SINGLE_ADDS, len(texts) // 2)
    numbered = list(enumerate(texts[: len(texts) - single]))
    batches = [
        [{"content": text, "metadata": {"half": number % 2}} for number, text in each]
        for each in _chunks(numbered, BATCH)
    ]
    singles = [[text] for text in texts[len(texts) - single :]]
    bare = _BareTable(folder / f"{label}bare.db", Path(memory.path))
    embedding = _clock_embedding(memory)
    figures = _throughput(f"{label}batch", batches, memory.add, bare, embedding)
    figures |= _throughput(f"{label}single", singles, memory.add, bare, embedding)
    bare.close()
    return figures


class _BareTable:
    """The messages of a memory file in one plain table, inserted by the shortest loop."""

    _COLUMNS = "seq, id, namespace, step, role, text, metadata, created, vector"

    def __init__(self, path: Path, source: Path) -> None:
        self._source = sqlite3.connect(source)
        self._bare = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            self._bare.execute(f"PRAGMA {pragma}").fetchone()
        self._bare.execute(
            "CREATE TABLE rows (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, namespace,"
            " step, role, text, metadata, created, vector BLOB)"
        )
        self._last = 0

    def new_rows(self) -> list[tuple[object, ...]]:
        """The rows that the file has gained since the last call."""
        rows = self._source.execute(
            f"SELECT {self._COLUMNS} FROM messages WHERE seq > ? ORDER BY seq", (self._last,)
        ).fetchall()
        self._last = rows[-1][0]
        return rows

    def insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert rows in one transaction."""
        self._bare.execute("BEGIN IMMEDIATE")
        self._bare.executemany(
            f"INSERT INTO rows ({self._COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)", rows
        )
        self._bare.execute("COMMIT")

    def close(self) -> None:
        self._source.close()
        self._bare.close()


def _clock_embedding(memory: EntropicMemory) -> Callable[[], float]:
    """Count the seconds in which a memory embeds and checks vectors; returns those so far."""
    spent = 0.0
    embed = memory._store.embed

    def timed(texts: Sequence[str]) -> Matrix:
        nonlocal spent
        started = time.perf_counter()
        vectors = embed(texts)
        spent += time.perf_counter() - started
        return vectors

    memory._store.embed = timed  # type: ignore[method-assign]
    return lambda: spent


def _chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _throughput(
    kind: str,
    calls: Sequence[Sequence[Any]],
    add: Callable[[Sequence[Any]], object],
    bare: _BareTable,
    embedding: Callable[[], float],
) -> Figures:
    """Rows per second of both without embedding, and the median ratio over the turns."""
    spent = {"adds": 0.0, "bare_inserts": 0.0}
    ratios = []
    for turn in _chunks(calls, max(len(calls) // 8, 1)):
        embedded, started = embedding(), time.perf_counter()
        for messages in turn:
            add(messages)
        ours = time.perf_counter() - started - (embedding() - embedded)
        rows = iter(bare.new_rows())
        stretches = [list(itertools.islice(rows, len(messages))) for messages in turn]
        started = time.perf_counter()
        for stretch in stretches:
            bare.insert(stretch)
        theirs = time.perf_counter() - started
        spent["adds"] += ours
        spent["bare_inserts"] += theirs
        ratios.append(theirs / ours)
    count = sum(map(len, calls))
    figures = {f"{name}_per_s_{kind}": count / seconds for name, seconds in spent.items()}
    return figures | {f"add_over_bare_{kind}": float(np.median(ratios))}
