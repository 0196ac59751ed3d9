"""Decisions and recorded queries without what was erased.

Decisions stay, with the ids of what was erased replaced by ``"erased"``; recorded queries and
answers that used an affected item, or that quote an erased text, go.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from ecs_plugins.memory.records import ERASED
from ecs_plugins.memory.store.erased import Erased
from ecs_plugins.memory.store.values import crc, dump, has_length, vector_in
from ecs_plugins.memory.types import Matrix
from ecs_plugins.storage.base import Connection

_QUOTE = 12
"""Characters from which on an erased text is looked for in recorded queries."""

_AMONG = "IN (SELECT value FROM json_each(?))"
_MENTIONING = f"""
    SELECT DISTINCT d.id, d.record
    FROM decision_items i JOIN decisions d ON d.id = i.decision
    WHERE i.item {_AMONG}
"""


_MARK = "UPDATE decisions SET record = ?, record_crc = ?, erased = 1 WHERE id = ?"


class Content(NamedTuple):
    """A text that was stored, and the bytes of its vector."""

    text: str
    vector: bytes


def mark_decisions(connection: Connection, gone: Collection[str], erased: Erased) -> None:
    """Replace the ids of what is gone in the decisions that mention them."""
    ids = (dump(list(gone)),)
    mentioning = connection.execute(_MENTIONING, ids).fetchall()
    changed = []
    for number, record in mentioning:
        marked = without(json.loads(record), gone)
        stored = dump(marked)
        changed.append((stored, crc(stored), number))
    connection.executemany(_MARK, changed)
    connection.execute(f"DELETE FROM decision_items WHERE item {_AMONG}", ids)
    erased.decisions += len(changed)


def without(record: dict[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """A decision's record with the ids of what is gone replaced."""
    changed = dict(record)
    for name in ("candidate_id", "target_id"):
        if record.get(name) in gone:
            changed[name] = ERASED
    changed["members"] = [ERASED if each in gone else each for each in record["members"]]
    return changed


class _Traces:
    """How a recorded query is told that used, quotes or repeats what goes."""

    def __init__(
        self, used: Collection[str], contents: Sequence[Content], dimension: int, near: float
    ) -> None:
        self._used = frozenset(used)
        self._texts = {content.text for content in contents}
        self._quotes = [text for text in self._texts if len(text) >= _QUOTE]
        self._vectors = _matrix(contents, dimension)
        self._near = near

    def are_in(self, text: str, answer: str | None, recalled: str, vector: bytes) -> bool:
        """Whether a query has one of them."""
        if not self._used.isdisjoint(json.loads(recalled)):
            return True
        if text in self._texts or answer in self._texts:
            return True
        words = f"{text}\n{answer or ''}"
        if any(quote in words for quote in self._quotes):
            return True
        if not len(self._vectors):
            return False
        cosines = self._vectors @ np.frombuffer(vector, "<f4")
        return bool(cosines.max() >= self._near)


def erase_queries(
    connection: Connection,
    used: Collection[str],
    contents: Sequence[Content],
    erased: Erased,
    *,
    dimension: int,
    near: float,
) -> None:
    """Erase the recorded queries, of every namespace, that used, quote or repeat what goes.

    Args:
        connection: In the transaction that erases.
        used: Ids of what is gone or changed.
        contents: What was erased.
        erased: Takes note.
        dimension: Of the vectors.
        near: The cosine from which on a question repeats a text.
    """
    traces = _Traces(used, contents, dimension, near)
    gone = []
    queries = connection.execute("SELECT id, text, answer, recalled, vector FROM queries")
    for number, text, answer, recalled, vector in queries:
        if not traces.are_in(text, answer, recalled, vector):
            continue
        gone.append(number)
        erased.contents.append(text.encode())
        erased.contents.append((answer or "").encode())
        erased.contents.append(vector)
    connection.executemany("DELETE FROM queries WHERE id = ?", [(number,) for number in gone])
    erased.note_rows("queries", gone)
    erased.queries += len(gone)


def _matrix(contents: Sequence[Content], dimension: int) -> Matrix:
    """The vectors that are whole; damaged ones can be erased too."""
    whole = [each.vector for each in contents if has_length(each.vector, dimension)]
    vectors = [vector_in(data, dimension) for data in whole]
    return np.array(vectors, dtype=np.float32).reshape(-1, dimension)
