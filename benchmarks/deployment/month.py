"""A month of made-up traffic through a real `Router` and its ledger, query by query.

The clock is that of the traffic, so contexts end, expire and are forgotten as in a deployment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier import (
    EfficiencyFrontier,
    ReuseLedger,
    Router,
    RouterConfig,
    StrategyPoint,
)
from ecs_plugins.frontier.routing import OnlinePolicy

DAY = 86_400.0
DAYS = 30
TRAFFIC = ("steady", "bursty", "one-shot", "drifting")

PAPER_POINTS = (
    StrategyPoint("full_context", {}, 0.82, 0, 1308),
    StrategyPoint("tfidf_query", {"depth": 12}, 0.78, 0, 566),
    StrategyPoint("memory_compression", {"ratio": 0.3}, 0.78, 1500, 409),
)
"""The shape of the paper's operating points on HotpotQA; stage 1 is made up."""


def month_of(kind: str, contexts: int, *, seed: int = 42) -> list[tuple[float, int]]:
    """(Unix time, context) of every query, in order.

    ``steady``: each context is asked about 40 times over 10 days from some day on. ``bursty``:
    nine in ten are asked once or twice, the others 30 to 150 times within an hour. ``one-shot``:
    each once. ``drifting``: steady contexts in the first half, one-shot ones in the second.

    Raises:
        InvalidInputError: An unknown kind, or no context.
    """
    if kind not in TRAFFIC or contexts < 1:
        raise InvalidInputError(
            f"traffic must be one of {', '.join(TRAFFIC)}, of 1 context or more"
        )
    rng = np.random.default_rng(seed)
    times: list[tuple[float, int]] = []
    for context in range(contexts):
        late = kind == "drifting" and context % 2 == 1
        count, lasts, first = 1, 0.0, rng.uniform(0, DAYS)
        if kind == "steady" or (kind == "drifting" and not late):
            last_day = DAYS - 10 if kind == "steady" else DAYS / 2 - 10
            count, lasts, first = 1 + int(rng.poisson(39)), 10.0, rng.uniform(0, last_day)
        elif late:
            first = rng.uniform(DAYS / 2, DAYS)
        elif kind == "bursty":
            lasts = 1 / 24
            count = int(rng.integers(1, 3) if rng.random() < 0.9 else rng.integers(30, 151))
        days = first + rng.uniform(0, lasts, count)
        times += [(float(day) * DAY, context) for day in days]
    return sorted(times)


def month_costs(
    frontier: EfficiencyFrontier, target_f1: float, queries: list[tuple[float, int]]
) -> Mapping[str, float]:
    """Total cost of the optimum, of the routers and of always each strategy that is able."""
    counts = Counter(context for _, context in queries)
    able = frontier.reaching(target_f1)
    costs = {
        "offline optimum": sum(
            count * frontier.decide(reuse=count, target_f1=target_f1).effective
            for count in counts.values()
        ),
        "router": _routed(frontier, target_f1, queries, None),
        "router, deterministic": _routed(frontier, target_f1, queries, "deterministic"),
        "router, randomised": _routed(frontier, target_f1, queries, "randomised"),
    }
    for strategy in dict.fromkeys(point.strategy for point in able):
        totals = (
            len(counts) * point.stage1 + len(queries) * point.stage2
            for point in able
            if point.strategy == strategy
        )
        costs[f"always {strategy}"] = min(totals)
    return costs


def _routed(
    frontier: EfficiencyFrontier,
    target_f1: float,
    queries: list[tuple[float, int]],
    policy: OnlinePolicy | None,
) -> float:
    clock, total = [0.0], 0.0
    config = RouterConfig(target_f1=target_f1, policy=policy)
    with ReuseLedger(":memory:", clock=lambda: clock[0]) as ledger:
        router = Router(frontier, config, ledger=ledger)
        for clock[0], context in queries:
            name = f"context {context}"
            decision = router.route(context_id=name)
            total += decision.stage1 + decision.stage2
            if decision.stage1:
                ledger.mark_prepared(name, decision.point.key, decision.stage1)
    return total
