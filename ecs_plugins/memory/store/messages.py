"""The message log: what was said, kept under its own retention as evidence of every memory."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from zlib import crc32

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.store.rows import dump
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.vectors import crc, damaged, pack_all, unpack
from ecs_plugins.memory.types import Matrix, Observation

MAX_TEXT = 1_000_000


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be remembered.

    Attributes:
        text: What was said; not blank.
        role: Who said it: ``user``, ``assistant``, ``tool``, or what the application uses.
        metadata: JSON values to filter by; what merged messages agree on stays with the memory.
        writer: The agent that wrote it, where several share a namespace.
        at: Seconds since 1970; None is now.
        ttl: Seconds to live; None is for ever.
    """

    text: str
    role: str = "user"
    metadata: Mapping[str, object] = field(default_factory=dict)
    writer: str | None = None
    at: float | None = None
    ttl: float | None = None
    stored_metadata: str = field(init=False, repr=False, compare=False)
    """The metadata as JSON, as it is stored."""

    def __post_init__(self) -> None:
        text = self.text
        if not isinstance(text, str) or not text.strip():
            raise InvalidInputError("a message needs text; nothing was written")
        if len(text) > MAX_TEXT:
            raise InvalidInputError(
                f"a message has at most {MAX_TEXT} characters, got {len(text)}; split it"
            )
        if self.ttl is not None and not self.ttl > 0:
            raise InvalidInputError(f"ttl is a positive number of seconds, got {self.ttl}")
        # Most strings are ASCII, which they know.
        if self.writer is not None or not text.isascii():
            _check_unicode(text, self.writer)
        if not self.role.isascii():
            _check_unicode(self.role)
        metadata = self.metadata
        if type(metadata) is not dict and not isinstance(metadata, Mapping):
            raise InvalidInputError("metadata is a mapping of JSON values")
        own, stored = _checked_metadata(metadata) if metadata else ({}, "{}")
        object.__setattr__(self, "metadata", own)
        object.__setattr__(self, "stored_metadata", stored)


def _check_unicode(*texts: str | None) -> None:
    try:
        for text in texts:
            if text is not None:
                text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the message is not valid Unicode: {error}") from None


_KEYS = {str}
_PLAIN = frozenset({str, int, float, bool, type(None)})
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _flat_encoder() -> Callable[[object], str]:
    """What `_encode` makes anew for every call, which takes longer than to encode a few values.

    An inner part of the standard library: where it is missing or has changed, `_encode` serves.
    """
    quote = json.encoder.encode_basestring
    try:
        parts = json.encoder.c_make_encoder(None, None, quote, None, ":", ",", False, False, False)  # type: ignore[attr-defined]
        parts({"": 0}, 0)
    except (AttributeError, TypeError):
        return _encode
    return lambda data: "".join(parts(data, 0))


_encode_flat = _flat_encoder()


def _checked_metadata(metadata: Mapping[str, object]) -> tuple[dict[str, object], str]:
    """The caller's metadata as an own copy of JSON values, and as JSON."""
    own = dict(metadata)
    flat = {*map(type, own)} == _KEYS and _PLAIN.issuperset(map(type, own.values()))
    try:
        stored = _encode_flat(own) if flat else _encode(own)
        if not stored.isascii():
            stored.encode()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"metadata must hold JSON values only: {error}") from None
    if not flat:
        own = json.loads(stored)
        stored = _encode(own)
    return own, stored


@dataclass(frozen=True, slots=True)
class Message:
    """A message in the log.

    Attributes:
        id: Its public id.
        namespace: Where it belongs.
        step: Its running number there.
        role: Who said it.
        writer: The agent that wrote it.
        text: What was said.
        metadata: As given.
        created: Seconds since 1970.
        expires: When it will be erased; None is never.
    """

    id: str
    namespace: tuple[str, ...]
    step: int
    role: str
    writer: str | None
    text: str
    metadata: Mapping[str, object]
    created: float
    expires: float | None


def new_ids(count: int) -> list[str]:
    """Fresh ids: 48 bits of time and 64 random bits, ascending, so that an index appends."""
    stem = f"{int(time.time() * 1000):012x}"
    noise = secrets.token_hex(8 * count)
    return sorted([stem + noise[at : at + 16] for at in range(0, 16 * count, 16)])


_INSERT = (
    "INSERT INTO messages (id, namespace, step, role, writer, text, metadata, created,"
    " expires, vector, text_crc, vector_crc) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"
)


def insert(
    connection: sqlite3.Connection,
    space: Space,
    messages: Sequence[NewMessage],
    ids: Sequence[str],
    vectors: Matrix,
    now: float,
) -> int:
    """Append messages; ``space.step`` is the step of the first one.

    Returns:
        The row number of the first one; the others follow it without a gap.
    """
    columns = zip(count(space.step), messages, ids, pack_all(vectors), strict=False)
    rows = [
        (
            name,
            space.id,
            step,
            message.role,
            message.writer,
            message.text,
            message.stored_metadata,
            now if message.at is None else message.at,
            None if message.ttl is None else expiry(message, now),
            data,
            crc32(message.text.encode()),
            crc32(data),
        )
        for step, message, name, data in columns
    ]
    if len(rows) == 1:
        only = connection.execute(_INSERT, rows[0]).lastrowid
        assert only is not None
        return only
    connection.executemany(_INSERT, rows)
    last: int = connection.execute("SELECT max(seq) FROM messages").fetchone()[0]
    return last - len(rows) + 1


def expiry(message: NewMessage, now: float) -> float | None:
    """When a message that is added now will expire."""
    if message.ttl is None:
        return None
    return (now if message.at is None else message.at) + message.ttl


_COLUMNS = (
    "m.id, n.key, m.step, m.role, m.writer, m.text, m.metadata, m.created, m.expires,"
    " m.text_crc FROM messages m JOIN namespaces n ON n.id = m.namespace"
)


def _message(row: tuple[object, ...]) -> Message:
    name, key, step, role, writer, text, metadata, created, expires, checksum = row
    if crc(str(text)) != checksum:
        raise damaged(f"message {name}", "text", "restore a backup, or delete the message")
    return Message(
        str(name),
        tuple(json.loads(str(key))),
        step,  # type: ignore[arg-type]
        str(role),
        writer,  # type: ignore[arg-type]
        str(text),
        json.loads(str(metadata)),
        created,  # type: ignore[arg-type]
        expires,  # type: ignore[arg-type]
    )


def get(connection: sqlite3.Connection, name: str) -> Message | None:
    """One message, expired or not."""
    row = connection.execute(f"SELECT {_COLUMNS} WHERE m.id = ?", (name,)).fetchone()
    return None if row is None else _message(row)


def log(
    connection: sqlite3.Connection,
    space: int,
    *,
    now: float,
    limit: int = -1,
    before: int | None = None,
) -> list[Message]:
    """The newest ``limit`` messages with a step below ``before``, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} WHERE m.namespace = ? AND m.step < ?"
        " AND (m.expires IS NULL OR m.expires > ?) ORDER BY m.seq DESC LIMIT ?",
        (space, before if before is not None else 1 << 62, now, limit),
    ).fetchall()
    return [_message(row) for row in reversed(rows)]


def observations(
    connection: sqlite3.Connection, ids: Iterable[str], dimension: int
) -> list[tuple[Observation, Mapping[str, object], float | None]]:
    """Messages as observations, oldest first, each with its metadata and its expiry."""
    found = connection.execute(
        "SELECT id, vector, vector_crc, step, text, metadata, expires FROM messages"
        " WHERE id IN (SELECT value FROM json_each(?)) ORDER BY seq",
        (dump(list(ids)),),
    )
    return [
        (
            Observation(
                id=name,
                vector=unpack(vector, checksum, dimension, f"message {name}"),
                step=step,
                text=text,
            ),
            json.loads(metadata),
            expires,
        )
        for name, vector, checksum, step, text, metadata, expires in found
    ]
