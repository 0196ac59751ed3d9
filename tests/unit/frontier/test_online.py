"""Rent or buy against the offline optimum, on reuse that is constant, geometric, Zipf, bursty."""

import math

import numpy as np
import pytest

from benchmarks.deployment.simulation import REUSE_KINDS, reuse_counts
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.forecast import ReuseForecast, ReuseModel
from ecs_plugins.frontier.online import OnlinePolicy, RentOrBuy, decide_online

from .conftest import hand_points, point

RANDOM_BOUND = math.e / (math.e - 1)


KINDS = REUSE_KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("break_even", [0.4, 1.0, 7.3, 9.55, 60.0])
def test_deterministic_costs_at_most_twice_the_optimum_for_every_context(kind, break_even):
    choice = RentOrBuy(rent_extra=157.0, price=157.0 * break_even)
    rentals = choice.rentals()
    for queries in reuse_counts(kind, 500, seed=42):
        assert choice.cost(queries, rentals) <= 2 * choice.optimum(queries) + 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("break_even", [0.4, 1.0, 7.3, 9.55, 60.0])
def test_randomised_expects_at_most_e_over_e_minus_one_times_the_optimum(kind, break_even):
    choice = RentOrBuy(157.0, 157.0 * break_even)
    draws = (np.arange(4000) + 0.5) / 4000
    rentals = [choice.rentals(OnlinePolicy.RANDOMISED, draw=draw) for draw in draws]
    for queries in np.unique(reuse_counts(kind, 500, seed=42)).tolist():
        expected = np.mean([choice.cost(queries, r) for r in rentals])
        assert expected <= (RANDOM_BOUND + 1e-3) * choice.optimum(queries)


def test_the_bounds_are_reached_by_an_adversary():
    choice = RentOrBuy(1.0, 1000.0)
    rentals = choice.rentals()
    assert choice.cost(rentals + 1, rentals) / choice.optimum(rentals + 1) > 1.99
    draws = (np.arange(4000) + 0.5) / 4000
    costs = [choice.cost(700, choice.rentals(OnlinePolicy.RANDOMISED, draw=draw)) for draw in draws]
    assert np.mean(costs) / choice.optimum(700) == pytest.approx(RANDOM_BOUND, rel=0.01)


@pytest.mark.parametrize("trust", [0.2, 0.5, 1.0])
def test_a_right_forecast_is_consistent_and_a_wrong_one_is_bounded(trust):
    choice = RentOrBuy(1.0, 50.0)
    for queries in [1, 10, 49, 50, 51, 200, 5000]:
        for forecast in [1, 49, 51, 10_000]:
            rentals = choice.rentals(OnlinePolicy.FORECAST, forecast=forecast, trust=trust)
            ratio = choice.cost(queries, rentals) / choice.optimum(queries)
            assert ratio <= 1 + 1 / trust + 1e-9
        rentals = choice.rentals(OnlinePolicy.FORECAST, forecast=queries, trust=trust)
        assert choice.cost(queries, rentals) <= (1 + trust) * choice.optimum(queries) + 1e-9


@pytest.mark.parametrize("kind", ["geometric", "zipf", "bursty"])
def test_the_routed_stream_stays_within_twice_the_offline_optimum(kind):
    frontier = EfficiencyFrontier(hand_points())
    rent, owned = frontier.get("tfidf", depth=10), frontier.get("memory", ratio=0.3)
    spent = best = 0.0
    for index, queries in enumerate(reuse_counts(kind, 60, seed=1)):
        prepared = frozenset()
        for seen in range(1, min(queries, 300) + 1):
            decision = decide_online(
                frontier, 0.78, seen, context_id=f"c{index}", prepared=prepared
            )
            if decision.point.key not in prepared:
                spent += decision.point.stage1
            if decision.buy:
                prepared = frozenset([decision.point.key])
            spent += decision.point.stage2
        queries = min(queries, 300)
        best += min(queries * rent.stage2, owned.stage1 + queries * owned.stage2)
    assert best <= spent <= 2 * best


def test_the_reason_gives_the_numbers():
    decision = decide_online(EfficiencyFrontier(hand_points()), 0.78, 3)
    assert not decision.buy
    assert decision.rentals == 9
    assert "break even after 9.6 queries" in decision.reason
    bought = decide_online(EfficiencyFrontier(hand_points()), 0.78, 10)
    assert bought.point.strategy == "memory"


def test_what_is_prepared_is_used_at_once():
    frontier = EfficiencyFrontier(hand_points())
    key = frontier.get("memory", ratio=0.3).key
    decision = decide_online(frontier, 0.78, 1, prepared=[key])
    assert decision.point.key == key
    assert "however many follow" in decision.reason


def test_where_nothing_pays_off_there_is_nothing_to_decide():
    frontier = EfficiencyFrontier([point("a", 0.8, 0, 100), point("b", 0.8, 500, 200)])
    decision = decide_online(frontier, 0.8, 50)
    assert decision.point.strategy == "a"


def test_a_random_threshold_is_fixed_per_context_and_seed():
    frontier = EfficiencyFrontier(hand_points())

    def rentals(context, seed=42):
        return decide_online(
            frontier,
            0.78,
            1,
            context_id=context,
            policy=OnlinePolicy.RANDOMISED,
            seed=seed,
        ).rentals

    assert len({rentals("a") for _ in range(5)}) == 1
    assert len({rentals(f"c{k}") for k in range(40)}) > 4
    assert [rentals(f"c{k}") for k in range(9)] != [rentals(f"c{k}", seed=1) for k in range(9)]


def test_a_forecast_buys_early_or_late():
    frontier = EfficiencyFrontier(hand_points())
    many = decide_online(
        frontier, 0.78, 5, policy=OnlinePolicy.FORECAST, forecast=ReuseForecast(5, 95.0, 0.9)
    )
    few = decide_online(
        frontier,
        0.78,
        12,
        policy=OnlinePolicy.FORECAST,
        forecast=ReuseForecast(12, 0.5, 0.1),
        trust=0.3,
    )
    assert many.buy
    assert few.buy  # it was asked 12 times already, beyond the break-even of 9.6
    assert not decide_online(
        frontier, 0.78, 9, policy=OnlinePolicy.FORECAST, forecast=ReuseForecast(9, 0.1, 0.1)
    ).buy


@pytest.mark.parametrize(
    "make",
    [
        lambda: RentOrBuy(0.0, 1.0),
        lambda: RentOrBuy(math.nan, 1.0),
        lambda: RentOrBuy(1.0, -1.0),
        lambda: decide_online(EfficiencyFrontier(hand_points()), 0.5, 0),
    ],
)
def test_impossible_choices_are_refused(make):
    with pytest.raises(InvalidInputError):
        make()


def test_policies_need_what_they_use():
    choice = RentOrBuy(1.0, 5.0)
    with pytest.raises(ConfigurationError, match="needs a forecast"):
        choice.rentals(OnlinePolicy.FORECAST)
    with pytest.raises(ConfigurationError, match="draw"):
        choice.rentals(OnlinePolicy.RANDOMISED, draw=1.0)
    with pytest.raises(ConfigurationError, match="trust"):
        choice.rentals(OnlinePolicy.FORECAST, forecast=3, trust=0)


def test_forecast_equals_the_plain_sum_of_survival_probabilities():
    for a, b in [(0.4, 3.0), (1.0, 1.0), (2.5, 0.7), (8.0, 20.0)]:
        for seen in (1, 7):
            for horizon in (1, 10, 400):
                total, alive = 0.0, 1.0
                for k in range(horizon):
                    alive *= (b + seen - 1 + k) / (a + b + seen - 1 + k)
                    total += alive
                got = ReuseModel(a, b).forecast(seen, horizon).remaining
                assert got == pytest.approx(total, rel=1e-4)
