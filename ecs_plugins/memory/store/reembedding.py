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
from typing import Final, TypeAlias

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
"""Texts that may be embedded inside the transaction."""

_VANISHING: Final = 1e-12
"""A mean of unit vectors that is shorter has no direction."""

_TEXTS = """
    SELECT text, asked FROM messages
    UNION SELECT text, '' FROM item_vectors
    UNION SELECT text, '' FROM queries WHERE text != ''
"""
_WRITE = "UPDATE {table} SET vector = ?, vector_crc = ? WHERE {key} = ?"
_WRITE_OF_MESSAGE = _WRITE.format(table="messages", key="id")
_WRITE_OF_ITEM = _WRITE.format(table="tiers", key="row")


@contextmanager
def replaced_vectors(
    database: SqlDatabase, embed: Embed, progress: Progress | None
) -> Iterator[Connection]:
    """Open a write transaction in which every vector has been replaced."""
    known: dict[str, Vector] = {}
    while True:
        with database.read() as connection:
            count = _embed_new(connection, known, embed, progress)
        if count <= _FEW:
            break
    with database.write() as connection:
        _embed_new(connection, known, embed, progress)
        _replace(connection, known, embed)
        yield connection


def _embed_new(
    connection: Connection, known: dict[str, Vector], embed: Embed, progress: Progress | None
) -> int:
    """Embed the texts that are new or changed; return their number."""
    rows = connection.execute(_TEXTS).fetchall()
    texts = [text for row in rows if (text := as_reply(*row)) not in known]
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        known.update(zip(batch, embed(batch), strict=True))
        if progress is not None:
            progress(start + len(batch), len(texts))
    return len(texts)


def _replace(connection: Connection, known: Mapping[str, Vector], embed: Embed) -> None:
    of_message: dict[str, Vector] = {}
    for name, text, asked in connection.execute("SELECT id, text, asked FROM messages").fetchall():
        of_message[name] = known[as_reply(text, asked)]
        connection.execute(_WRITE_OF_MESSAGE, (*packed_half(of_message[name]), name))
    items = connection.execute("SELECT row, id, version, text, asked FROM tiers").fetchall()
    for row, name, version, text, asked in items:
        joined = tiers.provenance(connection, [name]).get(name, {})
        members = [message for message, since in joined.items() if since <= version]
        vector = _derived(as_reply(text, asked), members, of_message, embed)
        connection.execute(_WRITE_OF_ITEM, (*packed(vector), row))
    # Only observed queries were recorded with their text; the others cannot be kept.
    connection.execute("DELETE FROM queries WHERE text = ''")
    for table, key in (("queries", "id"), ("item_vectors", "row")):
        sql = _WRITE.format(table=table, key=key)
        for number, text in connection.execute(f"SELECT {key}, text FROM {table}").fetchall():
            connection.execute(sql, (*packed(known[text]), number))


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
