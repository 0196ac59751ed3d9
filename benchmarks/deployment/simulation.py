"""Deployment with mixed reuse: cost of routing and of a fixed strategy.

Arithmetic on measured means, no model is run: each context is asked a given number of times,
and every policy pays stage 1 when it prepares and stage 2 for every query. The offline optimum
knows each count beforehand and is the limit of what any router can reach at this target.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.decision import RouterConfig
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.rental import plan_rental
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.routing import Router


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """Cost of one policy.

    Attributes:
        name: For example ``"always full_context"`` or ``"router"``.
        total: Over all queries.
        per_query: Mean.
        over_optimum: ``total`` over that of the offline optimum.
        reaches_target: Whether its F1 reaches the target; a policy that does not may be cheaper
            than the optimum.
    """

    name: str
    total: float
    per_query: float
    over_optimum: float
    reaches_target: bool


REUSE_KINDS = ("constant", "geometric", "zipf", "bursty", "mixed")
"""Distributions of `reuse_counts`."""


def reuse_counts(kind: str, contexts: int, *, mean: float = 10.0, seed: int = 42) -> list[int]:
    """Queries of each of ``contexts`` contexts, made up.

    ``constant``: all alike. ``geometric``: each query is the last with the same probability.
    ``zipf``: most contexts once, few very often (exponent 1.6, at most 5,000; the mean is what
    that gives). ``bursty``: nine in ten once or twice, the others about ten times the mean.
    ``mixed``: a quarter of the contexts of each of these, in random order.

    Raises:
        InvalidInputError: An unknown kind, or a mean or number of contexts below 1.
    """
    if kind not in REUSE_KINDS or contexts < 1 or mean < 1:
        raise InvalidInputError(
            f"kind must be one of {', '.join(REUSE_KINDS)}, contexts and mean at least 1"
        )
    rng = np.random.default_rng(seed)
    if kind == "mixed":
        shares = [len(range(index, contexts, 4)) for index in range(4)]
        parts = zip(REUSE_KINDS, shares, strict=False)
        mixed = [n for k, own in parts if own for n in reuse_counts(k, own, mean=mean, seed=seed)]
        return [mixed[index] for index in rng.permutation(contexts)]
    if kind == "constant":
        drawn = np.full(contexts, round(mean))
    elif kind == "geometric":
        drawn = rng.geometric(1 / mean, contexts)
    elif kind == "zipf":
        drawn = np.minimum(rng.zipf(1.6, contexts), 5000)
    else:
        often = rng.integers(math.ceil(5 * mean), math.ceil(15 * mean) + 1, contexts)
        drawn = np.where(rng.random(contexts) < 0.9, rng.integers(1, 3, contexts), often)
    return [int(count) for count in drawn]


def simulate_deployment(
    frontier: EfficiencyFrontier,
    target_f1: float,
    counts: Sequence[int],
) -> tuple[PolicyCost, ...]:
    """Cost of every policy on contexts that are asked ``counts`` times.

    Fixed policies use the cheapest configuration of their strategy that reaches the target at
    the mean count, or the best one if none reaches it.

    Args:
        frontier: What was measured.
        target_f1: What routers must reach.
        counts: Queries of each context, >= 1.

    Returns:
        The offline optimum, the routers, then always each strategy by rising cost.

    Raises:
        InvalidInputError: No context, or a count < 1.
        UnreachableTargetError: Nothing reaches the target.
    """
    if not counts or min(counts) < 1:
        raise InvalidInputError("a deployment needs at least one context, each asked at least once")
    queries = sum(counts)
    mean = queries / len(counts)
    tally = Counter(counts)
    optimum = sum(
        times * count * frontier.decide(reuse=count, target_f1=target_f1).effective
        for count, times in tally.items()
    )
    known = frontier.decide(reuse=mean, target_f1=target_f1).point
    totals = {
        "offline optimum": optimum,
        "router that knows the mean N": len(counts) * known.stage1 + queries * known.stage2,
    }
    totals["router"] = _routed(frontier, target_f1, counts)
    totals["router, rent or buy"] = sum(
        times * _rented(frontier, target_f1, count) for count, times in tally.items()
    )
    rows = [(name, total, True) for name, total in totals.items()]
    fixed = []
    for strategy in dict.fromkeys(point.strategy for point in frontier.routable):
        own = [point for point in frontier.routable if point.strategy == strategy]
        able = [point for point in own if point.f1 >= target_f1]
        point = min(able, key=lambda p: p.effective(mean)) if able else max(own, key=lambda p: p.f1)
        total = len(counts) * point.stage1 + queries * point.stage2
        fixed.append((f"always {point.label}", total, bool(able)))
    rows += sorted(fixed, key=lambda row: row[1])
    return tuple(
        PolicyCost(name, total, total / queries, total / optimum, reaches)
        for name, total, reaches in rows
    )


def _routed(frontier: EfficiencyFrontier, target_f1: float, counts: Sequence[int]) -> float:
    """Return the cost of contexts that a router serves one after another."""
    total = 0.0
    with ReuseLedger(":memory:") as ledger:
        router = Router(frontier, RouterConfig(target_f1=target_f1), ledger=ledger)
        for index, count in enumerate(counts):
            name = f"context {index}"
            for _ in range(count):
                decision = router.route(context_id=name)
                total += decision.stage1 + decision.stage2
                if decision.stage1:
                    ledger.mark_prepared(name, decision.point.key, decision.stage1)
    return total


def _rented(frontier: EfficiencyFrontier, target_f1: float, count: int) -> float:
    """Return the cost of one context by rent or buy."""
    slopes = tuple((point.stage1, point.stage2) for point in frontier.reaching(target_f1))
    return plan_rental(slopes).cost(slopes, count)
