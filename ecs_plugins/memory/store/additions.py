"""Additions by idempotency key, so that an addition can be repeated.

Who adds over a network may lose the answer and not know whether the messages are stored. Repeated
with the key of the first time, they are stored once: what is missing is added, and the ids are
those of the first time. Keys and contents stand in the database as hashes, the contents keyed by
the key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.store.values import dump
from ecs_plugins.storage.base import Connection

REMEMBERED = 24 * 3600.0
"""Seconds for which a key is known."""

_MOST_CHARACTERS = 255
_DIGEST = 16  # bytes

_BEGUN = (
    "SELECT content, messages, stored FROM additions WHERE namespace = ? AND key = ? AND at > ?"
)
_DROP_OLD = "DELETE FROM additions WHERE namespace = ? AND at <= ?"
_BEGIN = """
    INSERT INTO additions (namespace, key, content, messages, stored, at) VALUES (?,?,?,?,?,?)
    ON CONFLICT DO NOTHING
"""
_GO_ON = "UPDATE additions SET stored = ? WHERE namespace = ? AND key = ? AND stored = ?"


class OvertakenError(StorageError):
    """Another addition with the same idempotency key has stored some of the messages meanwhile."""


@dataclass(frozen=True, slots=True)
class Request:
    """Idempotency key and the messages of its addition, as hashes."""

    key: str
    content: str


@dataclass(frozen=True, slots=True)
class Begun:
    """An addition on record: the ids of all its messages, and how many of these are stored."""

    ids: list[str]
    stored: int


def request(key: str, messages: Sequence[NewMessage]) -> Request:
    """Return the hashes of a key and of its messages.

    Raises:
        InvalidInputError: The key is no text, empty or too long.
    """
    if not isinstance(key, str) or not 0 < len(key) <= _MOST_CHARACTERS:
        raise InvalidInputError(
            f"an idempotency key is a text of 1 to {_MOST_CHARACTERS} characters, got {key!r:.80}; "
            "nothing was written"
        )
    secret = well_formed(key).encode()
    told = []
    for message in messages:
        noted = (message.role, message.writer, message.stored_metadata, message.at, message.ttl)
        told.append((message.text, *noted))
    named = blake2b(secret, digest_size=_DIGEST)
    content = blake2b(dump(told).encode(), digest_size=_DIGEST, key=named.digest())
    content.update(secret)
    return Request(named.hexdigest(), content.hexdigest())


def begun(connection: Connection, space: int, wanted: Request) -> Begun | None:
    """Return the record of an addition, or None.

    Raises:
        InvalidInputError: Something else was added under the key.
    """
    since = time.time() - REMEMBERED
    row = connection.execute(_BEGUN, (space, wanted.key, since)).fetchone()
    if row is None:
        return None
    content, ids, stored = row
    if content != wanted.content:
        raise InvalidInputError(
            "other messages were added with this idempotency key; nothing was written: use a new "
            "key for what is new"
        )
    return Begun(json.loads(ids), stored)


def note(
    connection: Connection, space: int, wanted: Request, ids: Sequence[str], stored: int, more: int
) -> None:
    """Write that, beyond those ``stored``, so many ``more`` messages of an addition are.

    Raises:
        OvertakenError: Others are stored by now.
    """
    now = time.time()
    if stored:
        values = (stored + more, space, wanted.key, stored)
        written = connection.execute(_GO_ON, values)
    else:
        connection.execute(_DROP_OLD, (space, now - REMEMBERED))
        row = (space, wanted.key, wanted.content, dump([*ids]), more, now)
        written = connection.execute(_BEGIN, row)
    if not written.rowcount:
        raise OvertakenError(
            "the same messages were added with this idempotency key meanwhile; nothing was written"
        )
