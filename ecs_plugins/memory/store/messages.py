"""The message log: what was said, kept under its own retention as evidence of every memory.

What messages claim is kept beside it as hashes, which outlive them where the log has a retention.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from numbers import Real
from typing import Any, TypeAlias

from ecs_plugins.common.text import asked_at_end, same_speaker
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.store.namespaces import Space, decode
from ecs_plugins.memory.store.tiers import NO_LIMIT
from ecs_plugins.memory.store.values import checked_text, crc, dump, packed, unpack
from ecs_plugins.memory.supersession import claims
from ecs_plugins.memory.types import Evidence, HotItem, Matrix, Vector
from ecs_plugins.storage.base import Connection

MAX_TEXT = 1_000_000
_SECONDS = 1e12  # some 30,000 years: what is later is none
SESSION = 12 * 3600.0
"""Seconds after which a message replies to no earlier one."""
_CLOCKS_DIFFER = 24 * 3600.0  # seconds, at most


def seconds_of(name: str, given: Any, *, least: float = 0.0) -> float | None:
    """A time or a time to live as it is stored; InvalidInputError if it is none."""
    if given is None:
        return None
    is_number = isinstance(given, Real)
    if not (is_number and least < given < _SECONDS):
        raise InvalidInputError(
            f"{name} is a number of seconds between {least:g} and {_SECONDS:g}, got {given!r:.80}"
        )
    return float(given)


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be remembered.

    Attributes:
        text: What was said; not blank.
        role: Who said it: ``user``, ``assistant``, ``tool``, or what the application uses.
        metadata: JSON values to filter by; what merged messages agree on stays with the memory.
        writer: The agent that wrote it, where several share a namespace.
        at: Unix time; None is now.
        ttl: Seconds to live; None is for ever.
        asked: The question that it replies to; `replies` finds it.
        asker: Id of the message that asks it.
    """

    text: str
    role: str = "user"
    metadata: Mapping[str, object] = field(default_factory=dict)
    writer: str | None = None
    at: float | None = None
    ttl: float | None = None
    asked: str = field(default="", repr=False)
    asker: str | None = field(default=None, repr=False)
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
        object.__setattr__(self, "at", seconds_of("at", self.at, least=-_SECONDS))
        object.__setattr__(self, "ttl", seconds_of("ttl", self.ttl))
        _check_unicode(text, self.writer, self.role)
        if not isinstance(self.metadata, Mapping):
            raise InvalidInputError("metadata is a mapping of JSON values")
        own, stored = _checked_metadata(self.metadata) if self.metadata else ({}, "{}")
        object.__setattr__(self, "metadata", own)
        object.__setattr__(self, "stored_metadata", stored)


def _check_unicode(*texts: str | None) -> None:
    try:
        for text in texts:
            if not isinstance(text, str | None):
                raise InvalidInputError(f"role and writer are texts, got {text!r:.80}")
            (text or "").encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the message is not valid Unicode: {error}") from None


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _checked_metadata(metadata: Mapping[str, object]) -> tuple[dict[str, object], str]:
    """The caller's metadata as an own copy of JSON values, and as JSON."""
    try:
        stored = _encode(dict(metadata))
        stored.encode()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"metadata must hold JSON values only: {error}") from None
    return json.loads(stored), stored


@dataclass(frozen=True, slots=True)
class Message:
    """A message in the log.

    Attributes:
        step: Its running number in its namespace.
        writer: The agent that wrote it.
        created: Unix time.
        expires: When it will be erased; None is never.
        asked: The question that it replies to, in the words of the message before; else empty.
        valid_until: When something newer corrected it, if `EntropicMemory.get` knows of that.
        superseded_by: Id of the message that did.
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
    asked: str = ""
    valid_until: float | None = None
    superseded_by: str | None = None


def replies(
    messages: Sequence[NewMessage], ids: Sequence[str], before: Message | None, now: float
) -> list[NewMessage]:
    """Messages with the questions that they reply to; ``before`` is the latest of the namespace.

    A message replies to the one right before it that ends with a question, if another role says it,
    or another speaker where both texts begin with ``name:``, and within `SESSION`.
    """
    found: list[NewMessage] = []
    last = None if before is None else (before.id, before.text, before.role, before.created)
    for name, message in zip(ids, messages, strict=True):
        at = now if message.at is None else message.at
        if last is not None:
            asker, text, role, then = last
            other = role != message.role or not same_speaker(text, message.text)
            asked = asked_at_end(text) if other and abs(at - then) <= SESSION else ""
            if asked:
                message = replace(message, asked=asked, asker=asker)
        found.append(message)
        last = name, message.text, message.role, at
    return found


def new_ids(count: int) -> list[str]:
    """Fresh ids: 48 bits of time and 64 random bits, ascending, so that an index appends."""
    stem = f"{int(time.time() * 1000):012x}"
    noise = secrets.token_hex(8 * count)
    return sorted([stem + noise[at : at + 16] for at in range(0, 16 * count, 16)])


_INSERT = (
    "INSERT INTO messages (id, namespace, step, role, writer, text, metadata, created, expires,"
    " vector, text_crc, vector_crc, asked, asker) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)


def insert(
    connection: Connection,
    space: Space,
    messages: Sequence[NewMessage],
    ids: Sequence[str],
    vectors: Matrix,
    now: float,
) -> None:
    """Append messages; the first one's step follows ``space.step``."""
    connection.executemany(
        _INSERT,
        (
            (
                name,
                space.id,
                step,
                message.role,
                message.writer,
                message.text,
                message.stored_metadata,
                now if message.at is None else message.at,
                expiry(message, now),
                data,
                crc(message.asked + message.text),
                checksum,
                message.asked,
                message.asker,
            )
            for step, message, name, (data, checksum) in zip(
                count(space.step + 1), messages, ids, map(packed, vectors), strict=False
            )
        ),
    )
    write_claims(
        connection,
        [
            (name, space.id, message.role, message.writer, message.text, message.at)
            for name, message in zip(ids, messages, strict=False)
        ],
        now,
    )


SAID = "SELECT id, namespace, role, writer, text, created FROM messages"
"""What `write_claims` takes."""


_Said: TypeAlias = tuple[str, int, str, str | None, str, float | None]


def write_claims(
    connection: Connection, messages: Iterable[_Said], now: float | None = None
) -> None:
    """Write what messages claim.

    Those that do not say when they were said correct each other in the order of their arrival: none
    is earlier than the claims of the same thing that are there, although the clock of who wrote
    these may be ahead by as much as a day.

    Args:
        connection: In a transaction.
        messages: As the rows of `SAID`; without a time, it is ``now``.
        now: Unix time.
    """
    made = [
        (message, digest(message[2], message[3] or "", claim.key), claim)
        for message in messages
        for claim in claims(message[4])
    ]
    arriving = {(message[1], key) for message, key, _ in made if message[5] is None}
    latest = {} if now is None else _latest(connection, arriving, now)
    rows = []
    for (name, space, _, _, _, at), key, claim in made:
        moment = latest[space, key] if at is None else at
        value = digest(claim.value)
        rows.append((name, space, key, value, claim.corrects, claim.falls, moment))
    connection.executemany(
        "INSERT INTO claims (message, namespace, key, value, corrects, falls, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def _latest(
    connection: Connection, arriving: Collection[tuple[int, int]], now: float
) -> dict[tuple[int, int], float]:
    """Of namespaces and keys, the time of a claim that arrives now, not before those there."""
    latest = dict.fromkeys(arriving, now)
    for space in {space for space, _ in arriving}:
        keys = ", ".join(str(key) for each, key in arriving if each == space)
        found = connection.execute(
            f"SELECT key, max(at) FROM claims WHERE namespace = ? AND key IN ({keys})"
            " AND at <= ? GROUP BY key",
            (space, now + _CLOCKS_DIFFER),
        )
        for key, at in found.fetchall():
            latest[space, int(key)] = max(now, float(at))
    return latest


def digest(*parts: str) -> int:
    """A number of 64 bits for texts, which says nothing of them."""
    digest = blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def forget_claims(connection: Connection, messages: Iterable[str]) -> None:
    """Delete what messages claim: they are erased, or say something else now."""
    connection.executemany("DELETE FROM claims WHERE message = ?", ((name,) for name in messages))


def expiry(message: NewMessage, now: float) -> float | None:
    """When a message that is added now will expire."""
    if message.ttl is None:
        return None
    return (now if message.at is None else message.at) + message.ttl


_COLUMNS = (
    "m.id, n.key, m.step, m.role, m.writer, m.text, m.metadata, m.created, m.expires,"
    " m.text_crc, m.asked FROM messages m JOIN namespaces n ON n.id = m.namespace"
)


def _message(row: tuple[Any, ...]) -> Message:
    name, key, step, role, writer, text, metadata, created, expires, checksum, asked = row
    text = checked_text(text, checksum, f"message {name}", asked)
    values = json.loads(metadata)
    return Message(name, decode(key), step, role, writer, text, values, created, expires, asked)


def get(connection: Connection, name: str) -> Message | None:
    """One message, expired or not."""
    row = connection.execute(f"SELECT {_COLUMNS} WHERE m.id = ?", (name,)).fetchone()
    return None if row is None else _message(row)


def is_asked(connection: Connection, reply: NewMessage) -> bool:
    """Whether the message that a reply refers to is there and asks the question still."""
    found = connection.execute("SELECT text FROM messages WHERE id = ?", (reply.asker,))
    return any(reply.asked in text for (text,) in found)


def log(
    connection: Connection,
    space: int,
    *,
    now: float,
    limit: int | None = None,
    before: int | None = None,
) -> list[Message]:
    """The newest ``limit`` messages with a step below ``before``, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} WHERE m.namespace = ? AND m.step < ?"
        " AND (m.expires IS NULL OR m.expires > ?) ORDER BY m.seq DESC LIMIT ?",
        (space, NO_LIMIT if before is None else before, now, NO_LIMIT if limit is None else limit),
    ).fetchall()
    return [_message(row) for row in reversed(rows)]


def alone(
    connection: Connection, ids: Iterable[str], dimension: int, now: float = float("-inf")
) -> list[tuple[HotItem, Mapping[str, object], float | None]]:
    """The item that each message would be alone, its metadata, and its expiry; oldest first."""
    found = connection.execute(
        "SELECT id, vector, vector_crc, step, text, metadata, expires, asked FROM messages"
        " WHERE id IN (SELECT value FROM json_each(?))"
        " AND (expires IS NULL OR expires > ?) ORDER BY seq",
        (dump(list(ids)), now),
    )
    return [
        (
            item_of(name, unpack(data, check, dimension, f"message {name}"), step, text, asked),
            json.loads(metadata),
            expires,
        )
        for name, data, check, step, text, metadata, expires, asked in found
    ]


def item_of(name: str, vector: Vector, step: int, text: str, asked: str = "") -> HotItem:
    """The hot item of one message alone."""
    return HotItem(name, vector, Evidence(step, step, step), (name,), text, asked=asked)
