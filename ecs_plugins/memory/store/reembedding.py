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
from ecs_plugins.memory.store.values import pack, packed
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.storage.base import Connection, SqlDatabase

Embed: TypeAlias = Callable[[Sequence[str]], Matrix]
Progress: TypeAlias = Callable[[int, int], None]
"""``(done, total)``, in texts."""

_BATCH: Final = 256
_FEW: Final = 64  # messages that may be embedded inside the transaction


def embedded(
    texts: Mapping[str, str], embed: Embed, progress: Progress | None = None
) -> dict[str, Vector]:
    """The vector of every text, by its key, in batches."""
    keys = list(texts)
    out: dict[str, Vector] = {}
    for start in range(0, len(keys), _BATCH):
        batch = keys[start : start + _BATCH]
        out.update(zip(batch, embed([texts[key] for key in batch]), strict=True))
        if progress is not None:
            progress(min(start + _BATCH, len(keys)), len(keys))
    return out


def _derived(
    text: str, members: Sequence[str], of_message: Mapping[str, Vector], embed: Embed
) -> Vector:
    """The vector of an item: the direction of the mean of its messages, if all are there."""
    known = [of_message[member] for member in members if member in of_message]
    mean = np.mean(known, axis=0, dtype=np.float64) if known else np.zeros(1)
    length = float(np.linalg.norm(mean))
    if len(known) < len(members) or length < 1e-12:
        return np.asarray(embed([text])[0])
    return np.asarray(mean / length, dtype=np.float32)


@contextmanager
def replaced_vectors(
    database: SqlDatabase, embed: Embed, progress: Progress | None
) -> Iterator[Connection]:
    """A write transaction in which every vector has been replaced."""
    known: dict[str, tuple[str, Vector]] = {}
    while True:
        with database.read() as connection:
            if _embed_new(connection, known, embed, progress) <= _FEW:
                break
    with database.write() as connection:
        _embed_new(connection, known, embed, progress)
        _replace(connection, {name: vector for name, (_, vector) in known.items()}, embed)
        yield connection


def _embed_new(
    connection: Connection,
    known: dict[str, tuple[str, Vector]],
    embed: Embed,
    progress: Progress | None,
) -> int:
    """Embed the messages that are new or changed; returns how many."""
    texts = {
        name: text
        for name, said, asked in connection.execute(
            "SELECT id, text, asked FROM messages ORDER BY seq"
        )
        if known.get(name, ("",))[0] != (text := as_reply(said, asked))
    }
    for name, vector in embedded(texts, embed, progress).items():
        known[name] = texts[name], vector
    return len(texts)


def _replace(connection: Connection, of_message: Mapping[str, Vector], embed: Embed) -> None:
    for (name,) in connection.execute("SELECT id FROM messages").fetchall():
        connection.execute(
            "UPDATE messages SET vector = ?, vector_crc = ? WHERE id = ?",
            (*packed(of_message[name]), name),
        )
    for row, name, version, text, asked in connection.execute(
        "SELECT row, id, version, text, asked FROM tiers"
    ).fetchall():
        joined = tiers.provenance(connection, [name]).get(name, {})
        members = [message for message, since in joined.items() if since <= version]
        vector = _derived(as_reply(text, asked), members, of_message, embed)
        connection.execute(
            "UPDATE tiers SET vector = ?, vector_crc = ? WHERE row = ?", (*packed(vector), row)
        )
    # Only observed queries were recorded with their text; the others cannot be kept.
    connection.execute("DELETE FROM queries WHERE text = ''")
    texts = {
        str(number): text for number, text in connection.execute("SELECT id, text FROM queries")
    }
    for number, vector in embedded(texts, embed).items():
        connection.execute(
            "UPDATE queries SET vector = ? WHERE id = ?", (pack(vector), int(number))
        )
