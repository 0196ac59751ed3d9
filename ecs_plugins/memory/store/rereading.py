"""Replies to a question that was erased or changed: their text and vector are made anew.

A reply keeps a copy of its question, and its vector is that of both. The texts are embedded before
the transaction that needs their vectors, so that no other writer waits.
"""

from __future__ import annotations

from collections.abc import Collection
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


def foreseen(connection: Connection, askers: Collection[str], now_asks: str = "") -> list[str]:
    """Return the texts to embed before messages are erased or one asks something else."""
    among = dump(list(askers))
    asked = asked_at_end(now_asks)
    replies = connection.execute(
        f"SELECT text FROM messages WHERE asker {_AMONG} AND NOT id {_AMONG}", (among, among)
    )
    texts = [as_reply(text, asked) for (text,) in replies]
    texts += _texts_that_reply(connection, among)
    return texts


def _texts_that_reply(connection: Connection, ids: str) -> list[str]:
    """Return the texts of items that reply to the questions of messages."""
    rows = connection.execute(
        f"SELECT text, namespace FROM messages WHERE id {_AMONG}", (ids,)
    ).fetchall()
    asked: dict[int, set[str]] = {}
    for text, space in rows:
        question = asked_at_end(text)
        if question:
            asked.setdefault(space, set()).add(question)
    texts: list[str] = []
    for space, questions in asked.items():
        found = connection.execute(
            f"SELECT text FROM tiers WHERE namespace = ? AND asked != '' AND asked {_AMONG}",
            (space, dump(list(questions))),
        )
        texts += [text for (text,) in found]
    return texts


def write_text(
    store: MemoryStore, connection: Connection, name: str, text: str, asked: str
) -> None:
    """Write the text of a message and the question it replies to, with their vector."""
    (vector,) = store.embed([as_reply(text, asked)])
    data, vector_crc = packed_half(vector)
    text_crc = crc_of((asked, text))
    connection.execute(_WRITE, (text, asked, text_crc, data, vector_crc, name))
    forget_edges(connection, [name])


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
    for name, text in replies:
        write_text(store, connection, name, text, asked_at_end(now_asks))
    return sorted(name for name, _ in replies)


def take_out(
    store: MemoryStore, connection: Connection, space: Space, questions: Collection[str]
) -> list[int]:
    """Take erased questions out of items whose replies have left the log; return their rows."""
    wanted = [question for question in questions if question]
    if not wanted:
        return []
    left = tiers.select(connection, _ASKED_BY_NONE, (space.id, dump(wanted)))
    for row in left:
        (vector,) = store.embed([row.item.text])
        tiers.delete(connection, space, [row])
        alone = replace(row.item, asked="", vector=vector)
        tiers.insert(connection, space, replace(row, item=alone))
    return [row.row for row in left]
