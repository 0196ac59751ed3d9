"""What a routed query really cost, in the stages in which it was forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import PointKey, Usage
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.measured import MeasuredPoints
from ecs_plugins.frontier.usage import CacheTokens
from ecs_plugins.tokens import Role, Stage, TokenLedger


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a routed query cost, beside what was expected; a prepared stage 1 is expected as 0.

    ``ledger_error`` says why the ledger could not note what was prepared; empty where it could.
    """

    expected_stage1: float
    expected_stage2: float
    actual_stage1: float
    actual_stage2: float
    unit: str
    ledger_error: str = ""

    @property
    def ratio(self) -> float:
        """Actual over expected stage 2; far from 1, the traffic is not like the calibration."""
        return self.actual_stage2 / self.expected_stage2


def settled(
    decision: RoutingDecision,
    actual: TokenLedger,
    measured: MeasuredPoints,
    cache: CacheTokens,
    seconds: float,
    *,
    whole: bool = False,
) -> Settlement:
    """Compare a run with its forecast.

    The tokens of a ``whole`` run are of both stages and do not say of which: what goes beyond the
    forecast of stage 2 is taken for stage 1, as far as that was forecast.

    What writing to a prompt cache costs beyond reading is forecast in stage 1, so it is booked
    there. Where the entry was taken for alive it was not forecast, and stage 2 shows it.

    Raises:
        InvalidInputError: More cached prompt tokens than prompt tokens, or a negative number.
    """
    read = actual.total(Stage.QUERY, Role.ANSWER_INPUT)
    if min(cache) < 0 or cache.total > read:
        raise InvalidInputError(f"{tuple(cache)} of {read} prompt tokens cannot be cached")
    prices = measured.prices
    if prices.answer.tiers:
        prices = prices.replace(answer=prices.answer.without_tiers(read))
    one, two = prices.stages(Usage(dict(actual), query_seconds=seconds))
    two += prices.answer.cache_extra(*cache)
    entry = measured.lapsing.get(decision.point.key, 0.0)
    if entry and decision.stage1 > 0:
        as_read = CacheTokens(cache.total, 0, 0)
        written = prices.answer.cache_extra(*cache) - prices.answer.cache_extra(*as_read)
        one += written
        two -= written
    if whole:
        prepared = min(max(0.0, two - decision.stage2), decision.stage1)
        one += prepared
        two -= prepared
    return Settlement(decision.stage1, decision.stage2, one, two, measured.unit)


def prepared_by(decision: RoutingDecision, actual: TokenLedger) -> dict[PointKey, TokenLedger]:
    """What the tokens of a run say was prepared: the choice, if some are of stage 1."""
    return {decision.point.key: actual} if actual.total(Stage.PREPARE) > 0 else {}


def newly_prepared(
    decision: RoutingDecision,
    prepared: Mapping[PointKey, TokenLedger],
    measured: MeasuredPoints,
    *,
    cached: bool,
) -> dict[PointKey, float]:
    """What is to be noted of the points that are prepared now, and what their stage 1 cost.

    What a prompt cache holds is noted at every query that reads it: it lives on from there.
    """
    stage1 = {point.key: point.stage1 for point in measured.points}
    noted = {}
    for key, tokens in prepared.items():
        found = bool(stage1.get(key)) and key not in decision.due
        if tokens.total(Stage.PREPARE) or found:
            one, _ = measured.prices.stages(Usage(dict(tokens)))
            noted[key] = float(one)
    own = decision.point.key
    if cached and own in measured.lapsing:
        # Written or read again, the entry lives from now on.
        only_cached = measured.lapsing[own] >= decision.point.stage1
        if only_cached or own in noted or own in decision.due:
            noted.setdefault(own, decision.point.stage1 if only_cached else 0.0)
    return noted
