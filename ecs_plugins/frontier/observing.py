"""Learning from what happens: what was observed beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import PointKey, StrategyPoint, Usage, config_json
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.intervals import FEW_QUESTIONS, Z95, Interval, wilson
from ecs_plugins.frontier.ledger import Ledger, Observed
from ecs_plugins.tokens import Stage

_ALARM_ERRORS = 3.0
_NOTHING = Observed(0, 0.0, 0.0)


def key_of(decision: RoutingDecision | Mapping[str, Any]) -> PointKey:
    """The key of what was chosen; the decision may be its summary.

    Raises:
        InvalidInputError: It is neither.
    """
    if isinstance(decision, RoutingDecision):
        return decision.point.key
    if not isinstance(decision, Mapping) or not {"strategy", "config"} <= decision.keys():
        raise InvalidInputError("a decision as a mapping has a strategy and a config")
    config = config_json(decision["config"])
    return str(decision["strategy"]), config


def drift_alarms(frontier: EfficiencyFrontier, ledger: Ledger) -> list[str]:
    """Where scores or costs have left what was measured; see `Router.drift`."""
    alarms = []
    scores = ledger.observed("score")
    costs = ledger.observed("cost")
    for point in frontier.routable:
        n, mean, error = scores.get(point.key, _NOTHING)
        if n < FEW_QUESTIONS:
            continue
        interval = frontier.f1_interval(point)
        if _is_away(mean - point.f1, error, interval):
            text = f"F1 {mean:.3f} in {n} queries, measured {point.f1:.3f}"
            alarms.append(_alarm(point, text))
    for point in frontier.routable:
        n, mean, error = costs.get(point.key, _NOTHING)
        if n < FEW_QUESTIONS:
            continue
        interval = frontier.cost_interval(point)
        if _is_away(mean - 1.0, error, interval):
            text = f"cost over the forecast {mean:.3f} in {n} queries, measured 1.000"
            alarms.append(_alarm(point, text))
    return alarms


def _alarm(point: StrategyPoint, what: str) -> str:
    return f"{point.label}: {what}; calibrate again"


def _is_away(difference: float, error: float, measured: Interval) -> bool:
    """Whether a difference is more than three times the errors of both sides."""
    own = (measured.high - measured.low) / (2 * Z95)
    # What floats differ by is no drift.
    least = 1e-9
    errors = _ALARM_ERRORS * math.hypot(error, own)
    return abs(difference) > max(least, errors)


def cautious_frontier(
    frontier: EfficiencyFrontier, observed: Mapping[PointKey, Observed]
) -> EfficiencyFrontier:
    """The frontier with the lower end of its interval as the F1 of every point.

    Scores that were ``observed`` narrow it.
    """
    lower = []
    for point in frontier.points:
        n, mean, _ = observed.get(point.key, _NOTHING)
        interval = frontier.f1_interval(point)
        if n:
            questions = point.n + n
            pooled = (point.f1 * point.n + mean * n) / questions
            interval = wilson(replace(point, f1=pooled, n=questions))
        careful = replace(point, f1=interval.low)
        lower.append(careful)
    return frontier.with_points(lower)


def of_points(
    frontier: EfficiencyFrontier, observed: Mapping[PointKey, Observed]
) -> dict[PointKey, Observed]:
    """What was observed of the points of a frontier, as others may be in the ledger too."""
    keys = {point.key for point in frontier.points}
    return {key: seen for key, seen in observed.items() if key in keys}


def pooled_frontier(
    frontier: EfficiencyFrontier,
    scores: Mapping[PointKey, Observed],
    costs: Mapping[PointKey, Observed],
) -> EfficiencyFrontier:
    """The frontier with what was observed pooled with what was measured, without its rows."""
    points = []
    for point in frontier.points:
        pooled = _with_scores(point, scores.get(point.key, _NOTHING))
        ratios, mean, _ = costs.get(point.key, _NOTHING)
        if ratios:
            # As many questions as were measured have cost what was forecast.
            factor = (point.n + ratios * mean) / (point.n + ratios)
            pooled = replace(pooled, stage2=point.stage2 * factor, usage=_scaled(point, factor))
        points.append(pooled)
    return frontier.with_points(points, measurements=None)


def _with_scores(point: StrategyPoint, scores: Observed) -> StrategyPoint:
    n, mean, error = scores
    if not n:
        return point
    questions = point.n + n
    total = point.f1 * point.n + mean * n
    # The variance of a pooled mean, of two that are independent.
    spread = math.hypot(point.f1_se * point.n, error * n)
    f1 = min(1.0, total / questions)
    return replace(point, f1=f1, f1_se=spread / questions, n=questions, em=None)


def _scaled(point: StrategyPoint, factor: float) -> Usage | None:
    """The usage of a point whose queries cost a factor more."""
    usage = point.usage
    if usage is None:
        return None
    tokens = dict(usage.tokens)
    for account in tokens:
        stage, _ = account
        if stage == Stage.QUERY:
            tokens[account] *= factor
    return replace(usage, tokens=tokens, query_seconds=usage.query_seconds * factor)
