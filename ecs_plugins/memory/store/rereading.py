"""Replies whose question was erased or changed: what they say is read without it, or anew.

A reply keeps a copy of the question that it replies to, and its vector is that of both. So the
vectors of replies are made anew; what they are made of is known before the transaction that needs
them, so that nobody waits while it is embedded.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ecs_plugins.common.text import as_reply, asked_at_end
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space
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
    """The texts of which vectors are needed to erase messages, or to let one ask something else."""
    among = dump(list(askers))
    asked = asked_at_end(now_asks)
    replies = connection.execute(
        f"SELECT text FROM messages WHERE asker {_AMONG} AND NOT id {_AMONG}", (among, among)
    )
    texts = [as_reply(text, asked) for (text,) in replies]
    texts += _texts_that_reply(connection, among)
    return texts


def _texts_that_reply(connection: Connection, ids: str) -> list[str]:
    """What items say that reply to the questions of messages."""
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
    """Write what a message says and replies to, with its vector."""
    (vector,) = store.embed([as_reply(text, asked)])
    data, vector_crc = packed_half(vector)
    text_crc = crc_of((asked, text))
    connection.execute(_WRITE, (text, asked, text_crc, data, vector_crc, name))


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
    """Take erased questions out of what rests on replies that the log has no more; their rows."""
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
