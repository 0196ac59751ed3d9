"""What a recall returns: which of the items near to a query, in which order, and why."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

import numpy as np

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.records import Recollection
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.intake import alive
from ecs_plugins.memory.store.tiers import Space, TierRow
from ecs_plugins.memory.store.vector_index import Rows, VectorIndex
from ecs_plugins.memory.types import ColdMemory, Tier, Vector


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What is asked of one namespace.

    Attributes:
        vector: Embedding of the query [d].
        k: Recollections at most.
        threshold: Minimum cosine.
        tiers: Where to look.
        condition: Metadata that an item must have (`filters`).
        now: Unix time; what has expired by then is not recalled.
        exclude: Ids that are not wanted; the next best take their places.
    """

    vector: Vector
    k: int
    threshold: float
    tiers: tuple[Tier, ...]
    condition: Filter | None
    now: float
    exclude: frozenset[str] = frozenset()


def recalled(
    connection: sqlite3.Connection,
    space: Space,
    index: VectorIndex,
    request: RecallRequest,
    config: MemoryConfig,
) -> list[Recollection]:
    """Return the best ``k`` items of a namespace at or above the threshold, best first.

    Items that have expired or are excluded, or are in the other tier, take places among the nearest
    ones: more are looked at until enough are left, or there are no more.

    Args:
        connection: Inside a transaction.
        space: The namespace.
        index: Its index.
        request: What is asked.
        config: How what has expired in part is derived anew.
    """
    condition, count = request.condition, request.k
    allowed = None if condition is None else _matching(connection, space, condition)
    while True:
        rows, scores = index.search(request.vector, count, allowed=allowed)
        near = scores >= request.threshold
        chosen = dict(zip(rows[near].tolist(), scores[near].tolist(), strict=True))
        stored = tiers.by_rows(connection, space.id, chosen) if chosen else {}
        near_rows = [each for each in stored.values() if _is_wanted(each, request)]
        wanted = [*alive(connection, near_rows, request.now, config, index.dimension)]
        # Of equals, what was said last comes first, whatever order the index finds them in.
        wanted.sort(key=lambda at: (-chosen[at.row], -at.item.evidence.last_seen, at.item.id))
        if len(wanted) >= request.k or len(rows) < count or not near.all():
            break
        count *= 4
    best = wanted[: request.k]
    behind = tiers.provenance(connection, [each.item.id for each in best]) if best else {}
    return [
        Recollection(
            id=each.item.id,
            text=each.item.text,
            score=chosen[each.row],
            tier=each.tier,
            namespace=space.namespace,
            metadata=each.metadata,
            support=each.item.evidence.support,
            provenance=behind.get(each.item.id, ()),
            pinned=isinstance(each.item, ColdMemory) and each.item.pinned,
            free_energy=each.judged,
            why=_why(each, chosen[each.row], request),
        )
        for each in best
    ]


def _matching(connection: sqlite3.Connection, space: Space, condition: Filter) -> Rows:
    """The rows whose metadata match."""
    known: dict[str, bool] = {}
    rows = []
    for row, metadata in connection.execute(
        "SELECT row, metadata FROM tiers WHERE namespace = ? AND live = 1", (space.id,)
    ):
        if metadata not in known:
            known[metadata] = matches(json.loads(metadata), condition)
        if known[metadata]:
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def _is_wanted(found: TierRow, request: RecallRequest) -> bool:
    return found.tier in request.tiers and found.item.id not in request.exclude


def _why(found: TierRow, score: float, request: RecallRequest) -> str:
    item, evidence, judged = found.item, found.item.evidence, found.judged
    where = "said recently"
    if isinstance(item, ColdMemory):
        where = "kept, pinned" if item.pinned else "kept"
    why = (
        f"cosine {score:.3f} >= {request.threshold:g}; {where} ({found.tier} tier), "
        f"support {evidence.support}, recalled {evidence.hits} times before"
    )
    if evidence.unlike is not None:
        why += f"; not merged with a near one, from which it differs in a {evidence.unlike}"
    if judged is not None:
        terms = f"F {judged.total:.3f}: E {judged.energy:.3f}, S {judged.entropy:.3f}"
        why += f"; last judged at {terms}"
    return why
