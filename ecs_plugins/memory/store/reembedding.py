"""New vectors for old texts, when the embedder changes.

Embedding happens outside the transaction that writes, message by message as of a moment; what
was added since is embedded in a next round, and the last, small round inside the transaction.

A message is embedded. A hot item or memory that merges several messages lies in the direction of
their mean, so it is the mean again if they are all in the log and it does not vanish; else its own
text is embedded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ecs_plugins.common.text import as_reply
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.values import packed, packed_half
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.storage.base import Connection, SqlDatabase

Embed: TypeAlias = Callable[[Sequence[str]], Matrix]
Progress: TypeAlias = Callable[[int, int], None]
"""``(done, total)``, in texts."""

_BATCH: Final = 256
_FEW: Final = 64
"""Messages that may be embedded inside the transaction."""

_VANISHING: Final = 1e-12
"""A mean of unit vectors that is shorter has no direction."""

_SAID = "SELECT id, text, asked FROM messages ORDER BY seq"
_REPLACE_OF_MESSAGE = "UPDATE messages SET vector = ?, vector_crc = ? WHERE id = ?"
_REPLACE_OF_ITEM = "UPDATE tiers SET vector = ?, vector_crc = ? WHERE row = ?"


def embedded(
    texts: Mapping[str, str], embed: Embed, progress: Progress | None = None
) -> dict[str, Vector]:
    """Return the vector of every text, by its key, in batches."""
    keys = list(texts)
    total = len(keys)
    vectors: dict[str, Vector] = {}
    for start in range(0, total, _BATCH):
        batch = keys[start : start + _BATCH]
        made = embed([texts[key] for key in batch])
        vectors.update(zip(batch, made, strict=True))
        if progress is not None:
            done = min(start + _BATCH, total)
            progress(done, total)
    return vectors


def _derived(
    text: str, members: Sequence[str], of_message: Mapping[str, Vector], embed: Embed
) -> Vector:
    """Return the vector of an item: the direction of the mean of its messages, if all are there."""
    known = [of_message[member] for member in members if member in of_message]
    if known and len(known) == len(members):
        mean = np.mean(known, axis=0, dtype=np.float64)
        length = float(np.linalg.norm(mean))
        if length >= _VANISHING:
            return np.asarray(mean / length, dtype=np.float32)
    (alone,) = embed([text])
    return np.asarray(alone)


@contextmanager
def replaced_vectors(
    database: SqlDatabase, embed: Embed, progress: Progress | None
) -> Iterator[Connection]:
    """Open a write transaction in which every vector has been replaced."""
    known: dict[str, _Embedded] = {}
    while True:
        with database.read() as connection:
            count = _embed_new(connection, known, embed, progress)
        if count <= _FEW:
            break
    with database.write() as connection:
        _embed_new(connection, known, embed, progress)
        of_message = {name: each.vector for name, each in known.items()}
        _replace(connection, of_message, embed)
        yield connection


class _Embedded(NamedTuple):
    """Text of a message for reading, and its new vector."""

    text: str
    vector: Vector


def _embed_new(
    connection: Connection,
    known: dict[str, _Embedded],
    embed: Embed,
    progress: Progress | None,
) -> int:
    """Embed the messages that are new or changed; returns how many."""
    texts = {}
    for name, said, asked in connection.execute(_SAID):
        text = as_reply(said, asked)
        if name not in known or known[name].text != text:
            texts[name] = text
    for name, vector in embedded(texts, embed, progress).items():
        known[name] = _Embedded(texts[name], vector)
    return len(texts)


def _replace(connection: Connection, of_message: Mapping[str, Vector], embed: Embed) -> None:
    names = connection.execute("SELECT id FROM messages").fetchall()
    for (name,) in names:
        connection.execute(_REPLACE_OF_MESSAGE, (*packed_half(of_message[name]), name))
    items = connection.execute("SELECT row, id, version, text, asked FROM tiers").fetchall()
    for row, name, version, text, asked in items:
        joined = tiers.provenance(connection, [name]).get(name, {})
        members = [message for message, since in joined.items() if since <= version]
        vector = _derived(as_reply(text, asked), members, of_message, embed)
        connection.execute(_REPLACE_OF_ITEM, (*packed(vector), row))
    # Only observed queries were recorded with their text; the others cannot be kept.
    connection.execute("DELETE FROM queries WHERE text = ''")
    queries = connection.execute("SELECT id, text FROM queries").fetchall()
    texts = {str(number): text for number, text in queries}
    for number, vector in embedded(texts, embed).items():
        values = (*packed(vector), int(number))
        connection.execute("UPDATE queries SET vector = ?, vector_crc = ? WHERE id = ?", values)
