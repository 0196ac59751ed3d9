"""Items derived anew from the messages behind them, when some of these are gone or changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ecs_plugins.memory.admission import admit, repeated
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.tiers import TierRow, earliest, shared
from ecs_plugins.memory.types import ColdMemory, HotItem
from ecs_plugins.storage.base import Connection


def refolded(messages: Sequence[HotItem], config: MemoryConfig, *, edited: bool = False) -> HotItem:
    """One item made of these messages alone, in their order."""
    item, *others = messages
    item = replace(item, evidence=replace(item.evidence, edited=edited))
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
    """A version as those of its messages make it that have not expired; None without any."""
    left = log.alone(connection, members, store.dimension, now)
    if not left:
        return None
    metadata = left[0][1]
    for _, own, _ in left:
        metadata = shared(metadata, own)
    evidence = old.item.evidence
    item = refolded([each for each, _, _ in left], store.config, edited=evidence.edited)
    new: HotItem | ColdMemory
    if old.tier == "hot":
        new = replace(item, judged=min(old.hot.judged, item.evidence.support))
    else:
        known = replace(item.evidence, hits=evidence.hits)
        new = replace(
            old.memory, vector=item.vector, text=item.text, asked=item.asked, evidence=known
        )
    expires = earliest(*(expires for _, _, expires in left))
    return replace(old, item=new, metadata=metadata, expires=expires)


def alive(
    connection: Connection, rows: Iterable[TierRow], now: float, store: MemoryStore
) -> Iterator[TierRow]:
    """What has not expired; of an item that rests on messages of which some have, the rest."""
    for row in rows:
        if row.expires is None or row.expires > now:
            yield row
            continue
        behind = tiers.provenance(connection, [row.item.id]).get(row.item.id, ())
        left = derived(connection, row, behind, store, now)
        if left is not None:  # under its own id, which a hot item has from its first message
            yield replace(left, item=replace(left.item, id=row.item.id))


def is_strange(
    connection: Connection, name: str, members: Collection[str], store: MemoryStore
) -> bool:
    """Whether a message says something else than the others behind an item."""
    found = [each for each, _, _ in log.alone(connection, members, store.dimension)]
    rest = [each for each in found if each.id != name]
    own = [each for each in found if each.id == name]
    if not rest or not own:
        return False
    item = refolded(rest, store.config)
    cosine = float(item.vector @ own[0].vector)
    return admit(own[0], config=store.config, nearest_hot=(item, cosine)).id == name
