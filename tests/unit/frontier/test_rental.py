import numpy as np
import pytest

from ecs_plugins.frontier.rental import WORST_BOUND, RentalPlan, plan_rental

LONGEST = 3000


def spent(slopes, plan):
    """Return the cost of a plan after 1, 2, ... queries."""
    paid = np.zeros(LONGEST)
    for start, choice in zip(plan.starts, plan.choices, strict=True):
        if start <= LONGEST:
            price, rate = slopes[choice]
            first = start - 1
            paid[first:] = rate
            paid[first] += price
    return paid.cumsum()


def optimum(slopes):
    """Return the cost of the offline optimum after 1, 2, ... queries."""
    queries = np.arange(1, LONGEST + 1)
    costs = [price + queries * rate for price, rate in slopes]
    return np.min(costs, axis=0)


def worst_ratio(slopes, plan):
    """Against the offline optimum, wherever an adversary may stop."""
    ratios = spent(slopes, plan) / optimum(slopes)
    return float(ratios.max())


@pytest.mark.parametrize(
    ("slopes", "bound"),
    [
        (((0.0, 1000.0), (2000.0, 20.0), (100_000.0, 1.0)), 2.0),
        (((900.0, 100.0), (2000.0, 1.0)), 2.0),
        (((0.0, 1.0), (1000.0, 1.0)), 1.0),
        (((1000.0, 1.0), (0.0, 1.0)), 1.0),
        (((0.0, 1.0), (1000.0, 1e-3)), 2.0),
    ],
)
def test_known_hard_cases_keep_the_bound_that_is_shown(slopes, bound):
    plan = plan_rental(slopes)
    shown = plan.bound + 1e-9
    assert worst_ratio(slopes, plan) <= shown
    assert shown <= bound + 1e-3


def made_up(games):
    """Random and adversarial games of 2 to 6 strategies."""
    rng = np.random.default_rng(7)
    for game in range(games):
        count = int(rng.integers(2, 7))
        if game % 3:
            prices = 10 ** rng.uniform(-1, 6, count)
            prices *= rng.random(count) < 0.8
            rates = 10 ** rng.uniform(-3, 4, count)
        else:  # Adversarial: every step is worth it only after much longer use.
            rises = rng.uniform(1.5, 40, count)
            falls = rng.uniform(1.5, 40, count)
            prices = np.cumprod(rises)
            rates = 1000 / np.cumprod(falls)
        yield tuple(zip(prices.tolist(), rates.tolist(), strict=True))


@pytest.mark.parametrize("games", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_and_adversarial_games_keep_their_bound(games):
    for slopes in made_up(games):
        plan = plan_rental(slopes)
        shown = plan.bound * (1 + 1e-9)
        assert worst_ratio(slopes, plan) <= shown
        assert shown <= WORST_BOUND + 1e-3


def test_no_later_or_earlier_purchase_has_a_better_bound():
    plans = [RentalPlan((1,), (1,), 0)]
    for start in range(2, 300):
        plan = RentalPlan((1, start), (0, 1), 0)
        plans.append(plan)
    rent = (0.0, 10.0)
    for buy in [(3.0, 1.0), (40.0, 0.01), (700.0, 9.0)]:
        slopes = (rent, buy)
        best = min(worst_ratio(slopes, plan) for plan in plans)
        assert plan_rental(slopes).bound <= best + 1e-3


def test_what_is_never_the_cheapest_is_never_bought():
    slopes = ((0.0, 10.0), (50.0, 10.0), (500.0, 9.0), (100.0, 1.0))
    plan = plan_rental(slopes)
    assert plan.choices == (0, 3)


def test_what_costs_nothing_once_it_is_bought_keeps_its_bound():
    slopes = ((0.0, 10.0), (50.0, 0.0))
    plan = plan_rental(slopes)
    assert plan.choices == (0, 1)
    assert worst_ratio(slopes, plan) <= plan.bound * (1 + 1e-9)
