"""Items derived anew from their messages, after some messages were erased or changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ecs_plugins.memory.admission import repeated
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.tiers import TierRow, earliest, shared
from ecs_plugins.memory.types import ColdMemory, HotItem
from ecs_plugins.storage.base import Connection


def refolded(messages: Sequence[HotItem], config: MemoryConfig, *, edited: bool = False) -> HotItem:
    """Return one item made of these messages alone, in their order."""
    first, *others = messages
    evidence = replace(first.evidence, edited=edited)
    item = replace(first, evidence=evidence)
    for each in others:
        item = repeated(item, each, config)
    return item


def derived(
    connection: Connection,
    old: TierRow,
    members: Collection[str],
    store: MemoryStore,
    now: float = float("-inf"),
) -> TierRow | None:
    """Return a version made of its messages that have not expired; None without any."""
    left = log.alone(connection, members, store.dimension, now)
    if not left:
        return None
    messages = []
    metadata = left[0][1]
    expires = None
    for message, own, ends in left:
        messages.append(message)
        metadata = shared(metadata, own)
        expires = earliest(expires, ends)
    before = old.item.evidence
    item = refolded(messages, store.config, edited=before.edited)
    new: HotItem | ColdMemory
    if old.tier == "hot":
        judged = min(old.hot.judged, item.evidence.support)
        new = replace(item, judged=judged)
    else:
        new = replace(
            old.memory,
            vector=item.vector,
            text=item.text,
            asked=item.asked,
            evidence=replace(item.evidence, hits=before.hits),
        )
    return replace(old, item=new, metadata=metadata, expires=expires)


def alive(
    connection: Connection, rows: Iterable[TierRow], now: float, store: MemoryStore
) -> Iterator[TierRow]:
    """Yield rows that have not expired; of an item with some expired messages, the rest."""
    for row in rows:
        if row.expires is None or row.expires > now:
            yield row
            continue
        name = row.item.id
        behind = tiers.provenance(connection, [name]).get(name, ())
        left = derived(connection, row, behind, store, now)
        if left is not None:  # under its own id, which a hot item has from its first message
            item = replace(left.item, id=name)
            yield replace(left, item=item)
