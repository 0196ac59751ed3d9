"""The embedder that a memory file was written with, and how often it was replaced: the epoch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ecs_plugins.errors import (
    ConfigurationError,
    InvalidInputError,
    ModelNotFoundError,
    StorageError,
)
from ecs_plugins.memory.relevance import DEFAULT, SCALES, Scale
from ecs_plugins.memory.store.values import unpack
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.ranking.embedder import default_embedder
from ecs_plugins.storage.base import Connection, SqlDatabase

_EMBEDDER = "embedder"
_EPOCH = "epoch"
_IDENTITY = "name", "dimension", "normalisation"


def recorded(connection: Connection) -> tuple[dict[str, object], int] | None:
    """Return the embedder that a file was written with, and the epoch."""
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    if _EMBEDDER not in meta:
        return None
    try:
        identity = dict(json.loads(meta[_EMBEDDER]))
        return {name: identity[name] for name in _IDENTITY}, int(meta[_EPOCH])
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"the record of the embedder is damaged ({error}); restore a backup"
        ) from error


def epoch_of(connection: Connection) -> int:
    """Return the epoch of a file; 0 where nothing was ever stored."""
    known = recorded(connection)
    return known[1] if known else 0


def record(connection: Connection, identity: Mapping[str, object], epoch: int) -> None:
    """Record the embedder and the epoch."""
    connection.executemany(
        "INSERT INTO meta (key, value) VALUES (?, ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        ((_EMBEDDER, json.dumps(identity)), (_EPOCH, str(epoch))),
    )


class RecordedEmbedder:
    """Has the name and dimension of the embedder of a file; embeds if that is the default one."""

    def __init__(self, database: SqlDatabase) -> None:
        with database.read() as connection:
            known = recorded(connection)
        if known is None:
            raise StorageError(f"{database.path} holds no memory yet; add something first")
        self.name = str(known[0]["name"])
        self.dimension = int(str(known[0]["dimension"]))

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors ``[len(texts), dimension]``, if the default embedder wrote the file."""
        with contextlib.suppress(ModelNotFoundError):
            known = default_embedder()
            if known.name == self.name and known.dimension == self.dimension:
                return known.embed_documents(texts)
        raise ConfigurationError(
            f"{len(texts)} texts need the embedder {self.name!r}; open the memory with it"
        )

    def embed_query(self, text: str) -> Vector:
        """Return a unit vector ``[dimension]``; see `embed_documents`."""
        vector: Vector = self.embed_documents([text])[0]
        return vector


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
    """Return the measured scale of an epoch; without one, the known scale of the embedder."""
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
