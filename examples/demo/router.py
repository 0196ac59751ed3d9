"""Part 3: a router that counts queries and costs, next to always the same way.

Part 1 measured the ways: the share of questions whose passages are kept (the F1 of a perfect
reader), the tokens that this machine reads once, and the tokens of each question. Most questions
ask for `USUAL` of the answers; every fourth must not miss one. The router does not know how often a
text will be asked about: it counts in a ledger, and settles every query. A prompt cache serves what
is sent again at a tenth of the price.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ecs_plugins.frontier import (
    EfficiencyFrontier,
    PriceVector,
    ReuseLedger,
    Router,
    RouterConfig,
    StrategyPoint,
)
from ecs_plugins.frontier.cost import ModelPrice, Usage
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.reuse import Saving, savings, total
from ecs_plugins.frontier.settlement import spent_of
from ecs_plugins.frontier.usage import CacheTokens
from ecs_plugins.tokens import Account, Role, Stage, TokenLedger
from examples.demo.corpus import Corpus
from examples.demo.passages import EVERYTHING, Way

LOCAL = 0.1
"""Price of a token that this machine reads, in tokens of the answering model."""
CACHED = 0.1
"""Price of a token that the prompt cache of the answering model serves."""
USUAL, ALL = 0.85, 1.0
TEXTS = (1, 1, 1, 1, 2, 2, 3, 5, 8, 13, 30, 60)
"""Number of questions about each of twelve texts; every fourth question asks for `ALL`."""
SECONDS = 30.0
"""Between two questions about a text."""
_START = 1_777_104_000.0  # 25 April 2026
_PRICES = PriceVector(
    answer=ModelPrice(input=1.0, output=1.0, cached_input=CACHED),
    compressor=ModelPrice(input=LOCAL, output=0.0),
    scorer=LOCAL,
)
_INDEXED: Account = (Stage.PREPARE, Role.COMPRESS_INPUT)
_SCORED: Account = (Stage.QUERY, Role.SCORER)
_SENT: Account = (Stage.QUERY, Role.ANSWER_INPUT)


@dataclass(frozen=True, slots=True)
class Total:
    """Cost of one policy over all questions, in tokens of the answering model.

    Attributes:
        missed: Questions that asked for more than the policy reaches.
    """

    name: str
    cost: float
    missed: int


@dataclass(frozen=True, slots=True)
class Routed:
    """Choices by target and N, totals of all policies, and the report of the ledger."""

    choices: tuple[RoutingDecision, ...]
    totals: tuple[Total, ...]
    spending: tuple[Saving, ...]


def run(corpus: Corpus, ways: Sequence[Way]) -> Routed:
    """Route every question of `TEXTS`, and add up what always the same way costs."""
    points = [_point(corpus, way) for way in ways]
    frontier = EfficiencyFrontier(points).priced(_PRICES)
    now = [_START]
    ledger = ReuseLedger(":memory:", clock=lambda: now[0])
    router = Router(frontier, RouterConfig(target_f1=USUAL), ledger=ledger)
    whole = next(way.sent for way in ways if way.name == EVERYTHING)
    paid = 0.0
    for number, questions in enumerate(TEXTS):
        for target in _targets(questions):
            now[0] += SECONDS
            paid += _answered(router, f"text {number}", target, whole)
    totals = [Total("the router", paid, 0)]
    asked = [target for questions in TEXTS for target in _targets(questions)]
    for point in frontier.points:
        cost = sum(point.stage1 + questions * point.stage2 for questions in TEXTS)
        totals.append(
            Total(f"always {point.strategy}", cost, sum(target > point.f1 for target in asked))
        )
    best = sum(_optimum(frontier, Counter(_targets(questions))) for questions in TEXTS)
    totals.append(Total("all numbers known beforehand", best, 0))
    choices = tuple(
        frontier.decide(target_f1=target, reuse=reuse)
        for target in (USUAL, ALL)
        for reuse in (1, 10, 100)
    )
    rows = savings(ledger)
    return Routed(choices, tuple(totals), (*rows, *total(rows)))


def _targets(questions: int) -> list[float]:
    return [ALL if number % 4 == 0 else USUAL for number in range(1, questions + 1)]


def _answered(router: Router, text: str, target: float, whole: float) -> float:
    """Route a question, and book what its calls would report; return its cost."""
    decision = router.route(context_id=text, target_f1=target)
    assert decision.point.usage is not None
    tokens = dict(decision.point.usage.tokens)
    if decision.sunk:
        tokens.pop(_INDEXED, None)
    shared = round(decision.point.usage.shared_input)
    cache = CacheTokens(shared, 0, 0) if decision.sunk else CacheTokens(0, shared, 0)
    spent = spent_of(
        TokenLedger({account: round(count) for account, count in tokens.items()}),
        cache=cache,
        whole_context=whole,
    )
    settled = router.settle(decision, spent, context_id=text)
    return (settled.actual_stage1 or 0.0) + (settled.actual_stage2 or 0.0)


def _optimum(frontier: EfficiencyFrontier, asked: Mapping[float, int]) -> float:
    """Return the least cost of a text whose numbers of questions are known beforehand."""
    costs = []
    for choice in product(*(frontier.reaching(target) for target in asked)):
        once = {point.key: point.stage1 for point in choice}
        each = [n * point.stage2 for n, point in zip(asked.values(), choice, strict=True)]
        costs.append(sum(once.values()) + sum(each))
    return min(costs)


def _point(corpus: Corpus, way: Way) -> StrategyPoint:
    tokens = {_INDEXED: way.once, _SCORED: way.each, _SENT: way.sent}
    shared = way.sent if way.name == EVERYTHING else 0.0
    f1 = way.right(corpus.questions) / len(corpus.questions)
    usage = Usage({account: n for account, n in tokens.items() if n}, shared_input=shared)
    return StrategyPoint(way.name, {}, f1=f1, stage1=0.0, stage2=way.sent, usage=usage)
