"""Part 3: the cheapest way for a question asked once, ten times or a hundred times.

Part 1 measured the ways: the share of answers in the sent passages (the F1 of a perfect reader),
the tokens paid once (embedding an index, reading the passages) and the tokens paid per question.
The router gets a target and decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ecs_plugins.frontier import EfficiencyFrontier, StrategyPoint
from examples.demo.context import Demo, table
from examples.demo.passages import DEPTHS, ECS, Ways

REUSES = (1, 10, 100, 1000)
SHARE = 0.9
"""Target, as a share of the best F1 of any way but the full context."""
FULL = "full_context"
INDEXED = ("embeddings", "both (convex)")
"""Methods whose stage 1 is the embedding of every passage."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Decision of the router for one N, and the cost of the full context."""

    reuse: int
    label: str
    f1: float
    cost: float
    full: float


def run(demo: Demo, ways: Ways) -> None:
    """Build the frontier from the figures of part 1, and decide for each N."""
    frontier = EfficiencyFrontier(points(ways, demo.handbook.passages))
    reached = [point.f1 for point in frontier.points if point.strategy != FULL]
    target = SHARE * max(reached)
    demo.say(
        "The same passages may be asked about once or a thousand times. What is paid once is "
        f"shared by all. Target: {target:.2f} of the answers. Tokens that are read on this "
        "machine count like those of the answering model.\n"
    )
    chosen = [decided(frontier, reuse, target) for reuse in REUSES]
    shown = table(["questions (N)", "the router chooses"], ["answers", "tokens each", "everything"])
    for item in chosen:
        numbers = (f"{item.f1:.2f}", f"{item.cost:,.0f}", f"{item.full:,.0f}")
        shown.add_row(f"{item.reuse:,}", item.label, *numbers)
    demo.console.print(shown)
    conclusion = concluded(chosen)
    demo.say(conclusion)
    free = EfficiencyFrontier(points(ways, demo.handbook.passages, price=0.0))
    item = decided(free, 1, target)
    demo.say(
        f"Where tokens that are read on this machine cost nothing, {item.label} is the cheapest "
        f"at every N: {item.cost:,.0f} tokens each, {item.f1:.2f} of the answers."
    )
    demo.results["router"] = {
        "target": target,
        "chosen": {str(item.reuse): item.label for item in chosen},
        "cost": {str(item.reuse): item.cost for item in chosen},
        "free": item.label,
        "conclusion": conclusion,
    }


def points(ways: Ways, passages: Sequence[str], price: float = 1.0) -> list[StrategyPoint]:
    """Return a point for every method at every depth and for the full context.

    Args:
        ways: What was measured.
        passages: That they choose from.
        price: Of a token that is read on this machine, in tokens of the answering model.
    """
    everything = sum(ways.tokens)
    found = [StrategyPoint(FULL, {}, f1=1.0, stage1=0, stage2=everything)]
    for method in ways.orders:
        for depth in DEPTHS:
            once, each = 0.0, ways.sent(method, depth)
            if method in INDEXED:
                once = price * everything
            elif method == ECS:
                once = price * ways.read
                each += price * ways.scored
            f1 = fmean(ways.kept(method, depth, passages))
            config = {"depth": depth}
            found.append(StrategyPoint(method, config, f1=f1, stage1=once, stage2=each))
    return found


def decided(frontier: EfficiencyFrontier, reuse: int, target: float) -> Chosen:
    """Return the cheapest way that reaches the target, for N questions."""
    decision = frontier.decide(target_f1=target, reuse=reuse)
    full = next(point for point in frontier.points if point.strategy == FULL)
    cost = decision.stage2 + decision.stage1 / reuse
    return Chosen(reuse, decision.label, decision.f1, cost, full.stage2)


def concluded(chosen: Sequence[Chosen]) -> str:
    """Return the conclusion: changes of the choice and savings."""
    labels = list(dict.fromkeys(item.label for item in chosen))
    last = chosen[-1]
    change = f"It changes with N: {' -> '.join(labels)}."
    if len(labels) == 1:
        change = f"N does not matter here: {labels[0]} is the cheapest at every N."
    return f"{change} At N = {last.reuse:,} it saves {1 - last.cost / last.full:.0%} of the tokens."
