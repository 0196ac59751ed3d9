"""Changes of a message or a memory: its text, its metadata or its pin."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.records import ErasureReceipt, Memory
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import namespaces, tiers
from ecs_plugins.memory.store.erasing import (
    Content,
    Erasure,
    erasing,
    namespace_of,
    repeatable,
    reread,
    unknown,
    write_texts,
)
from ecs_plugins.memory.store.intake import check_room_to_pin, evict_overflow, insert_pinned
from ecs_plugins.memory.store.items import part_vectors, write_parts
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.store.namespaces import Space, check_room
from ecs_plugins.memory.store.tiers import Metadata, TierRow
from ecs_plugins.memory.store.values import dump

_MOMENT = 1e-3
"""Seconds that something lives at least."""


@repeatable
def update(
    store: MemoryStore,
    name: str,
    *,
    text: str | None,
    metadata: Mapping[str, object] | None,
    pinned: bool | None,
) -> ErasureReceipt:
    """Change a message with the items made of it, or a memory; None leaves a part as it is."""
    checked = NewMessage("-" if text is None else text, metadata=metadata or {})
    own = None if metadata is None else checked.metadata
    with store.database.read() as connection:
        namespace = namespace_of(connection, name)
    erases = text is not None or own is not None
    with erasing(store, [namespace], erases=erases) as erasure:
        message = log.get(erasure.connection, name)
        if message is None:
            versions = tiers.versions(erasure.connection, name, store.dimension)
            live = next((row for row in versions if row.live), None)
            if live is None:
                raise unknown(name)
            space = namespaces.space_by_id(erasure.connection, live.space)
            _update_memory(erasure, space, live, text, own, pinned)
        else:
            space = erasure.space_of(message.namespace)
            if erases:
                _update_message(erasure, space, message, text, own)
            if pinned:
                _pin_message(erasure, space, message.id)
        erasure.save(space)
    return erasure.receipt


def _update_message(
    erasure: Erasure, space: Space, message: Memory, text: str | None, metadata: Metadata | None
) -> None:
    connection = erasure.connection
    name = message.id
    contents: list[Content] = []
    changed = frozenset([name])
    before_size = log.size_of(message.text, dump(message.metadata))
    now_text = message.text if text is None else text
    now_metadata = message.metadata if metadata is None else metadata
    growth = log.size_of(now_text, dump(now_metadata)) - before_size
    check_room(erasure.store.settings, space, 0, growth)
    space.grow(0, growth)
    if text is not None:
        contents = erasure.contents_of([name])
        replies = reread(erasure.store, connection, [name], text)
        changed = changed.union(replies)
    before = {each: _live_on(erasure, each) for each in sorted(changed)}
    if text is not None:
        write_texts(erasure.store, connection, {name: text}, message.asked)
        vectors = part_vectors(erasure.store, [text])
        write_parts(erasure.store, connection, space.namespace, name, text, vectors)
    if metadata is not None:
        log.write_metadata(connection, message, dump(metadata))
    affected = erasure.derive(space, changed, frozenset())
    for each, rows in before.items():
        if rows and not _live_on(erasure, each):
            pinned = any(row.is_pinned for row in rows)
            _found_again(erasure, space, each, pinned=pinned)
    erasure.clean_record((), affected, contents)


def _live_on(erasure: Erasure, message: str) -> list[TierRow]:
    """Return the live items made of a message."""
    return tiers.select(
        erasure.connection,
        "+live = 1 AND id IN (SELECT item FROM provenance WHERE message = ?)",
        (message,),
        dimension=erasure.store.dimension,
        members=True,
    )


def _found_again(erasure: Erasure, space: Space, name: str, *, pinned: bool) -> None:
    """Make an item of a message that left all others."""
    connection = erasure.connection
    config = erasure.store.config
    message = log.get(connection, name)
    assert message is not None
    (alone,) = log.alone(connection, [name], erasure.store.dimension)
    item, metadata, expires = alone
    row = TierRow(item, metadata, message.created, time.time(), expires)
    if pinned:
        insert_pinned(connection, space, row, item.members, config)
    else:
        tiers.insert(connection, space, row, item.members)
        evict_overflow(connection, space, config)


def _pin_message(erasure: Erasure, space: Space, name: str) -> None:
    """Move the hot item of a message to the cold tier, pinned."""
    connection = erasure.connection
    found = [row for row in _live_on(erasure, name) if row.tier == "hot"]
    if not found:
        raise InvalidInputError(
            f"the message {name!r} is not in the hot tier; pin the memory it went into"
        )
    hot = found[0]
    insert_pinned(connection, space, hot, hot.hot.members, erasure.store.config)
    tiers.delete(connection, space, [hot])
    tiers.forget_provenance(connection, [hot.item.id])


def _update_memory(
    erasure: Erasure,
    space: Space,
    old: TierRow,
    text: str | None,
    metadata: Metadata | None,
    pinned: bool | None,
) -> None:
    connection = erasure.connection
    memory = old.memory
    if pinned and not memory.pinned:
        check_room_to_pin(connection, space, erasure.store.config)
    if pinned is not None:
        memory = replace(memory, pinned=pinned)
    if text is None and metadata is None:
        tiers.update(connection, old.row, memory, old.judged)
        return
    new = replace(
        old,
        item=memory,
        version=old.version + 1,
        metadata=old.metadata if metadata is None else metadata,
        changed=time.time(),
        born=None,
    )
    if text is None:
        tiers.delete(connection, space, [old])
        tiers.insert(connection, space, new)
    else:
        _rewrite_memory(erasure, space, new, text)


def _rewrite_memory(erasure: Erasure, space: Space, new: TierRow, text: str) -> None:
    """Change the text of a memory, now and in its history."""
    connection = erasure.connection
    memory = new.memory
    name = memory.id
    size = log.size_of(text, dump(new.metadata))
    check_room(erasure.store.settings, space, 1, size)
    vectors = erasure.store.embed([text])
    behind = [*tiers.provenance(connection, [name]).get(name, ())]
    roles = tiers.origins_of(connection, [name])[name].roles
    contents = erasure.erase_versions(space, name)
    erasure.note_quotes(behind)
    erasure.clean_record((), {name}, contents)
    # A message says the new text from here on, so that nothing derives the old one again.
    ttl = None
    if new.expires is not None:
        ttl = max(new.expires - new.changed, _MOMENT)
    message = NewMessage(text, role=(*roles, "user")[0], metadata=new.metadata, ttl=ttl)
    ids = log.new_ids(1)
    log.insert(connection, space, [message], ids, vectors, new.changed)
    parts = part_vectors(erasure.store, [text])
    write_parts(erasure.store, connection, space.namespace, ids[0], text, parts)
    space.step += 1
    evidence = replace(memory.evidence, edited=True)
    item = replace(memory, text=text, asked="", vector=vectors[0], evidence=evidence)
    tiers.insert(connection, space, replace(new, item=item), ids)
