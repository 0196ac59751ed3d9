"""What a routed query really cost, in the stages in which it was forecast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ecs_plugins.common.checks import check_kind, check_several
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import PointKey, Usage, check_number
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.ledger import Booking
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
    cache: tuple[int, int, int],
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
        InvalidInputError: More cached prompt tokens than prompt tokens, a negative number, or
            something of the wrong kind.
    """
    check_kind("decision", decision, RoutingDecision)
    read = check_kind("actual", actual, TokenLedger).total(Stage.QUERY, Role.ANSWER_INPUT)
    cached = _checked_cache(cache, read)
    lasted = check_number("seconds", seconds)
    if not 0 <= lasted < math.inf:
        raise InvalidInputError(f"seconds must be >= 0, got {lasted!r}")
    prices = measured.prices
    if prices.answer.tiers:
        prices = prices.replace(answer=prices.answer.without_tiers(read))
    one, two = prices.stages(Usage(dict(actual), query_seconds=lasted))
    two += prices.answer.cache_extra(*cached)
    entry = measured.lapsing.get(decision.point.key, 0.0)
    if entry and decision.stage1 > 0:
        as_read = CacheTokens(cached.total, 0, 0)
        written = prices.answer.cache_extra(*cached) - prices.answer.cache_extra(*as_read)
        one += written
        two -= written
    if whole:
        prepared = min(max(0.0, two - decision.stage2), decision.stage1)
        one += prepared
        two -= prepared
    return Settlement(decision.stage1, decision.stage2, one, two, measured.unit)


def _checked_cache(cache: tuple[int, int, int], read: int) -> CacheTokens:
    """The tokens of a prompt cache, or a refusal."""
    counts = [check_number("cache", count) for count in check_several("cache", cache)]
    if len(counts) != len(CacheTokens._fields):
        raise InvalidInputError(
            f"cache must be tokens read, written for 5 minutes and for an hour, got {len(counts)}"
        )
    if not (min(counts) >= 0 and sum(counts) <= read) or any(count % 1 for count in counts):
        raise InvalidInputError(f"{counts} of {read} prompt tokens cannot be cached")
    return CacheTokens(*map(int, counts))


def booking_of(
    decision: RoutingDecision,
    settlement: Settlement,
    measured: MeasuredPoints,
    *,
    shadow: bool,
) -> Booking:
    """What a query cost, beside always the full context, or the dearest where there is none."""
    points = measured.routable
    full = next((point for point in points if point.strategy == "full_context"), None)
    if full is None:
        full = max(points, key=lambda point: point.stage2)
    baseline = full.stage2
    if decision.due.get(full.key) != 0:
        baseline += measured.lapsing.get(full.key, 0.0)
    total = settlement.actual_stage1 + settlement.actual_stage2
    spent = Booking(decision.point.key, settlement.unit, total, baseline)
    return spent.as_shadow() if shadow else spent


def has_failed(
    decision: RoutingDecision, noted: Mapping[PointKey, float], measured: MeasuredPoints
) -> bool:
    """Whether a choice that prepares its context has not done so."""
    written = measured.lapsing.get(decision.point.key, 0.0)
    return decision.stage1 > written and decision.point.key not in noted


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
    check_kind("prepared", prepared, Mapping)  # type: ignore[type-abstract]
    for key, tokens in prepared.items():
        check_kind("what a preparation used", tokens, TokenLedger)
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
