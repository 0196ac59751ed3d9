"""Recall: which of the items near to a query are evidence for its answer, in which order, and why.

The mean of the cosine and of the query coverage (`ecs_plugins.ranking.coverage`) orders the items;
a logistic function makes of it the probability that the item is evidence for the answer. Both were
fitted on the development half of LoCoMo, each turn read as the reply that it is, under
all-MiniLM-L6-v2 (`docs/memory.md`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from ecs_plugins.common.text import as_reply
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.records import Recollection
from ecs_plugins.memory.store import claims, tiers
from ecs_plugins.memory.store.derivation import alive
from ecs_plugins.memory.store.memory_store import MemoryStore, erasures_of
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.queries import Access
from ecs_plugins.memory.store.seam import Rows, SpaceIndex
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.types import ColdMemory, Floats, Namespace, Tier, Vector
from ecs_plugins.storage.base import Connection

CANDIDATES = 64
"""Items that are looked at, of the nearest ones and of those that cover most of the query."""
SHAPED = 40
"""The best recollections that a second stage orders."""

_SLOPE, _OFFSET = 18.8, -10.0


class _Judged(Protocol):
    @property
    def index(self) -> int: ...


class _Shaped(Protocol):
    @property
    def accepted(self) -> Sequence[_Judged]: ...


@runtime_checkable
class Shaper(Protocol):
    """Orders texts for a query and may drop some; a `ContextShaper` is one."""

    def shape(self, query: str, passages: Sequence[str], /, *, scores: Sequence[float]) -> _Shaped:
        """What stays of the passages, by their index, the best first; ``scores`` found them."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What is asked of one namespace; see `EntropicMemory.recall`."""

    query: str
    vector: Vector
    k: int
    threshold: float
    tiers: tuple[Tier, ...]
    condition: Filter | None
    now: float  # what has expired by then is not recalled
    exclude: frozenset[str] = frozenset()
    by_cosine: bool = False  # score by the cosine alone (the paper)
    at: float | None = None


def probability(cosine: Floats | float, coverage: Floats | float) -> Floats:
    """That an item is evidence for the answer; the same order as the mean of its arguments.

    >>> float(probability(0.6, 0.5).round(2))
    0.58
    """
    mean = (np.asarray(cosine, dtype=np.float64) + coverage) / 2
    out: Floats = (1.0 / (1.0 + np.exp(-(_SLOPE * mean + _OFFSET)))).round(9)
    return out


class _Score(NamedTuple):
    row: int
    score: float
    similarity: float
    coverage: float


def recall(
    store: MemoryStore,
    namespaces: Sequence[Namespace],
    request: RecallRequest,
    *,
    record: bool,
    shaper: Shaper | None = None,
) -> list[Recollection]:
    """The best items of several namespaces, best first; counted as hits if ``record``."""
    k = request.k
    if shaper is not None:
        request = replace(request, k=max(k, SHAPED))
    found: list[Recollection] = []
    asked: list[tuple[Namespace, int]] = []
    erasures = 0
    for each in dict.fromkeys(namespaces):
        with store.reading(each) as (connection, space):
            if space is not None and space.items:
                found += _recalled(store, connection, space, request)
                asked.append((each, space.step))
                erasures = erasures_of(connection) if record else 0
    found = sorted(found, key=lambda item: -item.score)[: request.k]
    if shaper is not None and found:
        texts = [as_reply(each.text, each.asked) for each in found]
        sums = [each.similarity + each.coverage for each in found]
        judged = shaper.shape(request.query, texts, scores=sums)
        found = [found[verdict.index] for verdict in judged.accepted][:k]
    for each, step in asked if record and not store.database.read_only else ():
        scores = {item.id: item.score for item in found if item.namespace == each}
        store.pending.note(each, Access(step, time.time(), request.vector, scores, erasures))
    return found


def _recalled(
    store: MemoryStore, connection: Connection, space: Space, request: RecallRequest
) -> list[Recollection]:
    """Return the best ``k`` items of a namespace at or above the threshold, best first.

    Candidates are the nearest items and those that cover most of the query, each scored by both.
    What has expired, is excluded, or is in the other tier takes places among them, and an item that
    is neither may be good by both: more are looked at until nothing else can be among the best.
    """
    opened = store.indexes.current(connection, space)
    condition = request.condition
    allowed = None if condition is None else _matching(store, connection, space, condition)
    count = request.k if request.by_cosine else max(request.k, CANDIDATES)
    stored: dict[int, TierRow] = {}
    held: dict[str, claims.Validity] = {}
    while True:
        scored, rest = _scored(opened, request, count, allowed)
        best = _wanted(store, connection, space, request, scored, stored, held)
        enough = len(best) == request.k and best[-1][1].score >= rest
        if enough or rest < request.threshold:
            break
        count *= 4
    return [
        Recollection(
            id=each.item.id,
            text=each.item.text,
            score=score.score,
            tier=each.tier,
            namespace=space.namespace,
            metadata=each.metadata,
            support=each.item.evidence.support,
            provenance=valid.behind,
            pinned=each.is_pinned,
            free_energy=each.judged,
            why=_why(each, score, request),
            similarity=score.similarity,
            coverage=score.coverage,
            asked=each.item.asked,
            valid_from=valid.since,
            valid_until=valid.until,
            superseded_by=valid.by,
        )
        for each, score in best
        for valid in (held[each.item.id],)
    ]


def _scored(
    opened: SpaceIndex, request: RecallRequest, count: int, allowed: Rows | None
) -> tuple[list[_Score], float]:
    """Candidates by falling score, and the score that no other exceeds; minus infinity if none.

    ``count`` is how many of each index; of ``allowed`` rows, all of them are candidates.
    """
    cosines: Floats
    if request.by_cosine:
        rows, near = opened.nearest(request.vector, count, allowed=allowed)
        scores = cosines = near.astype(np.float64)
        coverage = np.zeros(len(rows))
        rest = float(near[-1]) if len(near) == count else -math.inf
    else:
        found = opened.candidates(request.query, request.vector, count, allowed=allowed)
        # Equal vectors must tie, although products in another order may differ in the last bits.
        rows, cosines = found.rows, found.cosines.astype(np.float64).round(6)
        coverage = found.coverage
        scores = probability(cosines, coverage)
        rest = -math.inf if found.rest is None else float(probability(*found.rest))
    best = np.argsort(-scores, kind="stable")[: (scores >= request.threshold).sum()]
    columns = (each[best].tolist() for each in (rows, scores, cosines, coverage))
    return [*map(_Score, *columns)], rest


def _wanted(
    store: MemoryStore,
    connection: Connection,
    space: Space,
    request: RecallRequest,
    scored: Sequence[_Score],
    stored: dict[int, TierRow],
    held: dict[str, claims.Validity],
) -> list[tuple[TierRow, _Score]]:
    """The best ``k`` candidates that are wanted; ``stored`` and ``held`` are what has been read."""
    best: list[tuple[TierRow, _Score]] = []
    start, stop = 0, request.k
    while start < len(scored) and len(best) < request.k:
        while stop < len(scored) and scored[stop].score == scored[stop - 1].score:
            stop += 1
        part = {each.row: each for each in scored[start:stop]}
        unread = [row for row in part if row not in stored]
        stored |= tiers.by_rows(connection, space.id, unread) if unread else {}
        left = [
            each
            for each in (stored[row] for row in part if row in stored)
            if each.tier in request.tiers and each.item.id not in request.exclude
        ]
        if any(each.expires is not None and each.expires <= request.now for each in left):
            left = [*alive(connection, left, request.now, store)]
        held |= claims.validity(connection, [each.item.id for each in left], request.at)
        if not request.by_cosine:
            now = request.at is None
            left = [at for at in left if held[at.item.id].holds or (now and at.is_pinned)]
        # Of equals, what was said last comes first, whatever order the indexes find them in.
        best += sorted(
            ((each, part[each.row]) for each in left),
            key=lambda at: (-at[1].score, -at[0].item.evidence.last_seen, at[0].item.id),
        )
        start, stop = stop, 4 * stop
    return best[: request.k]


def _matching(store: MemoryStore, connection: Connection, space: Space, condition: Filter) -> Rows:
    """The rows whose metadata match; the database leaves out what lacks what they need."""
    known: dict[str, bool] = {}
    rows = []
    needed, values = store.indexes.needed(space, condition)
    sql = f"SELECT row, metadata FROM tiers WHERE namespace = ? AND live = 1{needed}"
    for row, metadata in connection.execute(sql, (space.id, *values)):
        if metadata not in known:
            known[metadata] = matches(json.loads(metadata), condition)
        if known[metadata]:
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def _why(found: TierRow, score: _Score, request: RecallRequest) -> str:
    item, evidence, judged = found.item, found.item.evidence, found.judged
    where = "said recently"
    if isinstance(item, ColdMemory):
        where = "kept, pinned" if item.pinned else "kept"
    how = f"cosine {score.similarity:.3f} >= {request.threshold:g}"
    if not request.by_cosine:
        how = (
            f"score {score.score:.3f} >= {request.threshold:g}, of cosine {score.similarity:.3f} "
            f"and {score.coverage:.0%} of the words asked for"
        )
    why = (
        f"{how}; {where} ({found.tier} tier), "
        f"support {evidence.support}, recalled {evidence.hits} times before"
    )
    if evidence.unlike is not None:
        why += f"; not merged with a near one, from which it differs in a {evidence.unlike}"
    if judged is not None:
        terms = f"F {judged.total:.3f}: E {judged.energy:.3f}, S {judged.entropy:.3f}"
        why += f"; last judged at {terms}"
    return why
