"""``reembed``: new vectors for everything, when the embedder changes.

Embedding happens outside the transaction that writes, message by message as of a moment; what
was added since is embedded in a next round, and the last, small round inside the transaction. The
transaction replaces every vector and starts a new epoch, so that no index or snapshot of the old
vectors is ever used again, and other processes are told to open the file anew.
"""

from __future__ import annotations

import json
import sqlite3

from ecs_plugins.memory.store.derivation import Embed, derived, embedded
from ecs_plugins.memory.store.index import Progress
from ecs_plugins.memory.store.vectors import crc, pack
from ecs_plugins.memory.types import Vector


class Reembedding:
    """The new vectors of a file.

    Args:
        embed: The new embedder.
        progress: Called with texts done and texts to do.
    """

    def __init__(self, embed: Embed, progress: Progress | None) -> None:
        self._embed = embed
        self._progress = progress
        self._messages: dict[str, tuple[str, Vector]] = {}

    def prepare(self, connection: sqlite3.Connection) -> int:
        """Embed the messages that are new or changed since the last call; returns how many."""
        texts = {
            name: text
            for name, text in connection.execute("SELECT id, text FROM messages ORDER BY seq")
            if self._messages.get(name, ("",))[0] != text
        }
        for name, vector in embedded(texts, self._embed, self._progress).items():
            self._messages[name] = (texts[name], vector)
        return len(texts)

    def write(self, connection: sqlite3.Connection) -> None:
        """Replace every vector; inside the write transaction, after a last `prepare`."""
        vectors = {name: vector for name, (_, vector) in self._messages.items()}
        for (name,) in connection.execute("SELECT id FROM messages").fetchall():
            data = pack(vectors[name])
            connection.execute(
                "UPDATE messages SET vector = ?, vector_crc = ? WHERE id = ?",
                (data, crc(data), name),
            )
        self._write_items(
            connection,
            "hot_items",
            "SELECT h.row, h.text, (SELECT json_group_array(message) FROM hot_members x"
            " WHERE x.item = h.id) FROM hot_items h WHERE h.vector IS NOT NULL",
            vectors,
        )
        self._write_items(
            connection,
            "memories",
            "SELECT m.row, m.text, (SELECT json_group_array(message) FROM provenance p"
            " WHERE p.memory = m.id AND p.version <= m.version) FROM memories m",
            vectors,
        )
        self._write_queries(connection)
        connection.execute("DELETE FROM snapshots")

    def _write_queries(self, connection: sqlite3.Connection) -> None:
        # Only observed queries were recorded with their text; the others cannot be kept.
        connection.execute("DELETE FROM queries WHERE text = ''")
        rows = connection.execute("SELECT id, text FROM queries").fetchall()
        vectors = embedded({str(number): text for number, text in rows}, self._embed)
        for number, _ in rows:
            connection.execute(
                "UPDATE queries SET vector = ? WHERE id = ?", (pack(vectors[str(number)]), number)
            )

    def _write_items(
        self,
        connection: sqlite3.Connection,
        table: str,
        rows: str,
        vectors: dict[str, Vector],
    ) -> None:
        for row, text, members in connection.execute(rows).fetchall():
            data = pack(derived(text, json.loads(members), vectors, self._embed))
            connection.execute(
                f"UPDATE {table} SET vector = ?, vector_crc = ? WHERE row = ?",
                (data, crc(data), row),
            )
