"""Rent or buy against the offline optimum, and the forecast of reuse."""

import pytest

from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.reuse import ReuseModel
from ecs_plugins.frontier.routing import RentOrBuy, decide_online

from .conftest import hand_points, point


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
def test_a_routed_context_stays_within_twice_the_offline_optimum(queries):
    frontier = EfficiencyFrontier(hand_points())
    rent, owned = frontier.get("tfidf", depth=10), frontier.get("memory", ratio=0.3)
    spent, prepared = 0.0, frozenset()
    for seen in range(1, queries + 1):
        decision = decide_online(frontier, 0.78, seen, prepared=prepared)
        spent += decision.point.effective(1, sunk=decision.point.key in prepared)
        prepared |= {decision.point.key} if decision.point.stage1 else set()
    best = min(queries * rent.stage2, owned.stage1 + queries * owned.stage2)
    assert best <= spent <= 2 * best


def test_the_reason_gives_the_numbers():
    frontier = EfficiencyFrontier(hand_points())
    decision = decide_online(frontier, 0.78, 3)
    assert decision.strategy == "tfidf"
    assert "rent for 7 queries yet" in decision.note
    assert "break even after 9.6 queries" in decision.note
    assert decide_online(frontier, 0.78, 10).point.strategy == "memory"


def test_what_is_prepared_is_used_at_once():
    frontier = EfficiencyFrontier(hand_points())
    key = frontier.get("memory", ratio=0.3).key
    decision = decide_online(frontier, 0.78, 1, prepared=[key])
    assert decision.point.key == key
    assert "however many follow" in decision.note


def test_where_nothing_pays_off_there_is_nothing_to_decide():
    frontier = EfficiencyFrontier([point("a", 0.8, 0, 100), point("b", 0.8, 500, 200)])
    assert decide_online(frontier, 0.8, 50).point.strategy == "a"


def test_the_forecast_equals_the_plain_sum_of_survival_probabilities():
    for a, b in [(0.4, 3.0), (1.0, 1.0), (2.5, 0.7), (8.0, 20.0)]:
        for seen in (1, 7):
            for horizon in (1, 10, 400):
                total, alive = 0.0, 1.0
                for k in range(horizon):
                    alive *= (b + seen - 1 + k) / (a + b + seen - 1 + k)
                    total += alive
                got = ReuseModel(a, b).remaining(seen, horizon)
                assert got == pytest.approx(total, rel=1e-4)
