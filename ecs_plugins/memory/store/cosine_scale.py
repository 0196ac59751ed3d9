"""Cosines of unrelated texts, measured on a memory's own messages.

Under all-MiniLM-L6-v2 it is known. Under another embedder, `Scale` brings its cosines to the units
of that one, so that the rule of a recall and its threshold stay what they are.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.relevance import DEFAULT, SCALES, Scale
from ecs_plugins.memory.store.values import unpack
from ecs_plugins.storage.base import Connection

LEAST: Final = 50
"""Items without which nothing can be measured."""
_MOST = 1000
_KEY = "cosines"
_NEWEST = """
    SELECT id, vector, vector_crc FROM tiers
    WHERE live = 1
    ORDER BY row DESC
    LIMIT ?
"""
_RECORD = """
    INSERT INTO meta (key, value) VALUES (?, ?)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""


def recorded_scale(connection: Connection, epoch: int, name: str) -> Scale:
    """Return the scale measured for the present vectors; else that of the embedder's name."""
    known = SCALES.get(name, DEFAULT)
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    if row is None:
        return known
    measured = json.loads(row[0])
    if measured["epoch"] != epoch:
        return known
    return Scale(float(measured["mean"]), float(measured["deviation"]))


def measured_scale(connection: Connection, dimension: int) -> Scale:
    """Return mean and deviation of the cosines among the newest items.

    Raises:
        InvalidInputError: There are fewer than `LEAST`.
    """
    rows = connection.execute(_NEWEST, (_MOST,)).fetchall()
    if len(rows) < LEAST:
        raise InvalidInputError(
            f"{len(rows)} items are too few to measure how near unrelated texts lie; "
            f"add {LEAST} or more"
        )
    vectors = np.empty((len(rows), dimension), dtype=np.float32)
    for at, (name, data, checksum) in enumerate(rows):
        vectors[at] = unpack(data, checksum, dimension, f"item {name}")
    products = vectors @ vectors.T
    cosines = products[np.triu_indices(len(vectors), k=1)]
    return Scale(float(cosines.mean()), float(cosines.std()))


def record_scale(connection: Connection, scale: Scale, epoch: int) -> None:
    """Record a scale for the vectors of an epoch."""
    measured = {"mean": scale.mean, "deviation": scale.deviation, "epoch": epoch}
    connection.execute(_RECORD, (_KEY, json.dumps(measured)))
