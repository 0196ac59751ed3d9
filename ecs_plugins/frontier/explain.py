"""Reasons in words: why this strategy, and why not each of the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ecs_plugins.frontier.cost import efficiency_score, exchange_rate, weight_crossover
from ecs_plugins.frontier.decision import Objective, RoutingDecision
from ecs_plugins.frontier.points import StrategyPoint

if TYPE_CHECKING:
    from ecs_plugins.frontier.envelope import EfficiencyFrontier


def amount(value: float, unit: str) -> str:
    """A cost with its unit: whole tokens, three significant digits of anything else."""
    return f"{value:,.0f} {unit}" if unit == "tokens" else f"{value:.3g} {unit}"


def percent(change: float) -> str:
    """A relative change without its sign."""
    return f"{abs(change):.0%}" if abs(change) >= 0.005 else "under 1%"


def asked(decision: RoutingDecision) -> str:
    """What was asked for, in words."""
    if decision.objective == Objective.TARGET_F1:
        return f"the cheapest with F1 >= {decision.value:.3f}"
    if decision.objective == Objective.BUDGET:
        return f"the best F1 within {amount(decision.value, decision.unit)} per query"
    rate = exchange_rate(decision.value)
    worth = "any cost" if math.isinf(rate) else f"{rate:.1%} more cost"
    return f"the best score at w = {decision.value:g} (0.01 more F1 is worth {worth})"


def explain(decision: RoutingDecision) -> str:
    """The decision in a few lines."""
    unit = decision.unit
    if decision.sunk:
        split = f"{amount(decision.stage2, unit)}; the context is already prepared"
    else:
        split = f"{amount(decision.stage2, unit)} + {amount(decision.stage1, unit)}"
        split += f" / {decision.reuse:g}"
    interval = decision.f1_interval
    spread = f" {interval}" if interval.high > interval.low else " (no interval: means only)"
    lines = [
        f"{decision.label}",
        f"  asked for   {asked(decision)}, N = {decision.reuse:g}",
        f"  expected F1 {decision.f1:.3f}{spread}",
        f"  cost        {amount(decision.effective, unit)} per query ({split})",
    ]
    lines += [f"  note        {decision.note}"] if decision.note else []
    lines += [f"  tie         {point.label}: not measurably different" for point in decision.ties()]
    return "\n".join(lines)


def ties(frontier: EfficiencyFrontier, decision: RoutingDecision) -> tuple[StrategyPoint, ...]:
    """Points that the measurements cannot tell from a decision; see `RoutingDecision.ties`."""
    if frontier.measurements is None:
        return ()
    chosen = frontier.row(decision.point)
    sunk = [row for row, point in enumerate(frontier.points) if point.key in decision.prepared]
    out = []
    for point in frontier.routable:
        row = frontier.row(point)
        cost = point.effective(decision.reuse, sunk=row in sunk)
        if row == chosen:
            continue
        if decision.objective == Objective.WEIGHT:
            interval = frontier.bootstrap.score_difference(
                chosen, row, decision.reuse, decision.value, prepared=sunk
            )
        elif cost <= decision.effective:
            interval = frontier.bootstrap.f1_difference(chosen, row)
        else:
            continue
        if 0.0 in interval:
            out.append(point)
    return tuple(out)


def why_not(frontier: EfficiencyFrontier, decision: RoutingDecision) -> dict[str, str]:
    """Label of every other point -> why it was not chosen."""
    return {
        point.label: _reason(frontier, decision, point)
        for point in frontier.points
        if point.key != decision.point.key
    }


def _reason(frontier: EfficiencyFrontier, decision: RoutingDecision, point: StrategyPoint) -> str:
    if not point.routable:
        return "measured as an upper bound, never routed"
    cost = point.effective(decision.reuse, sunk=point.key in decision.prepared)
    if decision.objective == Objective.TARGET_F1:
        if point.f1 < decision.value:
            return f"F1 {point.f1:.3f} is below the target {decision.value:.3f}"
        return f"reaches the target, but {_dearer(decision, cost)}"
    if decision.objective == Objective.BUDGET and cost > decision.value:
        return f"{amount(cost, decision.unit)} is above the budget"
    if decision.objective == Objective.BUDGET:
        return f"fits, but its F1 {point.f1:.3f} is not higher than {decision.f1:.3f}"
    return _lower_score(frontier, decision, point, cost)


def _dearer(decision: RoutingDecision, cost: float) -> str:
    rise = cost / decision.effective - 1
    if rise == 0:
        return f"costs the same {amount(cost, decision.unit)} and is not better"
    return f"costs {amount(cost, decision.unit)}, {percent(rise)} more"


def _lower_score(
    frontier: EfficiencyFrontier, decision: RoutingDecision, point: StrategyPoint, cost: float
) -> str:
    rival = frontier.dominator(point, decision.reuse, decision.prepared)
    if rival is not None:
        return f"dominated by {rival.label}: at least as good and no dearer"
    weight = decision.value
    gap = efficiency_score(decision.f1, decision.effective, weight) - efficiency_score(
        point.f1, cost, weight
    )
    text = f"scores {gap:.3g} lower"
    crossing = weight_crossover(decision.f1, decision.effective, point.f1, cost)
    if crossing is not None:
        side = "above" if point.f1 > decision.f1 else "below"
        text += f"; would beat the choice {side} w = {crossing:.3f}"
    return text
