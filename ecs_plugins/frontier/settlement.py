"""Settlement: the cost of a routed query, in the stages in which it was forecast.

Preparations that a query has paid for are noted, with the time that they stay valid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ecs_plugins.common.checks import check_kind, check_several
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import PointKey, StrategyPoint, Usage, check_number
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.measured import MeasuredPoints
from ecs_plugins.frontier.reuse import Booking, Preparation
from ecs_plugins.frontier.usage import NO_CACHE, CacheTokens, ModelCall, booked
from ecs_plugins.tokens import Account, Role, Stage, TokenLedger

FALLBACK: PointKey = ("fallback", "{}")
"""The strategy of a fallback that is none of the measured ones."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The cost of a routed query next to its forecast; a prepared stage 1 is forecast as 0.

    Attributes:
        actual_stage1: None where the tokens of a call are unknown, as is ``actual_stage2``.
        baseline: Cost of the same query with the whole context; None where it is unknown.
        ledger_error: The reason why the ledger noted nothing; empty where it did.
    """

    expected_stage1: float
    expected_stage2: float
    actual_stage1: float | None
    actual_stage2: float | None
    unit: str
    baseline: float | None = None
    ledger_error: str = ""

    @property
    def ratio(self) -> float | None:
        """Return actual over expected stage 2; far from 1, traffic differs from the calibration."""
        if self.actual_stage2 is None:
            return None
        return self.actual_stage2 / self.expected_stage2


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens and seconds of one query; made by `spent_of`.

    Attributes:
        tokens: Of all models, in both stages.
        calls: All calls of the answering model, each priced by the length of its own prompt, and
            calls that prepared.
        rest: Tokens outside of the calls, such as those of the scoring model.
        seconds: Of stage 2.
        is_whole: True if the tokens do not say which of them prepared: then the cost beyond the
            forecast of stage 2 is taken for stage 1, as far as that was forecast.
        unknown: Calls whose tokens nobody reported.
        whole_context: Prompt tokens of the same query with the whole context, if known.
    """

    tokens: TokenLedger
    calls: tuple[ModelCall, ...]
    rest: Mapping[Account, int]
    seconds: float = 0.0
    is_whole: bool = False
    unknown: int = 0
    whole_context: float | None = None

    @property
    def cached(self) -> CacheTokens:
        """Return tokens of a prompt cache in all calls of stage 2."""
        total = NO_CACHE
        for call in self.calls:
            if call.stage == Stage.QUERY:
                total = total.plus(call.cache)
        return total


def spent_of(
    tokens: TokenLedger,
    *,
    calls: Iterable[ModelCall] = (),
    cache: tuple[int, int, int] = NO_CACHE,
    seconds: float = 0.0,
    is_whole: bool = False,
    unknown: int = 0,
    whole_context: float | None = None,
) -> Spent:
    """Return the checked spending of a query.

    Args:
        tokens: Of all models, in both stages.
        calls: Known calls among them. Other tokens of the answering model count as one call.
        cache: Tokens of a prompt cache in that one call.
        seconds: See `Spent`; likewise the others.
        is_whole: See `Spent`.
        unknown: See `Spent`.
        whole_context: See `Spent`.

    Raises:
        InvalidInputError: More cached prompt tokens than prompt tokens, a negative number, or
            something of the wrong kind.
    """
    read = check_kind("actual", tokens, TokenLedger).total(Stage.QUERY, Role.ANSWER_INPUT)
    cached = _checked_cache(cache, read)
    lasted = check_number("seconds", seconds)
    if not 0 <= lasted < math.inf:
        raise InvalidInputError(f"seconds must be >= 0, got {lasted!r}")
    known = tuple(calls)
    rest = dict(tokens)
    for account, counted in booked(known):
        rest[account] = max(0, rest.get(account, 0) - counted)
    prompt = rest.pop((Stage.QUERY, Role.ANSWER_INPUT), 0)
    written = rest.pop((Stage.QUERY, Role.ANSWER_OUTPUT), 0)
    other = ModelCall(Stage.QUERY, prompt, written, cached)
    return Spent(tokens, (*known, other), rest, lasted, is_whole, unknown, whole_context)


def _checked_cache(cache: tuple[int, int, int], read: int) -> CacheTokens:
    counts = [check_number("cache", count) for count in check_several("cache", cache)]
    if len(counts) != len(CacheTokens._fields):
        raise InvalidInputError(
            f"cache must be tokens read, written for 5 minutes and for an hour, got {len(counts)}"
        )
    if not (min(counts) >= 0 and sum(counts) <= read) or any(count % 1 for count in counts):
        raise InvalidInputError(f"{counts} of {read} prompt tokens cannot be cached")
    return CacheTokens(*map(int, counts))


def settled(decision: RoutingDecision, spent: Spent, measured: MeasuredPoints) -> Settlement:
    """Compare a query with its forecast.

    Writing to a prompt cache costs more than reading. If the forecast put the difference into
    stage 1, it is booked there. If the forecast assumed a live cache entry, the difference
    appears in stage 2.
    """
    check_kind("decision", decision, RoutingDecision)
    expected = (decision.stage1, decision.stage2)
    if spent.unknown:
        return Settlement(*expected, None, None, measured.unit)
    one, two = _stages(spent, measured)
    entry = measured.lapsing.get(decision.point.key, 0.0)
    if entry and decision.stage1 > 0:
        written = _write_extra(spent, measured)
        one += written
        two -= written
    if spent.is_whole:
        prepared = min(max(0.0, two - decision.stage2), decision.stage1)
        one += prepared
        two -= prepared
    baseline = _baseline(decision, spent, measured, one + two)
    return Settlement(*expected, one, two, measured.unit, baseline)


def _stages(spent: Spent, measured: MeasuredPoints) -> tuple[float, float]:
    """Return the cost of both stages, each call at its own tier."""
    prices = measured.prices
    one, two = prices.stages(Usage(spent.rest, query_seconds=spent.seconds))
    for call in spent.calls:
        cost = prices.call_cost(call)
        if call.stage == Stage.PREPARE:
            one += cost
        else:
            two += cost
    return float(one), float(two)


def _write_extra(spent: Spent, measured: MeasuredPoints) -> float:
    """Return the cost of writing to a prompt cache beyond reading from it."""
    extra = 0.0
    for call in spent.calls:
        if call.stage == Stage.QUERY:
            price = measured.prices.answer.without_tiers(call.read)
            extra += price.cache_extra(*call.cache) - price.cache_extra(call.cache.total, 0, 0)
    return extra


# The baseline.


def full_context(measured: MeasuredPoints) -> StrategyPoint:
    """Return the point that sends the whole context; without one, the dearest."""
    for point in measured.routable:
        if point.strategy == "full_context":
            return point
    return max(measured.routable, key=lambda point: point.stage2)


def _baseline(
    decision: RoutingDecision, spent: Spent, measured: MeasuredPoints, paid: float
) -> float | None:
    """Return the cost of the same query with the whole context; None where it is unknown.

    A query that was answered from the whole context is its own baseline.
    """
    full = full_context(measured)
    if decision.point.key == full.key:
        return paid
    if spent.whole_context is None:
        return None
    usual = full.usage or Usage()
    read = usual.tokens.get((Stage.QUERY, Role.ANSWER_INPUT), 0.0)
    shared = usual.shared_input * spent.whole_context / read if read else 0.0
    written = spent.tokens.total(Stage.QUERY, Role.ANSWER_OUTPUT)
    tokens = {
        (Stage.QUERY, Role.ANSWER_INPUT): spent.whole_context,
        (Stage.QUERY, Role.ANSWER_OUTPUT): float(written),
    }
    usage = Usage(tokens, shared, query_seconds=usual.query_seconds)
    entry, cost = measured.prices.stages(usage)
    if decision.due.get(full.key) != 0:
        cost += entry
    return float(cost)


# Bookings.


def bookings_of(
    decision: RoutingDecision,
    settlement: Settlement,
    *,
    fallback: PointKey | None = None,
    failed: float = 0.0,
) -> list[Booking]:
    """Return the bookings of a query.

    After a fallback, the cost of its calls stands under ``fallback``. The ``failed`` part that
    the choice had cost until then stays under the choice.
    """
    unit = settlement.unit
    if settlement.actual_stage1 is None or settlement.actual_stage2 is None:
        return [Booking(fallback or decision.point.key, unit, None, None)]
    total = settlement.actual_stage1 + settlement.actual_stage2
    if fallback is None:
        return [Booking(decision.point.key, unit, total, settlement.baseline)]
    bookings = [Booking(fallback, unit, total - failed, settlement.baseline)]
    if failed:
        bookings.append(Booking(decision.point.key, unit, failed, None, queries=0))
    return bookings


# Preparations.

_HOUR = 3600.0


def due_costs(
    measured: MeasuredPoints,
    preparations: Mapping[PointKey, Preparation],
    stored: Mapping[PointKey, bool],
) -> dict[PointKey, float]:
    """Return the cost of stage 1 that is still due, by point that was prepared for a context.

    The entry of a prompt cache is due again when it has lapsed. ``stored`` holds the points whose
    preparation can be looked up, True where it is there. It overrules the ``preparations`` of the
    ledger, which cannot know the memory of a scoring model.
    """
    due = {}
    for point in measured.points:
        paid = preparations.get(point.key)
        if not stored.get(point.key, paid is not None and not _is_read(point)):
            continue
        written = measured.lapsing.get(point.key, 0.0)
        if not written or _lives(paid, measured):
            due[point.key] = 0.0
        elif written < point.stage1:
            due[point.key] = written
    return due


def _lives(paid: Preparation | None, measured: MeasuredPoints) -> bool:
    return paid is not None and paid.age <= (paid.life or measured.prices.answer.cache_seconds)


def _is_read(point: StrategyPoint) -> bool:
    """Return True if the scoring model reads in stage 1, and nothing else happens."""
    if not point.stage1 or point.usage is None:
        return False
    paid = set()
    for (stage, role), tokens in point.usage.tokens.items():
        if stage == Stage.PREPARE and tokens:
            paid.add(role)
    return paid == {Role.SCORER}


def newly_prepared(
    decision: RoutingDecision,
    prepared: Mapping[PointKey, TokenLedger],
    measured: MeasuredPoints,
    *,
    cached: CacheTokens,
    reads: bool,
) -> dict[PointKey, Preparation]:
    """Return the preparations to note, with the cost of their stage 1.

    A query that ``reads`` an entry of a prompt cache notes it again: it lives on from there, for
    an hour if it was written for an hour.
    """
    stage1 = {point.key: point.stage1 for point in measured.points}
    noted: dict[PointKey, Preparation] = {}
    check_kind("prepared", prepared, Mapping)  # type: ignore[type-abstract]
    life = _life(cached, measured)
    for key, tokens in prepared.items():
        check_kind("the tokens of a preparation", tokens, TokenLedger)
        is_new = bool(stage1.get(key)) and key not in decision.due
        if tokens.total(Stage.PREPARE) or is_new:
            one, _ = measured.prices.stages(Usage(dict(tokens)))
            noted[key] = Preparation(float(one), 0.0, life)
    own = decision.point.key
    if reads and own in measured.lapsing:
        # Written or read again, the entry lives from now on.
        only_cached = measured.lapsing[own] >= decision.point.stage1
        if only_cached or own in noted or own in decision.due:
            cost = decision.point.stage1 if only_cached else 0.0
            noted.setdefault(own, Preparation(cost, 0.0, life))
    return noted


def _life(cached: CacheTokens, measured: MeasuredPoints) -> float:
    """Return the life of the entry that a query wrote; 0 where it wrote none."""
    if cached.written_1h:
        return _HOUR
    if cached.written:
        return measured.prices.answer.cache_seconds
    return 0.0
