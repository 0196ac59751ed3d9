"""Games of rent or buy in which caches lapse, played by a real `Router` against all that can be.

An adversary draws strategies, prices and the times of queries; the router decides and pays query
by query. Its cost is held against an optimum that knows all times.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.deployment.expectations import lines_of, optimum, runs_of
from ecs_plugins.frontier import EfficiencyFrontier, Router, RouterConfig, StrategyPoint
from ecs_plugins.frontier.cost import Usage
from ecs_plugins.frontier.prices import ModelPrice, PriceVector
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.tokens import Role, Stage, TokenLedger

TARGET = 0.5
_PROMPT = (Stage.QUERY, Role.ANSWER_INPUT)
_WRITTEN = (Stage.PREPARE, Role.COMPRESS_INPUT)
_LIVES = (300.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Game:
    """Strategies, and when one context is asked about.

    Attributes:
        frontier: Priced; all points reach the target.
        times: Unix time of every query, in order.
        life: Seconds that an entry of the prompt cache lives after it was last read.
    """

    frontier: EfficiencyFrontier
    times: tuple[float, ...]
    life: float


def made_up(games: int, *, seed: int = 42) -> Iterator[Game]:
    """Random games of 2 to 5 strategies, with gaps of several kinds."""
    rng = random.Random(seed)
    for _ in range(games):
        life = rng.choice(_LIVES)
        yield Game(_frontier(rng, life), tuple(_times(rng, life)), life)


def _frontier(rng: random.Random, life: float) -> EfficiencyFrontier:
    price = ModelPrice(
        input=1.0,
        output=1.0,
        cached_input=rng.choice([0.1, 0.25, 0.5]),
        cache_write=rng.choice([1.0, 1.25, 2.0]),
        cache_seconds=life,
    )
    points = []
    for number in range(rng.randint(2, 5)):
        prompt = round(10 ** rng.uniform(2, 4))
        shared = round(prompt * rng.choice([0.0, 0.0, 0.6, 0.95]))
        tokens = {_PROMPT: float(prompt)}
        if rng.random() < 0.4:
            tokens[_WRITTEN] = float(round(10 ** rng.uniform(2, 5)))
        usage = Usage(tokens, shared_input=shared)
        points.append(StrategyPoint(f"s{number}", {}, 0.8, 0, 1, usage=usage))
    return EfficiencyFrontier(points).priced(PriceVector(unit="tokens", answer=price))


def _times(rng: random.Random, life: float) -> Iterator[float]:
    """Bursts with pauses, steady queries below or above the life of an entry, and a mixture."""
    kind = rng.choice(["dense", "sparse", "bursty", "mixed"])
    now = 1e9
    for _ in range(rng.choice([3, 20, 60])):
        within = rng.uniform(0.01, 0.99) * life
        beyond = rng.uniform(1.01, 5) * life
        pauses = {"dense": 0.02, "sparse": 0.95, "bursty": 0.2, "mixed": 0.5}[kind]
        now += beyond if rng.random() < pauses else within
        yield now


def play(game: Game) -> float:
    """Return the highest cost over the optimum, wherever an adversary may stop."""
    return max(_played(game))


def _played(game: Game) -> list[float]:
    """Route and pay every query, and return the cost over the optimum after each."""
    now = [0.0]
    paid = 0.0
    ratios = []
    lines = lines_of(game.frontier)
    prices = game.frontier.prices.answer
    alive: dict[str, float] = {}
    with ReuseLedger(":memory:", clock=lambda: now[0]) as ledger:
        router = Router(game.frontier, RouterConfig(target_f1=TARGET), ledger=ledger)
        for index, now[0] in enumerate(game.times):
            decision = router.route(context_id="context")
            usage = decision.point.usage
            assert usage is not None
            spent = TokenLedger()
            spent.book(Stage.QUERY, Role.ANSWER_INPUT, round(usage.tokens[_PROMPT]))
            if decision.point.key not in decision.due:
                spent.book(*_WRITTEN, round(usage.tokens.get(_WRITTEN, 0)))
            shared = round(usage.shared_input)
            is_alive = now[0] <= alive.get(decision.label, -math.inf)
            cache = (shared, 0, 0) if is_alive else (0, shared, 0)
            alive[decision.label] = now[0] + prices.cache_seconds
            settled = router.settle(decision, spent, context_id="context", cache=cache)
            assert settled.actual_stage1 is not None
            assert settled.actual_stage2 is not None
            paid += settled.actual_stage1 + settled.actual_stage2
            runs = runs_of(game.times[: index + 1], game.life)
            ratios.append(paid / optimum(lines, runs))
    return ratios


def often_lapsing() -> Iterator[Game]:
    """Eight games of a long context that is asked at gaps around the life of its cache entry."""
    price = ModelPrice(input=3e-6, output=15e-6, cached_input=0.3e-6, cache_write=3.75e-6)
    whole = Usage({_PROMPT: 10_000.0}, shared_input=9_900.0)
    for tokens in (1500.0, 4000.0):
        part = Usage({_PROMPT: tokens})
        points = [
            StrategyPoint("full", {}, 0.8, 0, 1, usage=whole),
            StrategyPoint("bm25", {}, 0.78, 0, 1, usage=part),
        ]
        frontier = EfficiencyFrontier(points).priced(PriceVector(unit="USD", answer=price))
        for gap in (60.0, 290.0, 310.0, 600.0):
            times = tuple(1e9 + gap * number for number in range(400))
            yield Game(frontier, times, price.cache_seconds)


def final_ratio(game: Game) -> float:
    """Return the cost over the optimum at the end of a game."""
    return _played(game)[-1]
