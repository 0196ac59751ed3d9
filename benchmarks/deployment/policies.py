"""Traffics on which rules for the number of queries are compared, each against the optimum."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.deployment.expectations import EXPECTATIONS, Line, optimum, replayed, runs_of
from benchmarks.deployment.month import (
    PAPER_POINTS,
    STEEP_POINTS,
    TRAFFIC,
    cached,
    month_costs,
    month_of,
)
from ecs_plugins.frontier import EfficiencyFrontier
from ecs_plugins.frontier.rental import RentalPlan, Slope, plan_rental

_LIFE = 300.0
_TARGET = 0.78
Ratios = Mapping[str, Sequence[float]]


REUSE_KINDS = ("constant", "geometric", "zipf", "bursty", "mixed")
"""Distributions of `reuse_counts`."""


def reuse_counts(kind: str, contexts: int, *, mean: float = 10.0, seed: int = 42) -> list[int]:
    """Queries of each of ``contexts`` contexts, made up.

    ``constant``: all alike. ``geometric``: each query is the last with the same probability.
    ``zipf``: most contexts once, few very often (exponent 1.6, at most 5,000; the mean is what
    that gives). ``bursty``: nine in ten once or twice, the others about ten times the mean.
    ``mixed``: a quarter of the contexts of each of these, in random order.
    """
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


def months(contexts: int) -> Ratios:
    """Return the cost over the optimum of each rule in 20 months, through real routers."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for points in (PAPER_POINTS, STEEP_POINTS):
        for frontier in (EfficiencyFrontier(points), cached(points)):
            for kind in TRAFFIC:
                costs = dict(month_costs(frontier, _TARGET, month_of(kind, contexts)))
                best = costs.pop("offline optimum")
                for name, cost in costs.items():
                    if not name.startswith("always"):
                        ratios[name].append(cost / best)
    return ratios


def drawn_games(games: int, *, seed: int = 123) -> Ratios:
    """Return the same for strategies, reuse and gaps that are drawn at random."""
    rng = np.random.default_rng(seed)
    ratios: dict[str, list[float]] = defaultdict(list)
    for game in range(games):
        lines = _drawn_lines(rng)
        queries = list(_drawn_queries(rng, REUSE_KINDS[game % len(REUSE_KINDS)]))
        times: dict[int, list[float]] = defaultdict(list)
        for time, context in queries:
            times[context].append(time)
        best = sum(optimum(lines, runs_of(own, _LIFE)) for own in times.values())
        for name, expected in EXPECTATIONS.items():
            ratios[name].append(replayed(lines, queries, _LIFE, expected()) / best)
        if not any(line.write for line in lines):
            slopes = tuple((line.prepare, line.rate) for line in lines)
            plan = plan_rental(slopes)
            paid = sum(_rented(plan, slopes, len(own)) for own in times.values())
            ratios["rent or buy, where nothing lapses"].append(paid / best)
    return ratios


def _rented(plan: RentalPlan, slopes: Sequence[Slope], queries: int) -> float:
    """Return the cost of a plan after a number of queries."""
    cost = 0.0
    for start, end, choice in zip(
        plan.starts, [*plan.starts[1:], math.inf], plan.choices, strict=True
    ):
        if start <= queries:
            price, rate = slopes[choice]
            cost += price + rate * (min(end, queries + 1) - start)
    return cost


def _drawn_lines(rng: np.random.Generator) -> list[Line]:
    base = 10 ** rng.uniform(2.5, 4.3)
    lines = [Line(0.0, 0.0, base)]
    for _ in range(int(rng.integers(1, 4))):
        rate = base * rng.uniform(0.03, 0.8)
        prepare = base * 10 ** rng.uniform(-0.5, 1.5) if rng.random() < 0.7 else 0.0
        write = rate * rng.uniform(0.5, 1.1) if rng.random() < 0.4 else 0.0
        lines.append(Line(prepare, write, rate))
    return lines


def _drawn_queries(rng: np.random.Generator, kind: str) -> Iterator[tuple[float, int]]:
    mean = float(rng.choice([3, 10, 40]))
    spread = float(rng.choice([60.0, 3600.0, 86_400.0]))
    queries: list[tuple[float, int]] = []
    for context, count in enumerate(
        reuse_counts(kind, 200, mean=mean, seed=int(rng.integers(10**9)))
    ):
        first = rng.uniform(0, 30 * 86_400)
        gaps = rng.exponential(spread, min(count, 500))
        queries += [(float(time), context) for time in first + np.cumsum(gaps)]
    yield from sorted(queries)


def summary(ratios: Ratios) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, mean, maximum, and the difference to the one-line rule with its interval."""
    base = np.array(ratios["as many more as have come"])
    for name, own in ratios.items():
        values = np.array(own)
        told = "-"
        if len(values) == len(base) and name != "as many more as have come":
            less = base - values
            half = 1.96 * less.std(ddof=1) / math.sqrt(len(less))
            told = f"{less.mean():+.3f} [{less.mean() - half:+.3f}, {less.mean() + half:+.3f}]"
        yield name, f"{values.mean():.3f}", f"{values.max():.3f}", told
