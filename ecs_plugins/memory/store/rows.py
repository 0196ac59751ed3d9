"""What both tiers store in a row besides a vector: metadata, expiry, evidence."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter

import numpy as np

from ecs_plugins.memory.types import Evidence, Vector

Metadata = Mapping[str, object]

_FEW = 16

NO_VECTOR: Vector = np.empty(0, dtype=np.float32)


@lru_cache(maxsize=16384)
def evidence_of(text: str) -> Evidence:
    """The evidence behind its JSON."""
    return Evidence.from_json(json.loads(text))


def metadata_of(text: str) -> Metadata:
    """The metadata behind its JSON, a copy of its own: a caller may change what it is given."""
    data: dict[str, object] = json.loads(text)
    return data


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def dump(data: object) -> str:
    """Compact JSON."""
    return _encode(data)


_STEPS = ("created", "updated", "last_seen")
# The defaults; steps have none, and NaN equals nothing, so that they are always written.
_NOTHING_YET = Evidence(created=math.nan, updated=math.nan, last_seen=math.nan)  # type: ignore[arg-type]
_rest = attrgetter(*(name for name in Evidence.__slots__ if name not in _STEPS))
_NOTHING = _rest(_NOTHING_YET)


def dump_evidence(evidence: Evidence) -> str:
    """The JSON of ``evidence.to_json()`` without what has its default, which most of it has."""
    if _rest(evidence) == _NOTHING:
        created, updated, last_seen = evidence.created, evidence.updated, evidence.last_seen
        return f'{{"created":{created},"updated":{updated},"last_seen":{last_seen}}}'
    return _encode(
        {
            name: value
            for name in Evidence.__slots__
            if (value := getattr(evidence, name)) != getattr(_NOTHING_YET, name)
        }
    )


def among(column: str, numbers: Sequence[int]) -> tuple[str, tuple[object, ...]]:
    """A condition that a column is one of some numbers, and its parameters.

    A few are written out, which SQLite looks up faster; many travel as one JSON array.
    """
    if len(numbers) <= _FEW:
        return f"{column} IN ({','.join('?' * len(numbers))})", tuple(numbers)
    return f"{column} IN (SELECT value FROM json_each(?))", (dump(list(numbers)),)


def next_row(connection: sqlite3.Connection, table: str) -> int:
    """The row number that a table will use next; inside a write transaction it stays so."""
    used = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return 1 if used is None else int(used[0]) + 1


def take_row(connection: sqlite3.Connection, table: str) -> int:
    """Take the row number that a table would use next; no row of it will have that number."""
    number = next_row(connection, table)
    taken = connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, table))
    if not taken.rowcount:
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))
    return number


def shared(left: Metadata, right: Metadata) -> dict[str, object]:
    """What two sets of metadata agree on: the metadata of an item that merges both."""
    return {key: value for key, value in left.items() if key in right and right[key] == value}


def earliest(*times: float | None) -> float | None:
    """The first of several expiries; None is never."""
    return min((time for time in times if time is not None), default=None)
