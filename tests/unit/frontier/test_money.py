"""Prices per call, lives of cache entries by kind, and regimes that reach their F1."""

import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.cost import ModelPrice, StrategyPoint, Usage
from ecs_plugins.frontier.decision import RouterConfig
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.metrics import answer_part, as_metric
from ecs_plugins.frontier.prices import PriceTier, PriceVector, settings_of_map
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.settlement import spent_of
from ecs_plugins.frontier.usage import ModelCall, booked
from ecs_plugins.tokens import Role, Stage, TokenLedger

PROMPT = (Stage.QUERY, Role.ANSWER_INPUT)
COMPRESSED = (Stage.PREPARE, Role.COMPRESS_INPUT)
TIERED = ModelPrice(input=1.0, output=10.0, tiers=(PriceTier(above=200, input=2.0, output=20.0),))


def cached_frontier():
    price = ModelPrice(
        input=3e-6, output=15e-6, cached_input=0.3e-6, cache_write=3.75e-6, cache_write_1h=6e-6
    )
    whole = Usage({PROMPT: 10_000.0}, shared_input=9_900.0)
    part = Usage({PROMPT: 4_000.0})
    full = StrategyPoint("full", {}, 0.80, 0, 1, usage=whole)
    bm25 = StrategyPoint("bm25", {}, 0.78, 0, 1, usage=part)
    return EfficiencyFrontier([full, bm25]).priced(PriceVector(unit="USD", answer=price))


@pytest.mark.parametrize(
    ("cache", "gap", "lives"),
    [
        ((0, 9_900, 0), 299, True),
        ((0, 9_900, 0), 301, False),
        ((0, 0, 9_900), 301, True),
        ((0, 0, 9_900), 3_599, True),
        ((0, 0, 9_900), 3_601, False),
    ],
)
def test_an_entry_of_a_prompt_cache_lives_as_long_as_its_kind(cache, gap, lives):
    now = [1e9]
    with ReuseLedger(":memory:", clock=lambda: now[0]) as ledger:
        router = Router(cached_frontier(), RouterConfig(target_f1=0.79), ledger=ledger)
        tokens = TokenLedger({PROMPT: 10_000})
        first = router.route(context_id="c")
        router.settle(first, tokens, context_id="c", cache=cache)
        now[0] += gap
        second = router.route(context_id="c")
        assert (second.stage1 == 0) == lives
        # Reading an entry refreshes it and keeps its kind.
        if lives:
            router.settle(second, tokens, context_id="c", cache=(9_900, 0, 0))
            now[0] += gap
            assert router.route(context_id="c").stage1 == 0


def test_each_call_of_a_query_has_the_tier_of_its_own_prompt():
    prices = PriceVector(answer=TIERED)
    mapped = Usage({PROMPT: 250.0}, query_calls=5)
    frontier = EfficiencyFrontier(
        [
            StrategyPoint("mapped", {}, 0.8, 0, 1, usage=mapped),
            StrategyPoint("top", {}, 0.5, 0, 1, usage=Usage({PROMPT: 9.0})),
        ]
    ).priced(prices)
    assert frontier.get("mapped").stage2 == 250.0
    calls = [ModelCall(Stage.QUERY, read, 1) for read in (40, 40, 300, 50, 50)]
    calls.append(ModelCall(Stage.PREPARE, 300, 2))
    tokens = booked(calls)
    router = Router(frontier, RouterConfig(target_f1=0.7))
    settled = router.settle(router.route(), spent_of(tokens, calls=calls))
    assert settled.actual_stage2 == 180 + 4 * 10 + 2 * 300 + 20
    assert settled.actual_stage1 == 2 * 300 + 2 * 20


def test_batch_prices_have_tiers_of_their_own_or_the_same_discount():
    entry = {
        "input_cost_per_token": 2.0,
        "output_cost_per_token": 8.0,
        "input_cost_per_token_batches": 1.0,
        "output_cost_per_token_batches": 4.0,
        "input_cost_per_token_above_200k_tokens": 4.0,
    }
    usage = Usage({COMPRESSED: 300_000.0})
    listed = entry | {"input_cost_per_token_above_200k_tokens_batches": 1.5}
    for priced, expected in ((entry, 2.0), (listed, 1.5)):
        prices = PriceVector.from_json(settings_of_map({"m": priced}, {"answer": "m"}, batch=True))
        one, _ = prices.stages(usage)
        assert one == 300_000 * expected


def test_a_regime_names_a_strategy_that_reaches_its_f1():
    points = [
        StrategyPoint("few", {}, 0.40, 0, 100),
        StrategyPoint("notes", {}, 0.76, 5000, 50),
        StrategyPoint("more", {}, 0.80, 9000, 60),
        StrategyPoint("full", {}, 0.84, 0, 1000),
    ]
    for regime in EfficiencyFrontier(points).regimes((1, 10, 100, 1000)):
        for point in regime.choices.values():
            assert point.f1 >= regime.f1_low


def test_a_metric_gets_the_object_or_the_field_that_is_named():
    seen = []
    answer = {"name": "Hester Vane", "source": "a deed"}
    own = as_metric(lambda prediction, answers: seen.append(prediction) or 1.0)
    own(answer, ("Hester Vane",))
    assert seen == [answer]
    f1 = as_metric("f1")
    assert f1({"name": "Hester Vane"}, ("Hester Vane",)) == 1.0
    assert f1(answer_part(answer, "name"), ("Hester Vane",)) == 1.0
    with pytest.raises(ConfigurationError, match="answer_field"):
        f1(answer, ("Hester Vane",))
    with pytest.raises(ConfigurationError, match="no field"):
        answer_part(answer, "title")
