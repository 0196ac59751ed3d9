"""What a recall returns: which of the items near to a query, in which order, and why.

The store offers candidates; here is decided how many of them have to be looked at, which are
returned, and what is said about each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ecs_plugins.memory.filters import Filter
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import Recollection
from ecs_plugins.memory.types import ColdMemory, FreeEnergy, HotItem, Tier, Vector


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


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item near to a query.

    Attributes:
        item: The item, without its vector.
        tier: Where it is.
        score: Cosine to the query.
        metadata: What the messages behind it agree on.
        expires: When it expires; None is never.
        judged: Its free energy when a sleep phase last computed it.
        provenance: Ids of the messages behind it.
    """

    item: HotItem | ColdMemory
    tier: Tier
    score: float
    metadata: Mapping[str, object]
    expires: float | None
    judged: FreeEnergy | None
    provenance: tuple[str, ...]


def recalled(
    request: RecallRequest,
    namespace: Namespace,
    nearest: Callable[[int], tuple[list[Candidate], bool]],
) -> list[Recollection]:
    """Return the best ``k`` items of a namespace at or above the threshold, best first.

    Items that have expired or are excluded, or are in the other tier, take places among the nearest
    ones: more are asked for until enough are left, or there are no more.

    Args:
        request: What is asked.
        namespace: Where.
        nearest: Looks at so many neighbours; returns those at or above the threshold that meet
            condition and tiers, best first, and whether there may be more.
    """
    count = request.k
    while True:
        candidates, more = nearest(count)
        wanted = [each for each in candidates if _is_wanted(each, request)]
        # Of equals, what was said last comes first, whatever order the index finds them in.
        wanted.sort(key=lambda each: (-each.score, -each.item.evidence.last_seen, each.item.id))
        if len(wanted) >= request.k or not more:
            return [_recollection(each, namespace, request) for each in wanted[: request.k]]
        count *= 4


def _is_wanted(candidate: Candidate, request: RecallRequest) -> bool:
    alive = candidate.expires is None or candidate.expires > request.now
    return alive and candidate.item.id not in request.exclude


def _recollection(
    candidate: Candidate, namespace: Namespace, request: RecallRequest
) -> Recollection:
    item = candidate.item
    pinned = isinstance(item, ColdMemory) and item.pinned
    return Recollection(
        id=item.id,
        text=item.text,
        score=candidate.score,
        tier=candidate.tier,
        namespace=namespace,
        metadata=candidate.metadata,
        support=item.evidence.support,
        provenance=candidate.provenance,
        pinned=pinned,
        free_energy=candidate.judged,
        why=_why(candidate, request, pinned),
    )


def _why(candidate: Candidate, request: RecallRequest, pinned: bool) -> str:
    evidence, judged = candidate.item.evidence, candidate.judged
    where = "said recently" if candidate.tier == "hot" else "kept, pinned" if pinned else "kept"
    why = (
        f"cosine {candidate.score:.3f} >= {request.threshold:g}; {where} ({candidate.tier} tier), "
        f"support {evidence.support}, recalled {evidence.hits} times before"
    )
    if evidence.unlike is not None:
        why += f"; not merged with a near one, from which it differs in a {evidence.unlike}"
    if judged is not None:
        terms = f"F {judged.total:.3f}: E {judged.energy:.3f}, S {judged.entropy:.3f}"
        why += f"; last judged at {terms}"
    return why
