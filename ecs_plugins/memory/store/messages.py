"""The message log: the evidence of every memory, under its own retention."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, NamedTuple

from ecs_plugins.common.text import asked_at_end, same_speaker, sentence_spans
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.records import Memory
from ecs_plugins.memory.store.namespaces import Space, decode
from ecs_plugins.memory.store.tiers import NO_LIMIT
from ecs_plugins.memory.store.values import (
    check,
    crc_of,
    dump,
    packed_half,
    parsed,
    unpack,
)
from ecs_plugins.memory.types import Evidence, HotItem, Matrix, Vector
from ecs_plugins.storage.base import Connection

MAX_TEXT = 1_000_000
_SECONDS = 1e12  # some 30,000 years: what is later is none
LONG = 600
"""Bytes of a text from which on its parts are embedded as well."""

_PART = 160
"""Bytes of a part, or of the sentence that is longer."""

_MOST_PARTS = 64
SESSION = 12 * 3600.0
"""Seconds after which a message replies to no earlier one."""

_AHEAD = 86_400.0  # seconds that a clock may be fast


def seconds_of(name: str, given: Any, *, least: float = 0.0) -> float | None:
    """Return a time or a time to live as a float; raise InvalidInputError for anything else."""
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
        at: Unix time; None is now, and so is a time more than a day ahead.
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
    """Return the caller's metadata as a copy of JSON values, and as JSON."""
    try:
        stored = _encode(dict(metadata))
        stored.encode()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"metadata must hold JSON values only: {error}") from None
    return json.loads(stored), stored


class Turn(NamedTuple):
    """A turn: its speaker, its text and its time."""

    name: str
    text: str
    role: str
    at: float


def replies(
    messages: Sequence[NewMessage], ids: Sequence[str], before: Memory | None, now: float
) -> list[NewMessage]:
    """Return messages with the questions they reply to; ``before`` is the latest stored one.

    A message replies to the one right before it that ends with a question, if another role says it,
    or another speaker where both texts begin with ``name:``, and within `SESSION`.
    """
    answered: list[NewMessage] = []
    last: Turn | None = None
    if before is not None:
        last = Turn(before.id, before.text, before.role, before.created)
    for name, message in zip(ids, messages, strict=True):
        at = time_of(message, now)
        turn = Turn(name, message.text, message.role, at)
        asked = "" if last is None else question_before(last, turn)
        if last is not None and asked:
            message = replace(message, asked=asked, asker=last.name)
        answered.append(message)
        last = turn
    return answered


def question_before(last: Turn, turn: Turn) -> str:
    """Return the question of one turn that the next replies to; empty if it replies to none."""
    if abs(turn.at - last.at) > SESSION:
        return ""
    if last.role == turn.role and same_speaker(last.text, turn.text):
        return ""
    return asked_at_end(last.text)


def parts_of(text: str) -> list[str]:
    """Return the parts by which a long text is found as well; none of a short one.

    An embedder reads the first some hundred words, and the mean of many sentences is near to none.
    """
    size = len(text.encode()) if 4 * len(text) > LONG else 0
    if size <= LONG:
        return []
    most = max(_PART, size // _MOST_PARTS)
    parts = [""]
    for start, end in sentence_spans(text):
        for at in range(start, end, most):
            piece = text[at : min(at + most, end)]
            if parts[-1] and len(f"{parts[-1]}{piece}".encode()) > most:
                parts.append("")
            parts[-1] += piece
    return [part for part in parts if part.strip()]


def new_ids(count: int) -> list[str]:
    """Return fresh ids: 48 bits of time and 64 random bits, ascending, so that an index appends."""
    stem = f"{int(time.time() * 1000):012x}"
    noise = secrets.token_hex(8 * count)
    starts = range(0, 16 * count, 16)
    return sorted([stem + noise[start : start + 16] for start in starts])


_INSERT = """
    INSERT INTO messages (
        id, namespace, step, role, writer, metadata, created, expires,
        text, vector, text_crc, vector_crc, metadata_crc, asked, asker
    )
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
"""


def insert(
    connection: Connection,
    space: Space,
    messages: Sequence[NewMessage],
    ids: Sequence[str],
    vectors: Matrix,
    now: float,
) -> None:
    """Append messages; the first one's step follows ``space.step``."""
    rows = []
    for at, message in enumerate(messages):
        stored = message.stored_metadata
        times = (time_of(message, now), expiry(message, now))
        noted = (space.step + 1 + at, message.role, message.writer, stored, *times)
        text_crc = crc_of((message.asked, message.text))
        vector, vector_crc = packed_half(vectors[at])
        sums = (text_crc, vector_crc, crc_of(noted))
        row = (ids[at], space.id, *noted, message.text, vector, *sums, message.asked, message.asker)
        rows.append(row)
        space.grow(1, size_of(message.text, stored))
    connection.executemany(_INSERT, rows)


def size_of(text: str, metadata: str) -> int:
    """Return the bytes of a message: its text and its metadata as JSON, in UTF-8."""
    return len(text.encode()) + len(metadata.encode())


def held(connection: Connection, space: int) -> tuple[int, int]:
    """Return the number of messages of a namespace and their bytes."""
    rows = connection.execute("SELECT text, metadata FROM messages WHERE namespace = ?", (space,))
    sizes = [size_of(text, metadata) for text, metadata in rows]
    return len(sizes), sum(sizes)


def time_of(message: NewMessage, now: float) -> float:
    """Return when a message was said; a time far ahead is wrong, and counts as now.

    Else the message would be the newest of its namespace for ever.
    """
    at = now if message.at is None else message.at
    return at if at <= now + _AHEAD else now


def expiry(message: NewMessage, now: float) -> float | None:
    """Return the time at which a message that is added now will expire."""
    if message.ttl is None:
        return None
    return time_of(message, now) + message.ttl


_SELECT = """
    SELECT m.id, n.key, m.step, m.role, m.writer, m.text, m.metadata, m.created, m.expires,
        m.text_crc, m.metadata_crc, m.asked
    FROM messages m JOIN namespaces n ON n.id = m.namespace
"""
_NEWEST = f"""
    {_SELECT}
    WHERE m.namespace = ? AND m.step < ? AND (m.expires IS NULL OR m.expires > ?)
    ORDER BY m.seq DESC
    LIMIT ?
"""
_ALONE = """
    SELECT id, vector, vector_crc, step, text, metadata, expires, asked FROM messages
    WHERE id IN (SELECT value FROM json_each(?)) AND (expires IS NULL OR expires > ?)
    ORDER BY seq
"""


def _message(row: tuple[Any, ...]) -> Memory:
    (
        name, key, step, role, writer, text, metadata, created, expires, text_crc, metadata_crc,
        asked,
    ) = row  # fmt: skip
    called = f"message {name}"
    check(called, "metadata", metadata_crc, (step, role, writer, metadata, created, expires))
    check(called, "text", text_crc, (asked, text))
    return Memory(
        id=name,
        namespace=decode(key),
        step=step,
        role=role,
        roles=(role,),
        provenance=(name,),
        writer=writer,
        text=text,
        metadata=json.loads(metadata),
        created=created,
        changed=created,
        expires=expires,
        asked=asked,
    )


def get(connection: Connection, name: str) -> Memory | None:
    """Return one message, expired or not."""
    row = connection.execute(f"{_SELECT} WHERE m.id = ?", (name,)).fetchone()
    return None if row is None else _message(row)


def is_asked(connection: Connection, reply: NewMessage) -> bool:
    """Return True if the question that a reply answers is still stored unchanged."""
    rows = connection.execute("SELECT text FROM messages WHERE id = ?", (reply.asker,))
    return any(reply.asked in text for (text,) in rows)


def log(
    connection: Connection,
    space: int,
    *,
    now: float,
    limit: int | None = None,
    before: int | None = None,
) -> list[Memory]:
    """Return the newest ``limit`` messages with a step below ``before``, oldest first."""
    below = NO_LIMIT if before is None else before
    most = NO_LIMIT if limit is None else limit
    rows = connection.execute(_NEWEST, (space, below, now, most)).fetchall()
    return [_message(row) for row in reversed(rows)]


def alone(
    connection: Connection, ids: Iterable[str], dimension: int, now: float = float("-inf")
) -> list[tuple[HotItem, Mapping[str, object], float | None]]:
    """Return each message as an item of its own, with metadata and expiry, oldest first."""
    rows = connection.execute(_ALONE, (dump(list(ids)), now))
    items = []
    for name, data, checksum, step, text, metadata, expires, asked in rows:
        called = f"message {name}"
        vector = unpack(data, checksum, dimension, called)
        item = item_of(name, vector, step, text, asked)
        items.append((item, parsed(metadata, called, "metadata"), expires))
    return items


def item_of(name: str, vector: Vector, step: int, text: str, asked: str = "") -> HotItem:
    """Return the hot item of one message alone."""
    evidence = Evidence(created=step, updated=step, last_seen=step)
    return HotItem(name, vector, evidence, (name,), text, asked=asked)
