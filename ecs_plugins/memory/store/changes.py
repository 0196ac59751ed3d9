"""Changes of a message or a memory: its text or its pin."""

from __future__ import annotations

import time
from dataclasses import replace

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.records import ErasureReceipt, Memory
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.erasing import (
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
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.store.values import dump

_MOMENT = 1e-3
"""Seconds that something lives at least."""


@repeatable
def update(
    store: MemoryStore, name: str, *, text: str | None, pinned: bool | None
) -> ErasureReceipt:
    """Change a message with the items made of it, or a memory; None leaves a part as it is."""
    if text is not None:
        NewMessage(text)  # refuses a text that cannot be stored
    with store.database.read() as connection:
        namespace = namespace_of(connection, name)
    with erasing(store, [namespace], erases=text is not None) as erasure:
        space = erasure.space_of(namespace)
        message = log.get(erasure.connection, name)
        if message is None:
            _update_memory(erasure, space, name, text, pinned)
        else:
            if text is not None:
                _update_message(erasure, space, message, text)
            if pinned:
                _pin_message(erasure, space, name)
        erasure.save(space)
    return erasure.receipt


def _update_message(erasure: Erasure, space: Space, message: Memory, text: str) -> None:
    connection = erasure.connection
    name = message.id
    growth = log.size_of(text, "") - log.size_of(message.text, "")
    check_room(erasure.store.settings, space, 0, growth)
    space.grow(0, growth)
    contents = erasure.contents_of([name])
    changed = frozenset([name, *reread(erasure.store, connection, [name], text)])
    before = {each: _live_on(erasure, each) for each in sorted(changed)}
    write_texts(erasure.store, connection, {name: text}, message.asked)
    vectors = part_vectors(erasure.store, [text])
    write_parts(erasure.store, connection, space.namespace, name, text, vectors)
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
    """Insert an item made of one message, which no item contains any more."""
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
    erasure: Erasure, space: Space, name: str, text: str | None, pinned: bool | None
) -> None:
    connection = erasure.connection
    versions = tiers.versions(connection, name, erasure.store.dimension)
    live = next((row for row in versions if row.live), None)
    if live is None:
        raise unknown(name)
    memory = live.memory
    if pinned and not memory.pinned:
        check_room_to_pin(connection, space, erasure.store.config)
    if pinned is not None:
        memory = replace(memory, pinned=pinned)
    if text is None:
        tiers.update(connection, live.row, memory, live.judged)
        return
    version = live.version + 1
    new = replace(live, item=memory, version=version, changed=time.time(), born=None)
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
