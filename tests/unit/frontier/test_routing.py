import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.cost import ModelPrice, PriceVector
from ecs_plugins.frontier.decision import Objective, UnreachableTargetError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.routing import RentOrBuy, Router, RouterConfig, decide_online
from ecs_plugins.tokens import Role, Stage, TokenLedger

from .conftest import point


@pytest.fixture
def ledger(tmp_path):
    with ReuseLedger(tmp_path / "r.db") as made:
        yield made


def test_a_given_n_decides(frontier):
    router = Router(frontier, RouterConfig(target_f1=0.78))
    assert [router.route(reuse=n).strategy for n in (1, 100)] == ["tfidf", "memory"]


def test_without_n_and_ledger_a_query_stands_alone(frontier):
    decision = Router(frontier, RouterConfig(target_f1=0.78)).route()
    assert (decision.strategy, decision.reuse) == ("tfidf", 1.0)
    assert "no reuse was given" in decision.explain()


def test_a_call_can_ask_for_something_else(frontier):
    router = Router(frontier, RouterConfig(target_f1=0.78))
    assert router.route(reuse=1, weight=1.0).strategy == "full"
    assert router.route(reuse=1, budget=250).objective == Objective.BUDGET
    with pytest.raises(UnreachableTargetError):
        router.route(reuse=1, target_f1=0.99)
    with pytest.raises(InvalidInputError, match="at most one"):
        router.route(reuse=1, target_f1=0.5, weight=0.5)


def test_contexts_that_are_asked_often_are_forecast_to_be_worth_preparing(frontier, ledger):
    for index in range(60):
        ledger.record(f"c{index}", queries=200)
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    decision = router.route(context_id="c0")
    assert decision.strategy == "memory"
    assert decision.reuse > 10
    assert "query 201 of this context" in decision.note


def test_every_routed_query_is_counted_and_a_dry_run_is_not(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    for _ in range(3):
        router.route(context_id="a")
    router.route(context_id="a", count=False)
    router.route(context_id="a", reuse=5)
    assert ledger.count("a") == 4


def test_unknown_n_is_rented_until_it_breaks_even(frontier, ledger):
    config = RouterConfig(target_f1=0.78, policy="deterministic")
    router = Router(frontier, config, ledger=ledger)
    chosen = [router.route(context_id="a").strategy for _ in range(11)]
    # 1500 / (566 - 409) = 9.55 queries to break even.
    assert chosen == ["tfidf"] * 9 + ["memory"] * 2


def spent(prepare, query):
    ledger = TokenLedger()
    ledger.book(Stage.PREPARE, Role.COMPRESS_INPUT, prepare)
    ledger.book(Stage.QUERY, Role.ANSWER_INPUT, query)
    return ledger


@pytest.mark.parametrize(("paid", "found"), [(1600, False), (0, True)])
def test_settling_reports_expected_against_actual_and_sinks_stage_one(
    frontier, ledger, paid, found
):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    decision = router.route(context_id="a", reuse=100)
    settled = router.settle(decision, spent(paid, 450), context_id="a", prepared=found)
    assert (settled.expected_stage1, settled.actual_stage1) == (1500, paid)
    assert settled.ratio == pytest.approx(450 / 409)
    following = router.route(context_id="a", reuse=1)
    assert (following.strategy, following.sunk, following.stage1) == ("memory", True, 0)


def test_settling_uses_the_prices_of_the_frontier_also_for_cached_tokens(measured_frontier):
    price = ModelPrice(input=2.0, output=8.0, cached_input=0.5)
    money = PriceVector(unit="USD", answer=price, prepare_factor=0.5)
    router = Router(measured_frontier.priced(money), RouterConfig(weight=0.9))
    settled = router.settle(router.route(reuse=10), spent(10, 10), cached_input=4)
    assert (settled.actual_stage1, settled.unit) == (10.0, "USD")
    assert settled.actual_stage2 == 6 * 2.0 + 4 * 0.5


def test_more_cached_tokens_than_were_read_are_refused(frontier):
    router = Router(frontier, RouterConfig(target_f1=0.78))
    with pytest.raises(InvalidInputError, match="11 of 10"):
        router.settle(router.route(reuse=10), spent(0, 10), cached_input=11)


def test_a_router_serves_many_threads(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)

    def ask(_):
        decision = router.route(context_id="a", reuse=1)
        router.settle(decision, spent(0, 100), context_id="a")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(80)))
    assert ledger.count("a") == 80


def test_a_router_can_be_pickled(frontier, ledger):
    router = pickle.loads(
        pickle.dumps(Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger))
    )
    assert router.route(context_id="a", reuse=100).strategy == "memory"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"target_f1": 0.5, "weight": 0.5},
        {"weight": 0.5, "policy": "deterministic"},
        {"target_f1": 0.5, "policy": "hope"},
    ],
)
def test_impossible_router_settings_are_refused(settings):
    with pytest.raises(ConfigurationError):
        RouterConfig(**settings)


def ratio(choice, queries):
    """What renting first costs over what an all-knowing router pays, beyond the shared part."""
    bought = choice.price if queries > choice.rentals else 0.0
    spent = min(queries, choice.rentals) * choice.rent_extra + bought
    return spent / min(queries * choice.rent_extra, choice.price)


@pytest.mark.parametrize("break_even", [0.4, 1.0, 7.3, 9.55, 60.0])
def test_renting_until_it_has_paid_the_price_costs_at_most_twice_the_optimum(break_even):
    choice = RentOrBuy(rent_extra=157.0, price=157.0 * break_even)
    for queries in range(1, 300):
        assert ratio(choice, queries) <= 2 + 1e-9


def test_the_bound_is_reached_by_an_adversary():
    choice = RentOrBuy(1.0, 1000.0)
    queries = choice.rentals + 1
    assert ratio(choice, queries) > 1.99


@pytest.mark.parametrize("queries", [1, 9, 10, 300])
def test_a_routed_context_stays_within_twice_the_offline_optimum(frontier, queries):
    rent, owned = frontier.get("tfidf", depth=10), frontier.get("memory", ratio=0.3)
    spent, prepared = 0.0, frozenset()
    for seen in range(1, queries + 1):
        decision = decide_online(frontier, 0.78, seen, prepared=prepared)
        spent += decision.point.effective(1, sunk=decision.point.key in prepared)
        prepared |= {decision.point.key} if decision.point.stage1 else set()
    best = min(queries * rent.stage2, owned.stage1 + queries * owned.stage2)
    assert best <= spent <= 2 * best


def test_the_reason_gives_the_numbers(frontier):
    decision = decide_online(frontier, 0.78, 3)
    assert decision.strategy == "tfidf"
    assert "rent for 7 queries yet" in decision.note
    assert "break even after 9.6 queries" in decision.note
    assert decide_online(frontier, 0.78, 10).point.strategy == "memory"


def test_what_is_prepared_is_used_at_once(frontier):
    key = frontier.get("memory", ratio=0.3).key
    decision = decide_online(frontier, 0.78, 1, prepared=[key])
    assert decision.point.key == key
    assert "however many follow" in decision.note


def test_where_nothing_pays_off_there_is_nothing_to_decide():
    frontier = EfficiencyFrontier([point("a", 0.8, 0, 100), point("b", 0.8, 500, 200)])
    assert decide_online(frontier, 0.8, 50).point.strategy == "a"
