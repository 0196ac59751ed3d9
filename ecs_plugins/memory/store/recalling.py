"""The read path: which items of which tiers answer a query."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.records import Recollection
from ecs_plugins.memory.store import cold_memories, hot_items
from ecs_plugins.memory.store.cold_memories import ColdRow
from ecs_plugins.memory.store.hot_items import HotRow
from ecs_plugins.memory.store.index import Entries
from ecs_plugins.memory.store.open_indexes import OpenIndexes
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.types import ColdMemory, HotItem, Tier, Vector

_METADATA = {
    "hot": hot_items.LIVE_METADATA,
    "cold": "SELECT row, metadata FROM memories WHERE namespace = ? AND live = 1",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of one namespace."""

    vector: Vector
    k: int
    threshold: float
    tiers: tuple[Tier, ...]
    condition: Filter | None
    now: float
    exclude: frozenset[str] = frozenset()


def recall(
    connection: sqlite3.Connection, space: Space, indexes: OpenIndexes, request: Request
) -> list[Recollection]:
    """The best ``k`` items at or above the threshold, best first."""
    found: list[Recollection] = []
    for tier in request.tiers:
        found += _from_tier(connection, space, indexes, request, tier)
    found.sort(key=lambda item: -item.score)
    return found[: request.k]


def _from_tier(
    connection: sqlite3.Connection,
    space: Space,
    indexes: OpenIndexes,
    request: Request,
    tier: Tier,
) -> list[Recollection]:
    if not space.tier(tier).count:
        return []
    index = indexes.current(connection, space, tier)
    allowed = None
    if request.condition is not None:
        allowed = _allowed(connection, space.id, tier, request.condition)
    wanted = request.k
    while True:
        entries, scores = index.search(request.vector, wanted, allowed=allowed)
        near = scores >= request.threshold
        chosen = dict(zip(entries[near].tolist(), scores[near].tolist(), strict=True))
        out = _fetched(connection, space, tier, chosen, request)
        # Expired and excluded items take places; look further if that cost us some.
        exhausted = len(entries) < wanted or not near.all()
        if len(out) >= request.k or exhausted:
            return out[: request.k]
        wanted *= 4


def _allowed(connection: sqlite3.Connection, space: int, tier: Tier, condition: Filter) -> Entries:
    known: dict[str, bool] = {}
    rows = []
    for row, metadata in connection.execute(_METADATA[tier], (space,)):
        verdict = known.get(metadata)
        if verdict is None:
            verdict = known[metadata] = matches(json.loads(metadata), condition)
        if verdict:
            rows.append(row)
    return np.asarray(rows, dtype=np.int64)


def _fetched(
    connection: sqlite3.Connection,
    space: Space,
    tier: Tier,
    scores: dict[int, float],
    request: Request,
) -> list[Recollection]:
    rows: dict[int, HotRow] | dict[int, ColdRow]
    if tier == "hot":
        rows = hot_items.hot_rows(connection, space.id, scores)
    else:
        rows = cold_memories.cold_rows(connection, scores)
    alive = [rows[row] for row in scores if row in rows and _wanted(rows[row], request)]
    alive = alive[: request.k]
    behind = _provenance(connection, alive)
    return [_recollection(row, scores[row.row], space, behind, request.threshold) for row in alive]


def _wanted(row: HotRow | ColdRow, request: Request) -> bool:
    name = row.item.id if isinstance(row, HotRow) else row.memory.id
    return (row.expires is None or row.expires > request.now) and name not in request.exclude


def _provenance(
    connection: sqlite3.Connection, rows: Sequence[HotRow | ColdRow]
) -> dict[str, tuple[str, ...]]:
    cold = [row.memory.id for row in rows if isinstance(row, ColdRow)]
    merged = [row.item.id for row in rows if isinstance(row, HotRow) and not row.single]
    behind = cold_memories.provenance_of(connection, cold) if cold else {}
    if merged:
        behind |= hot_items.members_of_items(connection, merged)
    return behind


def _recollection(
    row: HotRow | ColdRow,
    score: float,
    space: Space,
    behind: dict[str, tuple[str, ...]],
    threshold: float,
) -> Recollection:
    item: HotItem | ColdMemory
    tier: Tier
    if isinstance(row, HotRow):
        item, tier, pinned, judged = row.item, "hot", False, None
        provenance = behind.get(item.id, (item.id,))
    else:
        item, tier, pinned, judged = row.memory, "cold", row.memory.pinned, row.judged
        provenance = behind.get(item.id, ())
    evidence = item.evidence
    where = "said recently" if tier == "hot" else "kept, pinned" if pinned else "kept"
    why = (
        f"cosine {score:.3f} >= {threshold:g}; {where} ({tier} tier), "
        f"support {evidence.support}, recalled {evidence.hits} times before"
    )
    if evidence.unlike is not None:
        why += f"; not merged with a near one, from which it differs in a {evidence.unlike}"
    if judged is not None:
        terms = f"F {judged.total:.3f}: E {judged.energy:.3f}, S {judged.entropy:.3f}"
        why += f"; last judged at {terms}"
    return Recollection(
        id=item.id,
        text=item.text,
        score=score,
        tier=tier,
        namespace=space.namespace,
        metadata=dict(row.metadata),
        support=evidence.support,
        provenance=provenance,
        pinned=pinned,
        free_energy=judged,
        why=why,
    )
