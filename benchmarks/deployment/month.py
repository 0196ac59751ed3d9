"""A month of made-up traffic through a real `Router` and its ledger, query by query.

The clock is that of the traffic, so contexts end, caches lapse, and both expire and are forgotten
as in a deployment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.deployment.expectations import (
    EXPECTATIONS,
    lines_of,
    optimum,
    replayed,
    runs_of,
)
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier import (
    EfficiencyFrontier,
    ReuseLedger,
    Router,
    RouterConfig,
    StrategyPoint,
)
from ecs_plugins.frontier.cost import Usage
from ecs_plugins.frontier.decision import OnlinePolicy
from ecs_plugins.frontier.prices import ModelPrice, PriceVector
from ecs_plugins.frontier.reuse import Preparation
from ecs_plugins.tokens import Role, Stage

DAY = 86_400.0
DAYS = 30
TRAFFIC = ("steady", "bursty", "one-shot", "drifting", "day and night")

PAPER_POINTS = (
    StrategyPoint("full_context", {}, 0.82, 0, 1308),
    StrategyPoint("tfidf_query", {"depth": 12}, 0.78, 0, 566),
    StrategyPoint("memory_compression", {"ratio": 0.3}, 0.78, 1500, 409),
)
"""The shape of the paper's operating points on HotpotQA; stage 1 is made up."""

STEEP_POINTS = (
    StrategyPoint("full_context", {}, 0.82, 0, 12_000),
    StrategyPoint("tfidf_query", {"depth": 12}, 0.78, 0, 4000),
    StrategyPoint("memory_compression", {"ratio": 0.3}, 0.78, 20_000, 300),
)
"""Made up: long contexts whose notes are short."""

_PRICE = ModelPrice(input=1.0, output=1.0, cached_input=0.1, cache_write=1.25, cache_least=1024)


def cached(points: Sequence[StrategyPoint]) -> EfficiencyFrontier:
    """Return the points with a prompt cache for the shared context."""
    priced = []
    for point in points:
        tokens = {(Stage.QUERY, Role.ANSWER_INPUT): point.stage2}
        if point.stage1:
            tokens[Stage.PREPARE, Role.COMPRESS_INPUT] = point.stage1
        shared = 0.95 * point.stage2 if point.strategy != "tfidf_query" else 0.0
        usage = Usage(tokens, shared_input=shared)
        priced.append(StrategyPoint(point.strategy, point.config, point.f1, 0, 1, usage=usage))
    return EfficiencyFrontier(priced).priced(PriceVector(answer=_PRICE))


def month_of(kind: str, contexts: int, *, seed: int = 42) -> list[tuple[float, int]]:
    """(Unix time, context) of every query, in order.

    ``steady``: each context is asked about 40 times over 10 days from some day on. ``bursty``:
    nine in ten are asked once or twice, the others 30 to 150 times within an hour. ``one-shot``:
    each once. ``drifting``: steady contexts in the first half, one-shot ones in the second.
    ``day and night``: about 60 times over 5 days, by day only, several within some minutes.

    Raises:
        InvalidInputError: An unknown kind, or no context.
    """
    if kind not in TRAFFIC or contexts < 1:
        raise InvalidInputError(
            f"traffic must be one of {', '.join(TRAFFIC)}, of 1 context or more"
        )
    rng = np.random.default_rng(seed)
    queries: list[tuple[float, int]] = []
    for context in range(contexts):
        is_late = kind == "drifting" and context % 2 == 1
        queries += [(float(day) * DAY, context) for day in _days(kind, rng, is_late=is_late)]
    return sorted(queries)


def _days(kind: str, rng: np.random.Generator, *, is_late: bool) -> Iterator[float]:
    """When one context is asked, in days."""
    if kind == "day and night":
        yield from _by_day(rng)
        return
    count = 1
    lasts = 0.0
    first = rng.uniform(0, DAYS)
    if kind == "steady" or (kind == "drifting" and not is_late):
        last_day = DAYS - 10 if kind == "steady" else DAYS / 2 - 10
        count = 1 + int(rng.poisson(39))
        lasts = 10.0
        first = rng.uniform(0, last_day)
    elif is_late:
        first = rng.uniform(DAYS / 2, DAYS)
    elif kind == "bursty":
        lasts = 1 / 24
        often = rng.random() >= 0.9
        count = int(rng.integers(30, 151) if often else rng.integers(1, 3))
    yield from first + rng.uniform(0, lasts, count)


def _by_day(rng: np.random.Generator) -> Iterator[float]:
    """Sittings of some minutes, in working hours of five days."""
    first = int(rng.integers(0, DAYS - 5))
    for day in range(first, first + 5):
        for _ in range(int(rng.integers(1, 4))):
            sitting = day + rng.uniform(9, 18) / 24
            minutes = np.cumsum(rng.exponential(2.0, int(rng.integers(2, 10))))
            yield from sitting + minutes / (24 * 60)


def month_costs(
    frontier: EfficiencyFrontier,
    target_f1: float,
    queries: Sequence[tuple[float, int]],
) -> Mapping[str, float]:
    """Return the cost of the optimum, the routers, other rules, and always each able strategy."""
    able = frontier.only([point.label for point in frontier.reaching(target_f1)])
    life = frontier.prices.answer.cache_seconds
    times: dict[int, list[float]] = defaultdict(list)
    for time, context in queries:
        times[context].append(time)
    runs = [runs_of(each, life) for each in times.values()]
    costs = {"offline optimum": sum(optimum(lines_of(able), each) for each in runs)}
    policies: dict[str, OnlinePolicy | None] = {"router": None, "rent or buy": "deterministic"}
    for name, policy in policies.items():
        costs[name] = _routed(frontier, target_f1, queries, policy)
    for name, expected in EXPECTATIONS.items():
        costs[name] = replayed(lines_of(able), queries, life, expected())
    for strategy in dict.fromkeys(point.strategy for point in able.points):
        totals = []
        for point in able.points:
            if point.strategy == strategy:
                alone = able.lapsing.get(point.key, 0.0)
                written = alone * sum(each.total() for each in runs)
                prepared = (point.stage1 - alone) * len(runs)
                totals.append(prepared + written + point.stage2 * len(queries))
        costs[f"always {strategy}"] = min(totals)
    return costs


def _routed(
    frontier: EfficiencyFrontier,
    target_f1: float,
    queries: Sequence[tuple[float, int]],
    policy: OnlinePolicy | None,
) -> float:
    """Return the cost of a router and its ledger."""
    now = [0.0]
    total = 0.0
    config = RouterConfig(target_f1=target_f1, policy=policy)
    with ReuseLedger(":memory:", clock=lambda: now[0]) as ledger:
        router = Router(frontier, config, ledger=ledger)
        for now[0], context in queries:
            name = f"context {context}"
            decision = router.route(context_id=name)
            total += decision.stage1 + decision.stage2
            key = decision.point.key
            if decision.stage1 or key in frontier.lapsing:
                ledger.book(name, {key: Preparation(decision.stage1, 0.0)}, [])
    return total
