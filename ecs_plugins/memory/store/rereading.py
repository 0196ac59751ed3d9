"""Replies to a question that was erased or changed: their text and vector are made anew.

A reply keeps a copy of its question, and its vector is that of both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ecs_plugins.common.text import as_reply, asked_at_end
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.outdated import forget_edges
from ecs_plugins.memory.store.values import crc_of, dump, packed_half
from ecs_plugins.storage.base import Connection

_AMONG = "IN (SELECT value FROM json_each(?))"
_WRITE = """
    UPDATE messages SET
        text = ?1, asked = ?2, asker = CASE WHEN ?2 = '' THEN NULL ELSE asker END,
        text_crc = ?3, vector = ?4, vector_crc = ?5
    WHERE id = ?6
"""
_ASKED_BY_NONE = f"""
    namespace = ? AND asked != '' AND asked {_AMONG} AND EXISTS (
        SELECT 1 FROM provenance p LEFT JOIN messages m ON m.id = p.message
        WHERE p.item = tiers.id AND m.id IS NULL
    )
"""


def write_text(
    store: MemoryStore, connection: Connection, name: str, text: str, asked: str
) -> None:
    """Write the text of a message and the question it replies to, with their vector."""
    _write_texts(store, connection, {name: text}, asked)


def _write_texts(
    store: MemoryStore, connection: Connection, texts: Mapping[str, str], asked: str
) -> None:
    vectors = store.embed([as_reply(text, asked) for text in texts.values()])
    for (name, text), vector in zip(texts.items(), vectors, strict=True):
        data, vector_crc = packed_half(vector)
        values = (text, asked, crc_of((asked, text)), data, vector_crc, name)
        connection.execute(_WRITE, values)
    forget_edges(connection, [*texts])


def reread(
    store: MemoryStore, connection: Connection, askers: Collection[str], now_asks: str = ""
) -> list[str]:
    """Take an erased question out of the replies to it, which are returned by id.

    What is said in its place is ``now_asks``.
    """
    among = dump(list(askers))
    replies = connection.execute(
        f"SELECT id, text FROM messages WHERE asker {_AMONG} AND NOT id {_AMONG}", (among, among)
    ).fetchall()
    if replies:
        _write_texts(store, connection, dict(replies), asked_at_end(now_asks))
    return sorted(name for name, _ in replies)


def take_out(
    store: MemoryStore, connection: Connection, space: Space, questions: Collection[str]
) -> list[int]:
    """Take erased questions out of items whose replies have left the log; return their rows."""
    wanted = [question for question in questions if question]
    if not wanted:
        return []
    left = tiers.select(connection, _ASKED_BY_NONE, (space.id, dump(wanted)))
    vectors = store.embed([row.item.text for row in left]) if left else ()
    for row, vector in zip(left, vectors, strict=True):
        tiers.delete(connection, space, [row])
        alone = replace(row.item, asked="", vector=vector)
        tiers.insert(connection, space, replace(row, item=alone))
    return [row.row for row in left]
