"""Recall: items that are evidence for the answer to a query, best first, each with its reason.

The mean of the cosine and of the query coverage (`ecs_plugins.ranking.coverage`) orders the items;
what the question meets among them makes of it the probability that an item is evidence for the
answer (`ecs_plugins.memory.relevance`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from ecs_plugins.common.text import as_reply, asks_only, terms
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.records import Memory
from ecs_plugins.memory.relevance import DEFAULT, QueryReading, Scale
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.derivation import alive
from ecs_plugins.memory.store.memory_store import MemoryStore, erasures_of
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.outdated import outdating_ids
from ecs_plugins.memory.store.queries import Access
from ecs_plugins.memory.store.seam import Candidates, JudgedRows, Rows, Score, SpaceIndex, judge
from ecs_plugins.memory.store.tiers import Origin, TierRow, memory_of, origins_of_live
from ecs_plugins.memory.types import ColdMemory, Namespace, Tier, Vector
from ecs_plugins.storage.base import Connection


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """Request of a recall in one namespace; see `EntropicMemory.recall`.

    Attributes:
        question: Query text for the fitted score; None if the cosine alone scores, as in the paper.
    """

    query: str
    question: QueryReading | None
    vector: Vector
    k: int
    threshold: float
    tiers: tuple[Tier, ...]
    condition: Filter | None
    now: float  # what has expired by then is not recalled
    at: float | None = None
    scale: Scale = DEFAULT
    hides_outdated: bool = False


class Recalled(NamedTuple):
    """An item with its score and its origin."""

    stored: TierRow
    score: Score
    origin: Origin
    outdated_by: str | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads candidates of one recall until enough of them are wanted."""

    store: MemoryStore
    connection: Connection
    space: Space
    request: RecallRequest

    def best(self, scored: JudgedRows) -> list[Recalled]:
        """Return the best ``k`` candidates that are wanted, best first."""
        wanted: list[Recalled] = []
        k = self.request.k
        start, stop = 0, k
        while start < len(scored) and len(wanted) < k:
            wanted += self._wanted(scored.between(start, stop))
            start, stop = stop, 4 * stop
        return wanted[:k]

    def _wanted(self, scored: Sequence[Score]) -> list[Recalled]:
        """Return the candidates that are searched and were said in time, best first."""
        stored = self._read([each.row for each in scored])
        origins = origins_of_live(self.connection, [each.item for each in stored.values()])
        request = self.request
        newer = outdating_ids(self.connection, origins, request.now, request.at)
        wanted = []
        for score in scored:
            if score.row in stored and self._asserts(stored[score.row].item.text):
                row = stored[score.row]
                name = row.item.id
                recalled = Recalled(row, score, origins[name], newer.get(name))
                if self._was_said(recalled.origin) and not self._is_hidden(recalled):
                    wanted.append(recalled)
        return wanted

    def _asserts(self, text: str) -> bool:
        """Return False for a text that only asks, or only repeats the present question."""
        question = self.request.question
        if question is None:
            return True
        if asks_only(text):
            return False
        return not question.asks or not question.words.issuperset(terms(text))

    def _was_said(self, origin: Origin) -> bool:
        """Return True if an item was said by the time asked for, or nobody knows when it was."""
        at = self.request.at
        return at is None or origin.since is None or origin.since <= at

    def _is_hidden(self, recalled: Recalled) -> bool:
        return self.request.hides_outdated and recalled.outdated_by is not None

    def _read(self, rows: Sequence[int]) -> dict[int, TierRow]:
        """Return the rows that are in a searched tier and not expired."""
        request = self.request
        stored = tiers.by_rows(self.connection, self.space.id, rows, among=request.tiers)
        left = alive(self.connection, stored.values(), request.now, self.store)
        return {each.row: each for each in left}


CANDIDATES = 64
"""Items that are looked at, of the nearest ones and of those that cover most of the query."""
SHAPED = 40
"""The best recollections that a second stage orders."""


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
        """Return the accepted passages by index, best first; ``scores`` are of the first stage."""


def recall(
    store: MemoryStore,
    namespaces: Sequence[Namespace],
    request: RecallRequest,
    *,
    record: bool,
    shaper: Shaper | None = None,
) -> list[Memory]:
    """Return the best items of several namespaces, best first; ``record`` counts them as hits."""
    looked_for = request
    if shaper is not None:
        looked_for = replace(request, k=max(request.k, SHAPED))
    found: list[tuple[float, Memory]] = []
    steps: dict[Namespace, int] = {}
    erasures = 0
    for namespace in dict.fromkeys(namespaces):
        with store.reading(namespace) as (connection, space):
            if space is None or not space.items:
                continue
            best = _best(store, connection, space, looked_for)
            found += [(each.score.fit, _recollection(each, space, request)) for each in best]
            steps[namespace] = space.step
            if record:
                erasures = erasures_of(connection)
    found.sort(key=itemgetter(0), reverse=True)
    memories = [memory for _, memory in found]
    if shaper is not None:
        memories = _shaped(memories[: looked_for.k], request.query, shaper)
    memories = _newer_first(memories[: request.k])
    if record and not store.database.read_only:
        _note_hits(store, memories, steps, request, erasures)
    return memories


def _newer_first(best: list[Memory]) -> list[Memory]:
    """Return memories with each outdated one after the one that outdates it."""
    ordered: list[Memory] = []
    waiting: dict[str, list[Memory]] = {}
    sources = {source for each in best for source in each.provenance}
    for each in best:
        newer = each.outdated_by
        if newer is not None and newer in sources and not _is_there(newer, ordered):
            waiting.setdefault(newer, []).append(each)
            continue
        follow = [each]
        while follow:
            placed = follow.pop(0)
            ordered.append(placed)
            for source in placed.provenance:
                follow += waiting.pop(source, [])
    return ordered + [each for left in waiting.values() for each in left]


def _is_there(message: str, memories: Sequence[Memory]) -> bool:
    return any(message in each.provenance for each in memories)


def _note_hits(
    store: MemoryStore,
    best: Sequence[Memory],
    steps: Mapping[Namespace, int],
    request: RecallRequest,
    erasures: int,
) -> None:
    """Note a recall in the namespaces that were looked in, at their steps."""
    for namespace, step in steps.items():
        found = [each for each in best if each.namespace == namespace]
        items = {each.id: each.score for each in found}
        access = Access(step, time.time(), request.vector, items, erasures)
        store.pending.note(namespace, access)


def _shaped(best: list[Memory], query: str, shaper: Shaper) -> list[Memory]:
    """Return the memories that a second stage accepts, in its order."""
    if not best:
        return []
    texts = [as_reply(each.text, each.asked) for each in best]
    sums = [each.similarity + each.coverage for each in best]
    judged = shaper.shape(query, texts, scores=sums)
    return [best[verdict.index] for verdict in judged.accepted]


def _recollection(recalled: Recalled, space: Space, request: RecallRequest) -> Memory:
    score = recalled.score
    return memory_of(
        recalled.stored,
        space.namespace,
        recalled.origin,
        recalled.outdated_by,
        score=score.score,
        similarity=score.similarity,
        coverage=score.coverage,
        why=_why(recalled, request),
    )


def _best(
    store: MemoryStore, connection: Connection, space: Space, request: RecallRequest
) -> list[Recalled]:
    """Return the best ``k`` items of a namespace at or above the threshold, best first.

    Candidates are the nearest items and those that cover most of the query, each scored by both.
    What has expired or is in the other tier takes places among them, and an item that
    is neither may be good by both: more are looked at until nothing else can be among the best.
    """
    opened = store.indexes.current(connection, space)
    allowed: Rows | None = None
    items = space.items
    if request.condition is not None:
        allowed = _matching(store, connection, space, request.condition)
        items = len(allowed)
    count = request.k if request.question is None else max(request.k, CANDIDATES)
    reader = Reader(store, connection, space, request)
    while True:
        parts = None
        if request.question is not None:
            content = request.question.content
            parts = store.near_parts(connection, space, content, request.vector, count, allowed)
        scored = _scored(opened, request, count, allowed, items, parts)
        best = reader.best(scored)
        is_enough = len(best) == request.k and best[-1].score.fit >= scored.rest
        if is_enough or scored.rest_score < request.threshold:
            return best
        count *= 4


def _scored(
    opened: SpaceIndex,
    request: RecallRequest,
    count: int,
    allowed: Rows | None,
    items: int,
    parts: Candidates | None,
) -> JudgedRows:
    """Return the candidates with a score at or above the threshold, best first.

    Args:
        opened: The index.
        request: The recall.
        count: How many candidates of each kind; of ``allowed`` rows, all are candidates.
        allowed: The rows that a filter lets pass; None is all.
        items: How many rows there are, or are allowed.
        parts: Of long texts; see `judge`.
    """
    if request.question is None:
        rows, near = opened.nearest(request.vector, count, allowed=allowed)
        cosines = near.astype(np.float64)
        rest = float(near[-1]) if len(near) == count else -math.inf
        nothing = np.zeros(len(rows))
        judged = JudgedRows(rows, cosines, nothing, cosines, cosines, rest, rest)
    else:
        judged = judge(
            opened,
            request.question,
            request.vector,
            request.scale,
            count=count,
            allowed=allowed,
            items=items,
            parts=parts,
        )
    return judged.at_least(request.threshold)


def _matching(store: MemoryStore, connection: Connection, space: Space, condition: Filter) -> Rows:
    """Return the rows whose metadata match; SQL first discards rows that cannot match."""
    needed, values = store.indexes.needed(space, condition)
    sql = f"SELECT row, metadata FROM tiers WHERE namespace = ? AND live = 1{needed}"
    passing: dict[str, bool] = {}
    rows = []
    for row, metadata in connection.execute(sql, (space.id, *values)):
        if metadata not in passing:
            passing[metadata] = matches(json.loads(metadata), condition)
        if passing[metadata]:
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def _why(recalled: Recalled, request: RecallRequest) -> str:
    stored = recalled.stored
    score = recalled.score
    item = stored.item
    evidence = item.evidence
    how = f"cosine {score.similarity:.3f} >= {request.threshold:g}"
    if request.question is not None:
        how = (
            f"score {score.score:.3f} >= {request.threshold:g}, of cosine {score.similarity:.3f} "
            f"and {score.coverage:.0%} of the words asked for"
        )
    where = "said recently (hot tier)"
    if isinstance(item, ColdMemory):
        where = "kept, pinned (cold tier)" if item.pinned else "kept (cold tier)"
    why = [f"{how}; {where}, support {evidence.support}, recalled {evidence.hits} times before"]
    if recalled.outdated_by is not None:
        why.append(f"outdated by {recalled.outdated_by}")
    if evidence.unlike is not None:
        why.append(f"not merged with a near one, from which it differs in a {evidence.unlike}")
    judged = stored.judged
    if judged is not None:
        terms = f"E {judged.energy:.3f}, S {judged.entropy:.3f}"
        why.append(f"last judged at F {judged.total:.3f}: {terms}")
    return "; ".join(why)
