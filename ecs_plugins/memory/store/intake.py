"""Adding messages: they are logged, then each founds an item or supports one.

That is done one after the other, since a message may repeat what an earlier one of the same batch
has founded. The rows of the batch are in an index of their own: that of the namespace follows when
the transaction is on disk. What a message repeats is decided by `ecs_plugins.memory.admission`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from ecs_plugins.common.text import as_reply, well_formed
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory.admission import admit
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.index import VectorIndex, best_places
from ecs_plugins.memory.store.items import part_vectors, write_parts
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.messages import NewMessage, expiry, parts_of, time_of
from ecs_plugins.memory.store.namespaces import Space, check_room
from ecs_plugins.memory.store.seam import Rows, SpaceIndex
from ecs_plugins.memory.store.tiers import NO_LIMIT, TierRow, earliest, shared
from ecs_plugins.memory.store.values import dump
from ecs_plugins.memory.types import ColdMemory, HotItem, Matrix, Namespace, Tier, Vector
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
    """Record that an addition has stored ``more`` messages after the first ``stored``.

    Raises:
        OvertakenError: The number of stored messages has changed since.
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


_TIE = 1e-6  # cosines closer than this are equal: the older row is taken
_FIRST_LOOK = 4
_ADDS = 0.11
"""Least distance between a reply and its question alone, 1 being that of unrelated texts."""

_REFUSALS = (
    "I don't know.",
    "I do not have information about that.",
    "I'm sorry, but I cannot answer that; you have not told me.",
)
_REFUSES = 0.32
"""Least cosine of a refusal with one of these, in the units of the default embedder."""


@dataclass(slots=True)
class MessageBatch:
    """Messages that are added together, in one transaction or several.

    Attributes:
        ids: Ids of all messages.
        stored: Number of messages that are stored already.
        messages: The other messages, with the questions that they reply to.
        vectors: Vectors of the other messages, each read with its question [n, d].
        parts: Vectors of the parts of long messages, by part.
        request: The idempotency key, if there is one.
        pinned: Whether each is put into the cold tier at once, for good.
        since_sleep: How many messages there are since the last sleep phase, once some are stored.
    """

    ids: list[str]
    stored: int
    messages: list[NewMessage]
    vectors: Matrix
    parts: Mapping[str, Vector]
    request: Request | None
    pinned: bool
    since_sleep: int = 0

    def pass_on(self, count: int, since_sleep: int) -> None:
        """Count some messages as stored."""
        self.stored += count
        self.messages = self.messages[count:]
        self.vectors = self.vectors[count:]
        self.since_sleep = since_sleep


def prepared(
    store: MemoryStore,
    namespace: Namespace,
    messages: Sequence[NewMessage],
    request: Request | None,
    *,
    pinned: bool,
) -> MessageBatch:
    """Return a batch without the messages stored under the same idempotency key.

    Raises:
        InvalidInputError: Something else was added under the key, or there is no room.
    """
    now = time.time()
    ids: list[str] = []
    stored = 0
    left = [*messages]
    with store.reading(namespace) as (connection, space):
        if space is not None and request is not None:
            known = begun(connection, space.id, request)
            if known is not None:
                ids = known.ids
                stored = known.stored
                left = left[stored:]
        _check_room(store, space, left)
        latest = None
        if space is not None and store.config.rule != "paper":  # which knows no replies
            latest = next(iter(log.log(connection, space.id, now=now, limit=1)), None)
    ids = ids or log.new_ids(len(messages))
    if store.config.rule != "paper":
        left = log.replies(left, ids[stored:], latest, now)
    left, vectors = _embedded(store, left)
    parts = part_vectors(store, [message.text for message in left])
    return MessageBatch(ids, stored, left, vectors, parts, request, pinned)


def _embedded(store: MemoryStore, messages: list[NewMessage]) -> tuple[list[NewMessage], Matrix]:
    """Return messages and vectors; a reply that adds nothing to its question is read alone.

    "Ok" hardly moves the vector of its question, an answer does. "I'm afraid I cannot tell you"
    moves it, but lies near other refusals.
    """
    if not messages:
        return messages, np.empty((0, store.dimension), dtype=np.float32)
    places = [place for place, message in enumerate(messages) if message.asked]
    count = len(messages)
    texts = [as_reply(message.text, message.asked) for message in messages]
    texts += [messages[place].asked for place in places]
    texts += [messages[place].text for place in places]
    every = store.embed(texts)
    vectors = every[:count]
    if not places:
        return messages, vectors
    questions, replies = np.split(every[count:], 2)
    if store.refusals is None:
        store.refusals = store.embed(_REFUSALS)
    cosines = np.sum(vectors[places] * questions, axis=1)
    added = (1.0 - cosines) / (1.0 - store.scale.mean)
    nearest = (replies @ store.refusals.T).max(axis=1)
    is_empty = (added < _ADDS) | (store.scale.to_default(nearest) >= _REFUSES)
    empty = np.flatnonzero(is_empty).tolist()
    if empty:
        messages = [*messages]
        vectors = vectors.copy()
        for number in empty:
            place = places[number]
            vectors[place] = replies[number]
            messages[place] = replace(messages[place], asked="", asker=None)
    return messages, vectors


class _ErasedQuestionError(Exception):
    """Error: the question before a batch has been erased meanwhile."""


def add(store: MemoryStore, namespace: Namespace, batch: MessageBatch) -> int:
    """Store messages of a batch in one transaction, up to the sleep phase that falls due.

    Batches that threads add to one namespace at the same time share a transaction. Those after
    the message at which a sleep phase falls due are left as they are.

    Returns:
        How many messages there are since the last sleep phase.

    Raises:
        QuotaError: There is no room for all of them.
        OvertakenError: Another has stored some of them under the same idempotency key.
    """
    store_all = partial(_store, store, namespace)
    try:
        if store.database.is_writing:
            store_all([batch])
        else:
            store.additions.write(namespace, batch, store_all)
    except _ErasedQuestionError:
        first = replace(batch.messages[0], asked="", asker=None)
        batch.messages = [first, *batch.messages[1:]]
        batch.vectors = np.concatenate([store.embed([first.text]), batch.vectors[1:]])
        store_all([batch])
    return batch.since_sleep


def _store(store: MemoryStore, namespace: Namespace, batches: Sequence[MessageBatch]) -> None:
    sleeps = store.settings.sleep == "caller" and not store.database.is_writing
    pinned = batches[0].pinned
    batches = [each for each in batches if each.pinned == pinned]
    with store.writing_to(namespace, create=True, flush=False) as (connection, space):
        assert space is not None
        _check_room(store, space, [message for each in batches for message in each.messages])
        every = store.config.sleep_every
        left = every - space.since_sleep % every if sleeps else NO_LIMIT
        counts = _counts(batches, left)
        messages: list[NewMessage] = []
        names: list[str] = []
        vectors: list[Matrix] = []
        parts: dict[str, Vector] = {}
        for batch, count in zip(batches, counts, strict=True):
            if count:
                _announce(connection, space, batch, count)
            messages += batch.messages[:count]
            names += batch.ids[batch.stored :][:count]
            vectors.append(batch.vectors[:count])
            parts.update(batch.parts)
        intake = Intake(store, connection, space, pinned=pinned)
        intake.add(messages, names, np.concatenate(vectors))
        for message, name in zip(messages, names, strict=True):
            if parts and parts_of(message.text):
                write_parts(store, connection, namespace, name, message.text, parts)
    for batch, count in zip(batches, counts, strict=True):
        batch.pass_on(count, space.since_sleep)


def _counts(batches: Sequence[MessageBatch], left: int) -> list[int]:
    """Return the number of messages to store of each batch, ``left`` at most in all."""
    counts = []
    for batch in batches:
        counts.append(min(len(batch.messages), left))
        left -= counts[-1]
    return counts


def _announce(connection: Connection, space: Space, batch: MessageBatch, count: int) -> None:
    """Check that the question of a reply is still asked, and record the request of a batch."""
    first = batch.messages[0]
    if first.asked and not log.is_asked(connection, first):
        raise _ErasedQuestionError
    if batch.request is not None:
        note(connection, space.id, batch.request, batch.ids, batch.stored, count)


def _check_room(store: MemoryStore, space: Space | None, messages: Sequence[NewMessage]) -> None:
    """Raise if messages would exceed the limits of a namespace (None if it is new)."""
    settings = store.settings
    if settings.max_messages is None and settings.max_bytes is None:
        return
    sizes = [log.size_of(message.text, message.stored_metadata) for message in messages]
    check_room(settings, space, len(sizes), sum(sizes))


class _Near(NamedTuple):
    """An item that a message may repeat, and the cosine of the two."""

    stored: TierRow
    cosine: float


class Intake:
    """Adds messages to one namespace within one write transaction; the caller saves the space."""

    def __init__(
        self, store: MemoryStore, connection: Connection, space: Space, *, pinned: bool
    ) -> None:
        self._connection = connection
        self._space = space
        self._config = store.config
        self._now = time.time()
        self._pinned = pinned
        self._known: dict[int, TierRow | None] = {}  # rows read or written here; None: gone
        self._own = VectorIndex(store.dimension)  # of the rows written here
        self._index: SpaceIndex | None = None
        if not pinned and store.config.rule != "paper":
            self._index = store.indexes.current(connection, space)

    def add(self, messages: Sequence[NewMessage], ids: Sequence[str], vectors: Matrix) -> None:
        """Log messages and let each found or support an item."""
        connection = self._connection
        space = self._space
        log.insert(connection, space, messages, ids, vectors, self._now)
        for message, name, vector in zip(messages, ids, vectors, strict=True):
            space.step += 1
            space.since_sleep += 1
            item = log.item_of(name, vector, space.step, message.text, message.asked)
            at = time_of(message, self._now)
            row = TierRow(item, message.metadata, at, at, expiry(message, self._now))
            if self._pinned:
                insert_pinned(connection, space, row, [name], self._config)
            else:
                self._admit(row, item)
        evict_overflow(connection, space, self._config)

    def _admit(self, row: TierRow, new: HotItem) -> None:
        """Store a new item, or let it support the item that it repeats."""
        near: dict[Tier, _Near] = {}
        if self._index is not None:
            near = self._near(self._index, new.vector)
        if not near:
            self._write(row, new.id)
            return
        hot = near.get("hot")
        cold = near.get("cold")
        item = admit(
            new,
            config=self._config,
            nearest_hot=None if hot is None else (hot.stored.hot, hot.cosine),
            nearest_cold=None if cold is None else (cold.stored.memory, cold.cosine),
        )
        nearest = hot if isinstance(item, HotItem) else cold
        if item.id == new.id or nearest is None:
            self._write(replace(row, item=item), new.id)
        else:
            self._replace(nearest.stored, item, row, new.id)

    def _replace(
        self, old: TierRow, item: HotItem | ColdMemory, new: TierRow, message: str
    ) -> None:
        """Replace an item that a message repeats by its update; a memory gets a new version."""
        self._remove(old)
        version = old.version
        if old.tier == "cold":
            version += 1
        changed = replace(
            old,
            item=item,
            metadata=shared(old.metadata, new.metadata),
            changed=self._now,
            expires=earliest(old.expires, new.expires),
            version=version,
            born=None,
        )
        self._write(changed, message)

    def _remove(self, old: TierRow) -> None:
        """Remove a row that another replaces."""
        self._known[old.row] = None
        tiers.delete(self._connection, self._space, [old])
        self._own.remove(np.array([old.row]))
        self._space.written.pop(old.row, None)

    def _near(self, opened: SpaceIndex, vector: Vector) -> dict[Tier, _Near]:
        """Return the nearest item of each tier, if it is near enough to be repeated."""
        floor = self._config.merge_threshold - _TIE
        wanted = _FIRST_LOOK
        while True:
            rows, scores = self._nearest(opened, vector, wanted)
            near_rows = rows[scores >= floor]
            near = self._stored(near_rows.tolist(), len(vector))
            best = _best_of_each_tier(near, vector)
            if len(rows) < wanted or scores[-1] < floor:
                return best
            populated = {tier for tier, count in self._space.count.items() if count}
            if len(best) >= len(populated):
                return best
            wanted *= 4

    def _nearest(self, opened: SpaceIndex, vector: Vector, count: int) -> tuple[Rows, Vector]:
        """Return the rows nearest to a vector, those of this batch included."""
        rows, scores = opened.nearest(vector, count, narrow=True)
        if not len(self._own):
            return rows, scores
        own_rows, own_scores = self._own.search(vector, count)
        rows = np.append(rows, own_rows)
        scores = np.append(scores, own_scores)
        best = best_places(scores, count)
        return rows[best], scores[best]

    def _stored(self, rows: Sequence[int], dimension: int) -> list[TierRow]:
        """Return the live items of rows, in the order of their numbers."""
        unread = [row for row in rows if row not in self._known]
        if unread:
            self._known |= dict.fromkeys(unread)
            self._known |= tiers.by_rows(self._connection, self._space.id, unread, dimension)
        return [*filter(None, map(self._known.get, sorted(rows)))]

    def _write(self, new: TierRow, message: str) -> None:
        item = new.item
        row = tiers.insert(self._connection, self._space, new, [message])
        self._known[row] = replace(new, row=row)
        self._space.written[row] = (f"{item.asked} {item.text}", item.vector)
        if self._index is not None:
            self._own.add(np.array([row]), item.vector[None])


def _best_of_each_tier(rows: Sequence[TierRow], vector: Vector) -> dict[Tier, _Near]:
    """Return the item of each tier nearest to a vector; of equals, the older row."""
    best: dict[Tier, _Near] = {}
    for each in rows:
        cosine = float(each.item.vector @ vector)
        known = best.get(each.tier)
        if known is None or cosine > known.cosine + _TIE:
            best[each.tier] = _Near(each, cosine)
    return best


def insert_pinned(
    connection: Connection, space: Space, hot: TierRow, members: Sequence[str], config: MemoryConfig
) -> None:
    """Put a hot item's text into the cold tier, pinned; the next sleep phase removes another."""
    check_room_to_pin(connection, space, config)
    (name,) = log.new_ids(1)
    item = hot.item
    memory = ColdMemory(
        id=name,
        vector=item.vector,
        evidence=item.evidence,
        text=item.text,
        pinned=True,
        asked=item.asked,
    )
    pinned = replace(hot, item=memory)
    tiers.insert(connection, space, pinned, members)


_PINNED = """
    SELECT count(*) FROM tiers
    WHERE namespace = ? AND live = 1 AND pinned = 1
"""


def check_room_to_pin(connection: Connection, space: Space, config: MemoryConfig) -> None:
    """Refuse to pin more memories than the cold tier holds."""
    (pinned,) = connection.execute(_PINNED, (space.id,)).fetchone()
    if pinned >= config.cold_capacity:
        raise InvalidInputError(
            f"the cold tier holds {pinned} pinned memories and has room for "
            f"{config.cold_capacity}; unpin or delete some, or raise cold_capacity"
        )


_SEEN = "CAST(evidence ->> '{}' AS DOUBLE PRECISION)".format
_SUPPORT = f"coalesce({_SEEN('support')}, 1)"
_ATTESTATIONS = f"({_SUPPORT} + coalesce({_SEEN('hits')}, 0))"
_LEAVING_FIRST = {
    "default": f"({_ATTESTATIONS} > judged AND {_ATTESTATIONS} >= ?2), {_SEEN('last_seen')},",
    "paper": "",
}
_LEAVING = """
    SELECT row, id FROM tiers
    WHERE namespace = ?1 AND live = 1 AND tier = 'hot'
    ORDER BY {first} {created}, row
    LIMIT ?3
"""


def evict_overflow(connection: Connection, space: Space, config: MemoryConfig) -> None:
    """Let the hot items that are too many leave the tier; their messages stay in the log.

    The paper's rule removes the oldest. The default removes those first that the next sleep phase
    would not propose anyway, the longest unseen leading.
    """
    excess = space.count["hot"] - config.hot_capacity
    if excess <= 0:
        return
    sql = _LEAVING.format(first=_LEAVING_FIRST[config.rule], created=_SEEN("created"))
    leaving = connection.execute(sql, (space.id, config.min_support, excess)).fetchall()
    rows = [row for row, _ in leaving]
    names = [name for _, name in leaving]
    connection.executemany("DELETE FROM tiers WHERE row = ?", [(row,) for row in rows])
    space.left("hot", rows)
    tiers.forget_provenance(connection, names)
